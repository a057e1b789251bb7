// Copies as building blocks for operator bodies: no dispatch, no autograd. `copy.cpp` declares the operators.
#pragma once
#include "ops/common/raw.h"
#include <span>

namespace ts {

// dst = cast(src), same sizes and device; they may share memory, which raw_copy's may not.
void copy_into(const Tensor& dst, const Tensor& src);
// Fresh memory with src's values in dtype t.
Tensor copy_as(const Tensor& src, DType t, MemoryFormat format);
// src itself, or a copy when writing `target` could change it on the way.
Tensor apart_from(const Tensor& src, const Tensor& target);
// A copy on another device, same dtype; dense layouts are kept. The tensor itself when it is there already.
// With non_blocking, here and below, copies from and to pinned memory are only queued.
Tensor transfer(const Tensor& src, Device device, bool non_blocking = false);
// dst = src of the same sizes and dtype on another device: straight into it where both lie alike.
void transfer_into(const Tensor& dst, const Tensor& src, bool non_blocking = false);
Tensor from_host(std::span<const int64_t> values, Device device);
// 0, 1, ..., n-1 as int64.
Tensor counting(int64_t n, Device device);
// Contiguous fresh memory seen in another shape, or any tensor whose strides allow it; untracked.
Tensor raw_view(const Tensor& t, IntSpan sizes);
Tensor raw_narrow(const Tensor& t, int64_t dim, int64_t start, int64_t length);

} // namespace ts
