// Arithmetic on sizes and strides: broadcasting, views, merging of dimensions.
#pragma once
#include "tensor/small_vector.h"
#include "tensor/tensor.h"
#include <optional>

namespace ts {

// dim in [-ndim, ndim) to [0, ndim); a 0-d tensor counts as one-dimensional. IndexError names `op`.
int64_t wrap_dim(int64_t dim, int64_t ndim, const char* op);
// Distinct wrapped dims, in the order given; an empty span means all. RuntimeError on repetition.
Dims wrap_dims(IntSpan dims, int64_t ndim, const char* op);
// Product of sizes; RuntimeError on a negative size or overflow.
int64_t checked_numel(IntSpan sizes);
Dims contiguous_strides(IntSpan sizes);
Dims channels_last_strides(IntSpan sizes);            // 4-d or 5-d
Dims strides_for(IntSpan sizes, MemoryFormat format); // Preserve counts as Contiguous
bool geometry_is_contiguous(IntSpan sizes, IntSpan strides);
bool geometry_is_channels_last(IntSpan sizes, IntSpan strides, int ndim);
// True when distinct indices reach distinct elements, no gaps: some permutation of dims is contiguous.
bool is_dense(IntSpan sizes, IntSpan strides);
// Strides without gaps that keep the order of the dims in memory: their own where they are dense.
Dims dense_strides(IntSpan sizes, IntSpan strides);
// True when several indices may reach one element (expanded or overlapping): in-place writes are refused.
bool may_overlap(IntSpan sizes, IntSpan strides);
bool is_expanded(IntSpan sizes, IntSpan strides); // elements repeated by a stride of 0
// Bytes from the first element: lowest and one past the highest byte reached.
std::pair<int64_t, int64_t> byte_extent(IntSpan sizes, IntSpan strides, int64_t item_size);

// The common shape by NumPy's rules. RuntimeError naming `op`, both shapes and the dimension.
Dims broadcast_sizes(IntSpan a, IntSpan b, const char* op);
// Strides of a tensor seen at `to` sizes, zero where it repeats. RuntimeError if it does not broadcast.
Dims expand_strides(IntSpan sizes, IntSpan strides, IntSpan to, const char* op);
// Strides that give `to` sizes without moving data, if there are any.
std::optional<Dims> view_strides(IntSpan sizes, IntSpan strides, IntSpan to);
// Replaces the one -1 of a requested shape. RuntimeError when the element counts disagree.
Dims infer_size(IntSpan requested, int64_t numel, const char* op);
// The stride of every step-th of `length` positions. Of one position at most it does not matter: it stays small enough
// to be counted in bytes and added up.
int64_t stepped_stride(int64_t stride, int64_t step, int64_t length);
inline constexpr int64_t kLargestIdleStride = INT64_MAX >> 8;
// Dims ordered from largest to smallest stride, stable; the order a dense layout is laid out in memory.
Dims memory_order(IntSpan sizes, IntSpan strides);

} // namespace ts
