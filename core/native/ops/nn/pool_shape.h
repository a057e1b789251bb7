// Geometry of 2-d pooling windows, over input (N, C, H, W) or (C, H, W).
#pragma once
#include "ops/nn/conv_shape.h"

namespace ts {

struct PoolShape {
  Dims kernel, stride, padding, dilation; // two each
  Dims input, output;                     // whole sizes
  IntSpan input_plane() const { return input.span().last(2); }
  IntSpan output_plane() const { return output.span().last(2); }
};

// torch's rules: an empty stride is the kernel, padding is at most half of it, and with ceil_mode a last window may
// reach beyond the padded input but must begin inside input or left padding. RuntimeError otherwise.
PoolShape pool_shape(IntSpan input, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation, bool ceil_mode,
                     const char* op);

// Windows (N, C, KH, KW, OH, OW) over a copy padded with `fill`, with room for windows that reach beyond it.
Tensor pool_windows(const Tensor& input, const PoolShape& s, double fill);
// (N, C, KH, KW, OH, OW) added up into (N, C, H, W): the transpose of pool_windows.
Tensor sum_pool_windows(const Tensor& windows, const PoolShape& s);

} // namespace ts
