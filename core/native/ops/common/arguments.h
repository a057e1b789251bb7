// Arguments of factories and data movement: numbers as elements, defaults, dtypes of indices.
#pragma once
#include "dispatch/value.h"
#include "ops/common/check.h"
#include "runtime/backend.h"
#include "tensor/geometry.h"

namespace ts {

// The number as an element of dtype t: truncated towards zero for integers. RuntimeError when out of range, as
// PyTorch: infinities pass into floating dtypes, small negative numbers wrap into unsigned ones.
Scalar convert_scalar(Scalar value, DType t, const char* op);
// RuntimeError when `value`, a 0-d tensor that the host can read, is out of the range of dtype t.
void check_value_fits(const Tensor& value, DType t, const char* op);

inline DType or_default(DType given) { return given == DType::Undefined ? default_dtype() : given; }
inline Device or_default(Device given) { return given.defined() ? given : default_device(); }

void check_same_device(const Tensor& a, const Tensor& b, const char* op);
void check_index_dtype(const Tensor& index, const char* op); // int32 or int64
void check_long_index(const Tensor& index, const char* op);  // int64
// The number in a tensor of one element, by item(), which recorders see. Waits for the device.
Scalar scalar_in(const Tensor& t);
int64_t host_number(const Tensor& t);
// Refuses what needs element values of a tensor that has none.
void check_not_meta(const Tensor& t, const char* op);

} // namespace ts
