// Reading and writing by index, for operator bodies: arguments are checked here, nothing is recorded.
#pragma once
#include "ops/common/copy.h"

namespace ts {

// out[.., i, ..] = self[.., index[i], ..]: a fresh tensor; index one-dimensional.
Tensor select_along(const Tensor& self, int64_t dim, const Tensor& index);
// Into a contiguous tensor of those sizes that has elements; the dim is not empty.
void select_into(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index);
// out at index along dim, combined with src by a TS_S_* opcode. Shapes as torch.scatter; 0-d tensors allowed.
// The three must not share memory.
void scatter_into(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& src, int opcode);
// The same with a one-dimensional index: src has out's sizes but for index.numel() along dim.
void scatter_slices(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& src, int opcode);
// A tensor with at least one dimension over the same data.
Tensor raw_1d(const Tensor& t);
// Positions of the elements that are not zero, in the flattened tensor; waits for the device.
Tensor nonzero_flat(const Tensor& t);

} // namespace ts
