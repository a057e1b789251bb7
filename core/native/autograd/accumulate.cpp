#include "autograd/accumulate.h"
#include "autograd/view_history.h"
#include "dispatch/op_handles.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include "tensor/geometry.h"
#include "tensor/sparse.h"

namespace ts {

namespace {
std::recursive_mutex& mutex_of(const AutogradMeta& meta) {
  static std::recursive_mutex mutexes[16];
  return mutexes[reinterpret_cast<uintptr_t>(&meta) >> 6 & 15];
}
} // namespace

GradLock::GradLock(const AutogradMeta& meta) : mutex_(mutex_of(meta)) {
  if (mutex_.try_lock()) return;
  SuspendInterpreter waiting(kSuspendThreshold + 1); // whoever holds the lock may need the interpreter to get on
  mutex_.lock();
}

void AccumulateGrad::unlink() {
  if (AutogradMeta* m = autograd_meta(variable.impl()); m && m->accumulator == this) m->accumulator = nullptr;
}

bool is_sole(const Storage* s) {
  const auto refs = s->refs.load();
  return refs == 1 || (refs == 2 && held_by_tracer && held_by_tracer(s));
}

namespace {
// Nobody else can see the tensor or its data, and it is nothing but data.
bool is_private(const Tensor& g) {
  if (g->payload) return g->refs.load() == 1 && !g->wrapper && !g->autograd;
  bool sole = g->refs.load() == 1 && g->storage && is_sole(g->storage) && !g->wrapper;
  return sole && !g->autograd && !(g->keys & ~backend_bits()) && !(g->flags & ~TensorImpl::kContiguous);
}

// A copy that nobody else sees, laid out as .grad is.
Tensor private_copy(const Tensor& g, const Tensor& variable) {
  const ThreadState& state = thread_state();
  const bool asked = (g->keys | state.include) & ~state.exclude & key_bit(key::Python); // a mode is to see the copy
  if (g->payload || asked || !same(g.sizes(), variable.sizes()))
    return grad_enabled() ? ops::clone(g) : detach(ops::clone(g));
  bool dense = is_dense(variable.sizes(), variable.strides());
  Tensor copy = dense ? empty_strided_tensor(g.sizes(), variable.strides(), g.dtype(), g.device())
                      : empty_tensor(g.sizes(), g.dtype(), g.device());
  ops::copy_(copy, g);
  return copy;
}
// Strides of dims of one element mean nothing, but are compared, and say where channels lie.
void take_strides(const Tensor& g, const Tensor& variable) {
  if (same(g.strides(), variable.strides()) || !same(g.sizes(), variable.sizes())) return;
  if (is_dense(variable.sizes(), variable.strides())) g->set_geometry(variable.sizes(), variable.strides());
}
} // namespace

void AccumulateGrad::backward(std::span<Tensor> grads, std::span<Tensor>, EdgeMask) {
  Tensor g = std::move(grads[0]);
  AutogradMeta& m = make_autograd_meta(variable.impl());
  TS_CHECK(!grad_fn(variable), "leaf variable has been moved into the graph interior");
  if (!g.defined() || !variable->has(TensorImpl::kRequiresGrad)) return; // switched off since
  add_to(m, std::move(g));
  if (!m.leaf_hooks) return;
  for (auto& hook : snapshot(m.leaf_hooks->accumulated)) hook.fn(variable);
}

void run_leaf_hooks(const AutogradMeta& m, Tensor& g) {
  if (!m.leaf_hooks) return;
  for (auto& hook : snapshot(m.leaf_hooks->tensor))
    if (Tensor r = hook.fn(g); r.defined()) g = std::move(r);
}

// Whether a sparse gradient's parts can be written to element by element.
static bool lies_in_rows(const Tensor& g) {
  for (const Tensor& part : sparse_parts(g)->parts)
    if (part.defined() && !part.is_contiguous()) return false;
  return true;
}

void AccumulateGrad::add_to(AutogradMeta& m, Tensor g) {
  GradLock lock(m);
  if (!m.grad.defined()) {
    // Kept as it is when nobody else can see it; copied otherwise, so that later accumulation stays private.
    // Of one with a graph the copy has one as well.
    const bool graph = grad_enabled();
    const bool keep = graph ? !g.is_view() && (g->payload || !g->storage || is_sole(g->storage))
                            : is_private(g) && (g->payload ? lies_in_rows(g) : is_laid_out_for(g, variable));
    if (keep && !graph && !g->payload) take_strides(g, variable);
    m.grad = keep ? std::move(g) : private_copy(g, variable);
  } else if (m.grad->payload && !g->payload) {
    m.grad = ops::add(g, m.grad); // dense and sparse make dense
  } else if (grad_enabled()) {
    m.grad = ops::add(m.grad, g);
  } else {
    ops::add_(m.grad, g);
  }
}

} // namespace ts
