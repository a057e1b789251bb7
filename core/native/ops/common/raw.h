// Below the dispatcher: constants, copies and geometry for bodies and gradients, straight from kernels.
#pragma once
#include "dispatch/op_handles.h"
#include "dispatch/operator.h"
#include "runtime/empty.h"

namespace ts {

// A fresh tensor with every element set.
Tensor filled(IntSpan sizes, Scalar value, DType dtype, Device device);
// The same memory as elements of another dtype of the same size.
Tensor as_bytes(const Tensor& t, DType dtype);
// Sets every element of a tensor nobody else reads yet.
void raw_fill(const Tensor& t, Scalar value);
// NaN, or the largest integer, where new memory is to be the same in every run; else leaves what it held.
void fill_unset(const Tensor& t);
// dst = cast(src), same sizes, any strides.
void raw_copy(const Tensor& dst, const Tensor& src);
// t itself when it is so already.
Tensor raw_cast(const Tensor& t, DType dtype);
Tensor raw_contiguous(const Tensor& t);
// The same without a reference more where t is so already; else `hold` keeps what is made.
inline const Tensor& raw_dense(const Tensor& t, DType dtype, Tensor& hold) {
  if (t.dtype() == dtype && t.is_contiguous()) [[likely]]
    return t;
  return hold = raw_contiguous(raw_cast(t, dtype));
}
inline const Tensor& raw_dense(const Tensor& t, Tensor& hold) {
  return !t.defined() || t.is_contiguous() ? t : hold = raw_contiguous(t);
}
// The same data with two dims exchanged, or seen at broadcast sizes: untracked.
Tensor raw_transpose(const Tensor& t, int64_t a, int64_t b);
Tensor raw_expand(const Tensor& t, IntSpan sizes, const char* op);
// A one-dimensional tensor holding these numbers.
Tensor raw_vector(std::span<const double> values, DType dtype, Device device);
// Host value of a 0-d bool tensor; waits for the device. False for meta tensors.
bool raw_truth(const Tensor& t);

// Gives a fresh tensor other sizes of the same element count.
inline Tensor reshaped(Tensor fresh, IntSpan sizes) {
  fresh->set_contiguous(sizes);
  return fresh;
}

// --- complex tensors as real ones: how kernels of real numbers compute with them ---

// (...) complex as (..., 2) real: the same memory, untracked.
Tensor raw_parts(const Tensor& t);
// One part of a complex tensor: the same memory, untracked.
Tensor raw_part(const Tensor& t, bool imaginary);
// Each element of an index twice, for both parts of a number: (..., 2) in the same memory.
Tensor raw_index_of_parts(const Tensor& index);
// A fresh contiguous real tensor (..., 2) as the complex one (...) of the same memory.
Tensor of_parts(Tensor fresh);

// An operator call for complex tensors only; in memory, since gradients read it more than once.
inline Tensor conjugate(const Tensor& t) { return is_complex(t.dtype()) ? ops::conj_physical(t) : t; }

} // namespace ts
