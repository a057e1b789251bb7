#include "ops/nn/pool_shape.h"
#include "ops/common/raw.h"
#include <limits>

namespace ts {
namespace {

int64_t output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  int64_t size = room >= 0 ? room / stride + 1 : 0;
  // The last window has to begin inside the input or its left padding.
  if (ceil_mode && (size - 1) * stride >= input + padding) --size;
  return size;
}

// As a convolution over a wider padding, so that windows hanging over the end stay inside.
ConvShape with_overhang(const PoolShape& s) {
  ConvShape c{s.stride, s.padding, s.dilation, 1};
  for (size_t d = 0; d < 2; ++d) {
    int64_t reach = (s.output_plane()[d] - 1) * s.stride[d] + s.dilation[d] * (s.kernel[d] - 1) + 1;
    c.padding[d] = std::max(s.padding[d], reach - s.padding[d] - s.input_plane()[d]);
  }
  return c;
}
Dims four(IntSpan sizes) {
  Dims out(sizes);
  if (sizes.size() == 3) out.insert(out.begin(), 1);
  return out;
}
// The windows start at s.padding before the input, wherever the padded copy starts.
Tensor pool_shape_shifted(const Tensor& padded, const PoolShape& s, const ConvShape& c) {
  int64_t offset = 0;
  Dims sizes(padded.sizes());
  for (size_t d = 0; d < 2; ++d) {
    offset += (c.padding[d] - s.padding[d]) * padded.strides()[d + 2];
    sizes[d + 2] -= c.padding[d] - s.padding[d];
  }
  return alias(padded, sizes, padded.strides(), padded->byte_offset + offset * padded.item_size());
}

} // namespace

PoolShape pool_shape(IntSpan input, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation, bool ceil_mode,
                     const char* op) {
  TS_CHECK(input.size() == 3 || input.size() == 4, op, ": expected an input (N, C, H, W) or (C, H, W), got shape ",
           input);
  TS_CHECK(input[input.size() - 1] > 0 && input[input.size() - 2] > 0 && input[input.size() - 3] > 0, op,
           ": Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got: ", input);
  constexpr int64_t kLimit = int64_t{1} << 31;
  PoolShape s{per_dim(kernel, 2, op, "kernel_size"),
              per_dim(stride.empty() ? kernel : stride, 2, op, "stride"),
              per_dim(padding, 2, op, "padding"),
              per_dim(dilation, 2, op, "dilation"),
              Dims(input),
              Dims(input)};
  for (size_t d = 0; d < 2; ++d) {
    TS_CHECK(s.kernel[d] > 0 && s.kernel[d] < kLimit, op, ": kernel size should be greater than zero, but got ",
             kernel);
    TS_CHECK(s.stride[d] > 0 && s.stride[d] < kLimit, op, ": stride must be greater than zero, but got ", stride);
    TS_CHECK(s.dilation[d] > 0 && s.dilation[d] < kLimit, op, ": dilation should be greater than zero, but got ",
             dilation);
    TS_CHECK(s.padding[d] >= 0 && s.padding[d] <= ((s.kernel[d] - 1) * s.dilation[d] + 1) / 2, op,
             ": pad should be at most half of effective kernel size, but got pad=", s.padding[d],
             ", kernel_size=", s.kernel[d], " and dilation=", s.dilation[d]);
    size_t at = input.size() - 2 + d;
    s.output[at] = output_size(input[at], s.kernel[d], s.stride[d], s.padding[d], s.dilation[d], ceil_mode);
    TS_CHECK(s.output[at] > 0, op, ": Given input size: ", input, ", kernel ", IntSpan(s.kernel),
             ", calculated output size is too small in dimension ", at);
  }
  return s;
}

Tensor pool_windows(const Tensor& input, const PoolShape& s, double fill) {
  Tensor x = input.ndim() == 4 ? input
                               : alias(
                                     input, four(input.sizes()),
                                     [&] {
                                       Dims strides(input.strides());
                                       strides.insert(strides.begin(), 0);
                                       return strides;
                                     }(),
                                     input->byte_offset);
  ConvShape c = with_overhang(s);
  return window_view(pool_shape_shifted(padded_copy(x, c, fill), s, c), c, s.kernel, s.output_plane());
}

Tensor sum_pool_windows(const Tensor& windows, const PoolShape& s) {
  // Summing needs the windows at the padded copy's start: the surplus padding in front becomes an offset of zero
  // when the input is seen as that much larger.
  ConvShape c = with_overhang(s), exact{s.stride, s.padding, s.dilation, 1};
  Dims grown = four(s.input);
  for (size_t d = 0; d < 2; ++d) grown[d + 2] += c.padding[d] - s.padding[d];
  Tensor sums = sum_windows(windows, exact, s.kernel, grown);
  Dims sizes = four(s.input);
  return reshaped(raw_contiguous(alias(sums, sizes, sums.strides(), sums->byte_offset)), s.input);
}

} // namespace ts
