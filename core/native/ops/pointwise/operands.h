// The operands of a pointwise call at their common shape, and the dtypes it is computed with.
#pragma once
#include "ops/common/arguments.h"
#include "ops/pointwise/info.h"

namespace ts {

constexpr int kUsualOperands = 4; // room for more costs every call

struct PointwiseOperand {
  const TensorImpl* tensor = nullptr; // NULL: a number
  Scalar number;
};

struct PointwisePlan {
  SmallVector<PointwiseOperand, kUsualOperands> operands;
  std::vector<Tensor> copies; // of operands that writing the result would change
  Dims sizes;
  Device device;
  DType common = DType::Undefined, result = DType::Undefined, compute = DType::Undefined;
};

// A number as a half dtype holds it: comparisons see it so, though they are computed with more digits.
Scalar rounded_to_half(Scalar number, DType half);
// Checks the operands; all errors of dtypes, devices and shapes are raised here.
PointwisePlan make_plan(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, const Frame& f);

} // namespace ts
