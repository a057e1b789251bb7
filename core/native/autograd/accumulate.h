// The node at a leaf: adds what arrives to the tensor's .grad.
#pragma once
#include "autograd/meta.h"

namespace ts {

struct AccumulateGrad final : Node {
  Tensor variable;
  ResultMeta meta;
  explicit AccumulateGrad(const Tensor& t) : variable(t), meta{Dims(t.sizes()), t.dtype(), t.device()} {
    sequence = UINT64_MAX; // as early as possible: frees memory
  }
  ~AccumulateGrad() override;
  std::string name() const override { return "AccumulateGrad"; }
  const ResultMeta& result_meta(size_t) const override { return meta; }
  void backward(std::span<Tensor> grads, std::span<Tensor> out) override;
  Tensor* accumulates_into() override { return &variable; }
};

} // namespace ts
