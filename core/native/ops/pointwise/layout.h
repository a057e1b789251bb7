// How the result of a pointwise call lies in memory, and its dims merged into as few as possible.
#pragma once
#include "ops/pointwise/operands.h"

namespace ts {

// The result's dims lie in memory in the order of the operands' dims, as in PyTorch.
Tensor allocate_result(const PointwisePlan& plan, const char* op);
void lay_as_result(const Tensor& out, const PointwisePlan& plan, const char* op); // out= that has just been resized

struct Merged {
  Dims sizes;
  SmallVector<int64_t, 64> strides; // operand-major: output first
  IntSpan strides_of(size_t operand) const { return {strides.data() + operand * sizes.size(), sizes.size()}; }
};
// Sorts dims by the output's strides and merges neighbours that are contiguous to each other in every operand.
Merged merge_dims(const Operator& op, const PointwisePlan& plan, const Tensor& out);

} // namespace ts
