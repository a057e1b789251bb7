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
// scatter_into, or with a one-dimensional index beside more dims scatter_slices, for what the kernels would round or
// stop counting: whether it was. Operands as scatter_into hands them to a kernel; see scatter_sums.cpp.
bool combine_wide(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& from, int opcode);
bool add_by_parts(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& from, int opcode);
// IndexError or RuntimeError, as PyTorch, unless source's slices along dim are self's, one for each element of an index
// of at most one dimension; the dim, wrapped. Without `alike` a slice without dims may stand for a tensor of one.
int64_t check_slices(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const char* op,
                     bool alike = true);
// IndexError where there are indices along a dim without elements: computations of results without any are not run.
inline void check_room(const Tensor& self, int64_t d, int64_t indices, const char* op) {
  TS_CHECK_INDEX(indices == 0 || self.ndim() == 0 || self.sizes()[static_cast<size_t>(d)] > 0, op,
                 ": index is out of bounds for dimension ", d, " with size 0");
}
// A tensor with at least one dimension over the same data.
Tensor raw_1d(const Tensor& t);
// Positions of the elements that are not zero, in the flattened tensor; waits for the device.
Tensor nonzero_flat(const Tensor& t);

} // namespace ts
