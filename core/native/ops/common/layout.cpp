#include "ops/common/layout.h"
#include "dispatch/op_handles.h"
#include "ops/common/raw.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

bool has_channels_innermost(const Tensor& t) {
  return (t.ndim() == 4 && t.is_contiguous(MemoryFormat::ChannelsLast)) ||
         (t.ndim() == 5 && t.is_contiguous(MemoryFormat::ChannelsLast3d));
}

} // namespace

MemoryFormat suggested_format(IntSpan sizes, IntSpan strides) {
  size_t ndim = sizes.size();
  if ((ndim != 4 && ndim != 5) || strides[1] == 0) return MemoryFormat::Contiguous;
  int64_t least = 0; // what the next dim's stride has to reach
  auto grows = [&](size_t d) {
    if (sizes[d] == 0 || strides[d] < least) return false;
    if (d == 0 && least == strides[1]) return false; // nothing told the formats apart
    least = sizes[d] > 1 ? strides[d] * sizes[d] : strides[d];
    return true;
  };
  if (!grows(1)) return MemoryFormat::Contiguous;
  for (size_t d = ndim; d-- > 2;)
    if (!grows(d)) return MemoryFormat::Contiguous;
  if (!grows(0)) return MemoryFormat::Contiguous;
  return ndim == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
}

bool is_channels_last(const Tensor& t) {
  return suggested_format(t.sizes(), t.strides()) != MemoryFormat::Contiguous ||
         (!t.is_contiguous() && has_channels_innermost(t));
}

bool lies_in_layout(const Tensor& t, bool channels_last) {
  return channels_last ? has_channels_innermost(t) : t.is_contiguous();
}

Tensor in_layout(const Tensor& t, bool channels_last) {
  if (!channels_last) return raw_contiguous(t);
  if (has_channels_innermost(t)) return t;
  Tensor out = empty_strided_tensor(t.sizes(), channels_last_strides(t.sizes()), t.dtype(), t.device());
  raw_copy(out, t);
  return out;
}

Tensor as_laid_out(const Tensor& like, const Tensor& result) {
  if (!is_channels_last(like) || has_channels_innermost(result)) return result;
  return ops::contiguous(result, result.ndim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d);
}

Tensor outline_in_layout(IntSpan sizes, DType dtype, Device device, bool channels_last) {
  checked_numel(sizes);
  return channels_last ? outline_strided(sizes, channels_last_strides(sizes), dtype, device)
                       : outline(sizes, dtype, device);
}

} // namespace ts
