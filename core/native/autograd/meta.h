// Autograd state of tensors: gradients, leaves, histories, views.
#pragma once
#include "autograd/node.h"
#include "dispatch/operator.h"

namespace ts {

struct AutogradMeta : AutogradMetaBase {
  Tensor grad;
  Ref<Node> grad_fn;           // NULL for leaves
  uint32_t output_nr = 0;      // which result of grad_fn the tensor is
  Node* accumulator = nullptr; // leaf node, alive only while some graph refers to it; not owned
  uint64_t retain_hook = 0;    // at grad_fn, of retain_grad()
  std::unique_ptr<NodeHooks> leaf_hooks;
  std::shared_ptr<char> alive; // made on demand: tells whether the tensor still exists
  static void* operator new(size_t bytes) { return allocate_block(bytes); }
  static void operator delete(void* p, size_t bytes) { free_block(p, bytes); }
};

inline AutogradMeta* autograd_meta(const TensorImpl* t) { return static_cast<AutogradMeta*>(t->autograd); }
AutogradMeta& make_autograd_meta(TensorImpl* t);

bool requires_grad_slow(const TensorImpl* t);
// A leaf asked for, a result with history, or a view of such.
inline bool requires_grad(const TensorImpl* t) { return (t->keys & key_bit(key::Autograd)) && requires_grad_slow(t); }
inline bool requires_grad(const Tensor& t) { return t.defined() && requires_grad(t.impl()); }
// That, while gradients are recorded.
inline bool is_recorded(const Tensor& t) { return requires_grad(t) && grad_enabled(); }
// RuntimeError for integer dtypes, and for switching off a non-leaf.
void set_requires_grad(const Tensor& t, bool on);
bool is_leaf(const Tensor& t);
// NULL for leaves. A view whose base was modified in place gets a fresh one here.
Ref<Node> grad_fn(const Tensor& t);
// Where the gradient of t goes: its grad_fn, or the accumulator of a leaf; empty when no gradient is required.
Edge gradient_edge(const Tensor& t);
void set_history(const Tensor& t, Ref<Node> node, uint32_t output_nr);
void set_grad_fn(TensorImpl* t, Ref<Node> node, uint32_t output_nr); // what retain_grad() asked for comes along

Tensor grad_of(const Tensor& t);
void set_grad_of(const Tensor& t, const Tensor& grad); // RuntimeError unless shape, dtype, device agree
void retain_grad(const Tensor& t);
// RuntimeError if no gradient is required. `held`: the interpreter's object that is called.
HookPlace register_tensor_hook(const Tensor& t, TensorHook hook, std::shared_ptr<void> held = nullptr);
HookPlace register_post_accumulate_hook(const Tensor& t, LeafHook hook, std::shared_ptr<void> held = nullptr);

Tensor detach(const Tensor& t);                       // shares data and version; no history
void detach_inplace(const Tensor& t);                 // RuntimeError for views
void set_data(const Tensor& t, const Tensor& source); // t.data = source

} // namespace ts
