// Tensors whose values are the conjugates, or the negatives, of what is in their memory.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// The same memory as it is: without the bits, history, or a base.
Tensor physical(const Tensor& t);
// Makes the values of t those of `out`, of t's sizes, dtype and device, which has no bits.
void read_values(const Tensor& t, const Tensor& out);
// t itself where nothing is pending, else its values in fresh memory. Nothing is recorded.
Tensor materialized(const Tensor& t);
// Makes `values`, of t's sizes, dtype and device, the values of t. Nothing is recorded; counts as a write.
void write_values(const Tensor& t, const Tensor& values);

} // namespace ts
