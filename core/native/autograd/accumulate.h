// The node at a leaf: adds what arrives to the tensor's .grad.
#pragma once
#include "autograd/meta.h"
#include <mutex>

namespace ts {

// Held while the gradient of a tensor is added to: the kernels that do it let other threads of the interpreter run.
class GradLock {
public:
  explicit GradLock(const AutogradMeta& meta);
  ~GradLock() { mutex_.unlock(); }
  GradLock(const GradLock&) = delete;
  GradLock& operator=(const GradLock&) = delete;

private:
  std::recursive_mutex& mutex_; // recursive: a kernel in Python may run another backward
};

struct AccumulateGrad final : Node {
  Tensor variable;
  ResultMeta meta;
  explicit AccumulateGrad(const Tensor& t) : variable(t), meta{Dims(t.sizes()), t.dtype(), t.device()} {
    forward_only = false;
    sequence = UINT64_MAX; // as early as possible: frees memory
  }
  // What is deleted before it may run Python code that asks the leaf for its node.
  void unlink() override;
  std::string name() const override { return "AccumulateGrad"; }
  const ResultMeta& result_meta(size_t) const override { return meta; }
  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) override;
  Tensor* accumulates_into() override { return &variable; }
  void visit_held(HeldVisitor& visitor) const override { visitor.tensor(variable); }

private:
  void add_to(AutogradMeta& meta, Tensor grad);
};

// Whether what writes this thread's program down holds the memory as well, once; set by it. It is no one who sees it.
inline bool (*held_by_tracer)(const Storage*) = nullptr;
bool is_sole(const Storage* s); // whether one tensor sees the memory

void run_leaf_hooks(const AutogradMeta& m, Tensor& g); // those on a leaf's gradient, which may replace it

} // namespace ts
