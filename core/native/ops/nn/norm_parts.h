// What the normalisations share.
#pragma once
#include "dispatch/op_handles.h"
#include "ops/common/raw.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"

namespace ts {

// In the type statistics are kept in; an operator call, so it can be traced.
inline Tensor widened(const Tensor& t) { return as_dtype(t, accumulate_type(t)); }

// In which kernels take a weight or bias, and give its gradient: as the input, or wide where it is kept so beside a
// half input, that neither be rounded.
inline DType parameter_type(const Tensor& input, const Tensor& parameter) {
  DType wide = accumulate_type(input);
  return parameter.defined() && parameter.dtype() == wide ? wide : input.dtype();
}

// A saved 1 / sqrt(var + eps) once more, now as a function of x: eps is what the saved value implies.
inline Tensor rstd_of(const Tensor& centered, IntSpan dims, const Tensor& saved) {
  Tensor var = ops::mean_dim(ops::square(centered), dims, true);
  Tensor constant = ops::detach(saved);
  Tensor eps = ops::sub(ops::reciprocal(ops::square(constant)), ops::detach(var));
  return ops::rsqrt(ops::add(var, eps));
}

inline Tensor sum_over_dims(const Tensor& t, IntSpan dims) { return dims.empty() ? t : ops::sum_dim(t, dims); }

} // namespace ts
