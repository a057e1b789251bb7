// Float32 convolution plane by plane, for few channels: neighbouring positions of a row share a register, where the
// libraries' blocks of 8 or 16 channels would be mostly empty.
#ifndef TESSERACK_CPU_CONV_PLANES_H
#define TESSERACK_CPU_CONV_PLANES_H

#include "aligned_buffer.h"
#include "conv.h"
#include "copy/strips.h"
#include "math/simd_f32.h"

#ifdef TESSERACK_CPU_SIMD_F32
#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace planes {

using simd::kLanes;
using simd::Vector;

// Rows of all channels of an image under some rows of output, with zeros around them; a row ends in so many that whole
// registers may be read at every tap.
class Padded {
public:
  explicit Padded(const ConvGeometry& g)
      : g_(g), vectors_(ceil_div(g.out[2], kLanes)), width_(vectors_ * kLanes + (g.kernel[2] - 1) * g.dilation[2]) {}

  int64_t vectors() const { return vectors_; } // of a row of output
  int64_t width() const { return width_; }
  int64_t input_rows(int64_t rows) const { return (rows - 1) * g_.stride[1] + (g_.kernel[1] - 1) * g_.dilation[1] + 1; }
  // Of output, whose input is at most so many elements, if more than a row's.
  int64_t rows_within(int64_t elements) const {
    const int64_t row = g_.in_channels * width_ * g_.stride[1];
    return std::min(g_.out[1], std::max<int64_t>(1, elements / row - g_.kernel[1] * g_.dilation[1]));
  }
  int64_t elements(int64_t rows) const { return g_.in_channels * input_rows(rows) * width_; }

  // What output rows [first, first + rows) of an image read, channel by channel.
  void fill(const float* image, int64_t first, int64_t rows, float* to) const {
    const int64_t top = first * g_.stride[1] - g_.padding[1], height = input_rows(rows);
    const int64_t left = std::min(g_.padding[2], width_), count = std::clamp<int64_t>(width_ - left, 0, g_.in[2]);
    for (int64_t c = 0; c < g_.in_channels; ++c)
      for (int64_t y = top; y < top + height; ++y, to += width_) {
        if (y < 0 || y >= g_.in[1]) {
          std::fill_n(to, width_, 0.0f);
          continue;
        }
        std::fill_n(to, left, 0.0f);
        std::copy_n(image + (c * g_.in[1] + y) * g_.in[2], count, to + left);
        std::fill_n(to + left + count, width_ - left - count, 0.0f);
      }
  }

private:
  const ConvGeometry& g_;
  int64_t vectors_, width_;
};

// Calls f(std::integral_constant<int, n>) for the n of 1 to Most that is given.
template <int Most, class F> void with_count(int64_t n, const F& f) {
  if constexpr (Most == 1)
    f(std::integral_constant<int, 1>{});
  else if (n == Most)
    f(std::integral_constant<int, Most>{});
  else
    with_count<Most - 1>(n, f);
}

} // namespace planes
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_CONV_PLANES_H
