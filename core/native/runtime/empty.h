// Tensors with memory but no defined contents.
#pragma once
#include "tensor/tensor.h"

namespace ts {

Tensor empty_tensor(IntSpan sizes, DType dtype, Device device);
Tensor empty_strided_tensor(IntSpan sizes, IntSpan strides, DType dtype, Device device);
// Fresh memory with the geometry's own strides when dense, else contiguous: what elementwise results use.
Tensor empty_like_tensor(const Tensor& like, DType dtype);
// A tensor over memory owned elsewhere; `release(ctx)` runs when the last user is gone.
Tensor from_external(void* handle, IntSpan sizes, IntSpan strides, DType dtype, Device device,
                     void (*deleter)(Storage&), void* ctx);

} // namespace ts
