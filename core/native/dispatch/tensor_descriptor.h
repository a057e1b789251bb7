// A tensor as the ABI shows it to kernels.
#pragma once
#include "tensor/tensor.h"
#include <tesserack/abi.h>

namespace ts {

// Fills all but struct_size and the flags other than TS_T_CONTIGUOUS, which is added.
inline void describe_impl(const TensorImpl& i, ts_tensor& d) {
  d.handle = i.storage ? i.storage->handle : nullptr;
  d.byte_offset = i.byte_offset;
  d.numel = i.numel;
  d.sizes = i.sizes_data();
  d.strides = i.strides_data();
  d.dtype = static_cast<int32_t>(i.dtype);
  d.ndim = i.ndim;
  if (i.has(TensorImpl::kContiguous)) d.flags |= TS_T_CONTIGUOUS;
}

} // namespace ts
