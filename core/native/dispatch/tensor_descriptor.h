// A tensor as the ABI shows it to kernels.
#pragma once
#include "tensor/tensor.h"
#include <tesserack/abi.h>

namespace ts {

// Fills all but the geometry and the flags.
inline void describe_memory(const TensorImpl& i, ts_tensor& d) {
  d.struct_size = sizeof(ts_tensor);
  d.handle = i.storage ? i.storage->handle : nullptr;
  d.byte_offset = i.byte_offset;
  d.dtype = static_cast<int32_t>(i.dtype);
  d.reserved = 0;
  d.scalar.i = 0;
}

// Fills all but the flags other than TS_T_CONTIGUOUS, which is added.
inline void describe_impl(const TensorImpl& i, ts_tensor& d) {
  describe_memory(i, d);
  d.numel = i.numel;
  d.sizes = i.sizes_data();
  d.strides = i.strides_data();
  d.ndim = i.ndim;
  if (i.has(TensorImpl::kContiguous)) d.flags |= TS_T_CONTIGUOUS;
}

} // namespace ts
