// The tape: nodes that turn gradients of results into gradients of inputs, and edges between them.
#pragma once
#include "tensor/tensor.h"
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ts {

struct Node;
struct ArgType;
struct Value;
class Stream;
class SavedTensor;

struct Edge {
  Ref<Node> node;
  uint32_t input = 0; // which result of `node`'s operator the gradient belongs to
};

// Shape, dtype and device of a forward result: what its gradient must look like.
struct ResultMeta {
  Dims sizes;
  DType dtype = DType::Undefined;
  Device device;
};

// Called with an undefined tensor where no gradient arrived; an undefined result leaves the gradient as it is.
using TensorHook = std::function<Tensor(const Tensor&)>;
using GradsHook = std::function<void(std::vector<Tensor>& grads)>; // may replace gradients
using PostHook = std::function<void(std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs)>;
using LeafHook = std::function<void(const Tensor& leaf)>; // its .grad has changed

struct NodeHooks {
  template <class F> struct Entry {
    uint64_t id;
    uint32_t output;
    F fn;
    std::shared_ptr<void> held = nullptr; // the interpreter's object that `fn` calls, which has a second share of it
  };
  std::vector<Entry<TensorHook>> tensor; // on the gradient of one result, in order of registration
  std::vector<Entry<TensorHook>> retain; // keep .grad of a non-leaf; after all tensor hooks
  std::vector<Entry<GradsHook>> pre;
  std::vector<Entry<PostHook>> post;
  std::vector<Entry<LeafHook>> accumulated; // of leaves alone
  std::shared_ptr<NodeHooks*> place;        // made on demand: what handles look for, gone with the hooks

  NodeHooks() = default;
  NodeHooks(const NodeHooks&) = delete;
  NodeHooks& operator=(const NodeHooks&) = delete;
};
uint64_t next_hook_id();
// Where a registered hook stands. It keeps neither the hook nor its node alive, and finds it whatever became of the
// tensor: an in-place operation leaves the hook with the value that it was registered on.
struct HookPlace {
  std::weak_ptr<NodeHooks*> hooks;
  uint64_t id;
  void remove() const;
};
template <class F>
HookPlace add_hook(NodeHooks& hooks, std::vector<NodeHooks::Entry<F>>& list, uint32_t output, F fn,
                   std::shared_ptr<void> held) {
  if (!hooks.place) hooks.place = std::make_shared<NodeHooks*>(&hooks);
  uint64_t id = next_hook_id();
  list.push_back({id, output, std::move(fn), std::move(held)});
  return {hooks.place, id};
}
// What runs: hooks may add and remove hooks, which counts from the next time on.
template <class Entry> std::vector<Entry> snapshot(const std::vector<Entry>& hooks) { return hooks; }

// A bit per edge whose gradient somebody wants in this run. Edges from the 64th on count as wanted.
using EdgeMask = uint64_t;
inline bool is_wanted(EdgeMask wanted, size_t edge) { return edge >= 64 || (wanted >> edge & 1); }

// What a node keeps of its operator's call, under the name the schema has for it: tensors, or a value of a type.
struct SavedPart {
  std::string name;
  std::function<Tensor(size_t)> tensor = nullptr; // unpacks one; RuntimeError once freed
  std::function<SavedTensor*(size_t)> raw = nullptr;
  size_t count = 1;
  bool list = false;
  const Value* value = nullptr;
  const ArgType* type = nullptr;
  IntSpan sizes = {}; // where all that is kept of a tensor is its shape
};

// Looks at what a node keeps alive, for a garbage collector: objects of the interpreter, of which the node has `shares`
// of its own, and tensors.
struct HeldVisitor {
  virtual ~HeldVisitor() = default;
  virtual void object(const std::shared_ptr<void>& object, long shares) = 0;
  virtual void borrowed(void* object) = 0; // of which the node has a plain reference
  virtual void tensor(const Tensor& t) = 0;
};

struct Node {
  std::atomic<int32_t> refs{1};
  uint32_t n_edges = 0;
  bool forward_only; // recorded under no_grad, for tangents: other gradients stop here
  uint64_t sequence = 0;
  Edge inline_edges[2];
  std::unique_ptr<Edge[]> more_edges; // when there are more than two
  std::unique_ptr<NodeHooks> hooks;
  std::unique_ptr<std::string> location; // the calls that led to the operation, in anomaly mode
  Ref<Node> parent;                      //   and the node whose backward it was part of
  std::shared_ptr<void> metadata;        // the interpreter's, made on demand
  Node* next_dying = nullptr;
  void* wrapper = nullptr; // the Python object standing for this node, borrowed
  std::shared_ptr<const std::vector<std::shared_ptr<Stream>>> streams; // of the forward, see runtime/stream.h

  Node();
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual std::string name() const = 0; // "AddBackward"
  virtual size_t num_results() const { return 1; }
  virtual const ResultMeta& result_meta(size_t k) const = 0;
  // grads: one per result, undefined where nothing arrived. Fills one per edge; undefined means zero. Several threads
  // may be in here at once, taking turns at kernels: what belongs to one run is no member of the node.
  virtual void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) = 0;
  virtual void release_saved() {} // after backward without retain_graph
  virtual std::vector<SavedPart> saved_parts() { return {}; }
  virtual void visit_held(HeldVisitor&) const {}         // besides hooks, metadata and edges
  virtual void unlink() {}                               // nobody holds the node: it may wait to be deleted
  virtual Tensor* accumulates_into() { return nullptr; } // leaf nodes

  std::span<Edge> edges() { return {more_edges ? more_edges.get() : inline_edges, n_edges}; }
  std::span<const Edge> edges() const { return {more_edges ? more_edges.get() : inline_edges, n_edges}; }
  void resize_edges(size_t n);
  NodeHooks& make_hooks() {
    if (!hooks) hooks = std::make_unique<NodeHooks>();
    return *hooks;
  }
  // Frees iteratively: a chain of any length is torn down without recursion.
  static void destroy(Node* n);
  static void* operator new(size_t bytes) { return allocate_block(bytes); }
  static void operator delete(void* p, size_t bytes) { free_block(p, bytes); }
};

} // namespace ts
