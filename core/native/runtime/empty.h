// Tensors with memory but no defined contents.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// Tensors in all but memory: what rules return, and what meta tensors are.
Tensor outline(IntSpan sizes, DType dtype, Device device);
Tensor outline_strided(IntSpan sizes, IntSpan strides, DType dtype, Device device);
// With the strides of a dense tensor, those of dims of one element too; of another, dense ones in their order.
Tensor outline_like(const Tensor& like, DType dtype, Device device);
inline Tensor outline_like(const Tensor& like, DType dtype) { return outline_like(like, dtype, like.device()); }
// Memory from the device's allocator for a fresh outline; none on the meta device.
void give_memory(TensorImpl& outline);

Tensor empty_tensor(IntSpan sizes, DType dtype, Device device);
Tensor empty_strided_tensor(IntSpan sizes, IntSpan strides, DType dtype, Device device);
// As outline_like, with memory.
Tensor empty_like_tensor(const Tensor& like, DType dtype);
// A tensor over memory owned elsewhere; `release(ctx)` runs when the last user is gone.
Tensor from_external(void* handle, IntSpan sizes, IntSpan strides, DType dtype, Device device,
                     void (*deleter)(Storage&), void* ctx);
// All of a storage of its own.
Tensor tensor_over(Storage* s, IntSpan sizes, DType dtype);

} // namespace ts
