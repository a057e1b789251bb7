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

bool is_channels_last(const Tensor& t) { return !t.is_contiguous() && has_channels_innermost(t); }

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
