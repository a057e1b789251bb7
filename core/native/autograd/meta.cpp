#include "autograd/meta.h"
#include "autograd/accumulate.h"
#include "autograd/view_history.h"
#include "dispatch/op_handles.h"
#include "runtime/backend.h"
#include <algorithm>
#include <mutex>

namespace ts {

AutogradMeta& make_autograd_meta(TensorImpl* t) {
  if (!t->autograd) t->autograd = new AutogradMeta;
  return *autograd_meta(t);
}

bool requires_grad_slow(const TensorImpl* t) {
  if (t->has(TensorImpl::kRequiresGrad)) return true;
  if (const AutogradMeta* m = autograd_meta(t); m && m->grad_fn) return true;
  // Bytes seen as another dtype are not differentiated, nor are views of what inference mode made.
  return t->base && !t->has(TensorImpl::kInference) && t->base->dtype == t->dtype && is_differentiable(t->dtype) &&
         requires_grad(t->base);
}

void set_requires_grad(const Tensor& t, bool on) {
  TS_CHECK(!on || is_differentiable(t.dtype()),
           "requires_grad: only Tensors of floating point and complex dtype can require gradients, got ", t.dtype());
  TS_CHECK(is_leaf(t) || on,
           "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
           "subgraph that doesn't require differentiation use var_no_grad = var.detach().");
  TensorImpl* i = t.impl();
  if (!is_leaf(t)) return;
  TS_CHECK(!on || !i->has(TensorImpl::kInference) || thread_state().inference,
           "requires_grad: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed; "
           "clone() it first");
  if (on) {
    i->flags |= TensorImpl::kRequiresGrad;
    i->keys |= key_bit(key::Autograd);
  } else {
    i->flags = static_cast<uint8_t>(i->flags & ~TensorImpl::kRequiresGrad);
    if (!i->base) i->keys &= ~key_bit(key::Autograd);
  }
}

bool is_leaf(const Tensor& t) { return !grad_fn(t); }

Ref<Node> grad_fn(const Tensor& t) {
  if (t->base && view_is_stale(t)) refresh_view_history(t);
  const AutogradMeta* m = autograd_meta(t.impl());
  return m ? m->grad_fn : Ref<Node>();
}

Edge gradient_edge(const Tensor& t) {
  if (Ref<Node> fn = grad_fn(t)) return {std::move(fn), autograd_meta(t.impl())->output_nr};
  if (!t->has(TensorImpl::kRequiresGrad)) return {};
  AutogradMeta& m = make_autograd_meta(t.impl());
  if (m.accumulator) return {Ref<Node>::share(m.accumulator), 0};
  auto node = Ref<Node>::adopt(new AccumulateGrad(t));
  m.accumulator = node.get();
  return {std::move(node), 0};
}

void set_history(const Tensor& t, Ref<Node> node, uint32_t output_nr) {
  if (thread_state().anomaly && !node->location) [[unlikely]]
    note_location(*node);
  set_grad_fn(t.impl(), std::move(node), output_nr);
  t->keys |= key_bit(key::Autograd);
}

void set_grad_fn(TensorImpl* t, Ref<Node> node, uint32_t output_nr) {
  AutogradMeta& m = make_autograd_meta(t);
  if (t->has(TensorImpl::kRetainGrad) && m.grad_fn) [[unlikely]] {
    auto& from = m.grad_fn->make_hooks().retain;
    auto at = std::ranges::find(from, m.retain_hook, &NodeHooks::Entry<TensorHook>::id);
    if (at != from.end()) {
      node->make_hooks().retain.push_back({m.retain_hook, output_nr, std::move(at->fn)});
      from.erase(at);
    }
  }
  m.grad_fn = std::move(node);
  m.output_nr = output_nr;
}

Tensor grad_of(const Tensor& t) {
  const AutogradMeta* m = autograd_meta(t.impl());
  return m ? m->grad : Tensor();
}

void set_grad_of(const Tensor& t, const Tensor& g) {
  if (g.defined()) {
    TS_CHECK(!g.is(t), "grad: can't assign a tensor as its own grad");
    TS_CHECK(g.dtype() == t.dtype(), "grad: attempting to assign a gradient with dtype '", g.dtype(),
             "' to a tensor with dtype '", t.dtype(),
             "'. Please ensure that the gradient and the tensor have the same dtype");
    TS_CHECK(g.device() == t.device(), "grad: attempting to assign a gradient located on device '", g.device(),
             "' to a tensor located on device '", t.device(),
             "'. Please ensure that the gradient and the tensor are on the same device");
    TS_CHECK(same(g.sizes(), t.sizes()), "grad: attempting to assign a gradient of size '", g.sizes(),
             "' to a tensor of size '", t.sizes(),
             "'. Please ensure that the gradient and the tensor are the same size");
  } else if (!t->autograd) {
    return;
  }
  make_autograd_meta(t.impl()).grad = g;
}

void retain_grad(const Tensor& t) {
  TS_CHECK(requires_grad(t), "can't retain_grad on Tensor that has requires_grad=False");
  Ref<Node> fn = grad_fn(t);
  if (!fn || t->has(TensorImpl::kRetainGrad)) return;
  t->flags |= TensorImpl::kRetainGrad;
  // A weak look at the tensor: its node must not keep it alive. The node dies with the last tensor or graph using it.
  TensorImpl* impl = t.impl();
  std::weak_ptr<char> alive = liveness_token(make_autograd_meta(impl));
  autograd_meta(impl)->retain_hook = next_hook_id();
  fn->make_hooks().retain.push_back(
      {autograd_meta(impl)->retain_hook, autograd_meta(impl)->output_nr, [impl, alive](const Tensor& g) {
         if (auto still = g.defined() ? alive.lock() : nullptr) {
           AutogradMeta& m = make_autograd_meta(impl);
           m.grad = m.grad.defined() ? accumulate_grads(m.grad, g) : g;
         }
         return Tensor();
       }});
}

static NodeHooks& leaf_hooks(const Tensor& t) {
  AutogradMeta& m = make_autograd_meta(t.impl());
  if (!m.leaf_hooks) m.leaf_hooks = std::make_unique<NodeHooks>();
  return *m.leaf_hooks;
}

HookPlace register_tensor_hook(const Tensor& t, TensorHook hook, std::shared_ptr<void> held) {
  TS_CHECK(requires_grad(t), "cannot register a hook on a tensor that doesn't require gradient");
  Ref<Node> fn = grad_fn(t);
  NodeHooks& hooks = fn ? fn->make_hooks() : leaf_hooks(t);
  uint32_t output = fn ? autograd_meta(t.impl())->output_nr : 0;
  return add_hook(hooks, hooks.tensor, output, std::move(hook), std::move(held));
}

HookPlace register_post_accumulate_hook(const Tensor& t, LeafHook hook, std::shared_ptr<void> held) {
  TS_CHECK(requires_grad(t), "cannot register a hook on a tensor that doesn't require gradient");
  TS_CHECK(is_leaf(t), "post accumulate grad hooks cannot be registered on non-leaf tensors");
  NodeHooks& hooks = leaf_hooks(t);
  return add_hook(hooks, hooks.accumulated, 0, std::move(hook), std::move(held));
}

Tensor detach(const Tensor& t) {
  // A class that answers for its tensors makes one of its kind.
  return t->keys & key_bit(key::Python) ? ops::detach(t) : shallow_copy(t);
}

void detach_inplace(const Tensor& t) {
  TS_CHECK(!t->base, "Can't detach views in-place. Use detach() instead.");
  if (AutogradMeta* m = autograd_meta(t.impl())) {
    m->grad_fn.reset();
    m->output_nr = 0;
  }
  t->flags = static_cast<uint8_t>(t->flags & ~(TensorImpl::kRequiresGrad | TensorImpl::kRetainGrad));
  t->keys &= ~key_bit(key::Autograd);
}

void set_data(const Tensor& t, const Tensor& source) {
  TS_CHECK(!requires_grad(t) || is_differentiable(source.dtype()),
           "data: a tensor that requires grad cannot take data of dtype ", source.dtype());
  TensorImpl *d = t.impl(), *s = source.impl();
  if (d == s) return;
  const uint32_t version = d->version();
  if (s->storage) retain(s->storage);
  if (d->storage) release(d->storage);
  d->storage = s->storage;
  d->byte_offset = s->byte_offset;
  d->dtype = s->dtype;
  d->device = s->device;
  d->keys = (d->keys & ~data_bits()) | (s->keys & data_bits());
  delete std::exchange(d->payload, s->payload ? s->payload->copy() : nullptr);
  d->copy_geometry(*s);
  if (d->version() != version) { // the tensor's count goes on, not that of its new memory
    if (!d->own_version) d->own_version = new VersionCounter;
    d->own_version->value = version;
  }
  // Autograd state stays; a leaf made for other data must not accumulate into this one's shape.
  if (AutogradMeta* m = autograd_meta(d)) m->accumulator = nullptr;
}

} // namespace ts
