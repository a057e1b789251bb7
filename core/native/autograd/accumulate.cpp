#include "autograd/accumulate.h"
#include "autograd/ops.h"
#include "autograd/view_history.h"

namespace ts {

AccumulateGrad::~AccumulateGrad() {
  if (AutogradMeta* m = autograd_meta(variable.impl()); m && m->accumulator == this) m->accumulator = nullptr;
}

void AccumulateGrad::backward(std::span<Tensor> grads, std::span<Tensor>) {
  Tensor g = grads[0];
  AutogradMeta& m = make_autograd_meta(variable.impl());
  if (m.leaf_hooks)
    for (size_t i = 0; i < m.leaf_hooks->tensor.size(); ++i)
      if (Tensor r = m.leaf_hooks->tensor[i].fn(g); r.defined()) g = r;
  if (!g.defined()) return;
  if (!m.grad.defined()) {
    // Kept as it is when nobody else can see it; copied otherwise, so that later accumulation stays private.
    bool sole = g->refs.load() <= 2 && g->storage && g->storage->refs.load() == 1;
    bool keep = grad_enabled() || (sole && is_dense_like(g, variable));
    m.grad = keep ? (grad_enabled() ? g : detach(g)) : detach(aops::clone(g));
  } else if (grad_enabled()) {
    m.grad = aops::add(m.grad, g);
  } else {
    aops::add_(m.grad, g);
  }
  for (size_t i = 0; i < m.post_accumulate.size(); ++i) m.post_accumulate[i].fn(variable);
}

} // namespace ts
