// The gradient of a vector norm, for distances too.
#pragma once
#include "ops/reduce/reduce_arrange.h"

namespace ts {

// By x, whose `norm` over the dims is given, as is the gradient by it, both with those dims kept at size one. Where the
// norm is zero the gradient is zero, a subgradient.
Tensor vector_norm_gradient(const Tensor& x, const Tensor& grad, const Tensor& norm, double p, DimSet dims);

} // namespace ts
