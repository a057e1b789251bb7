// Bands of channels-last images for convolution by tiles: the input under some output rows, with its padding.
#ifndef TESSERACK_CPU_CONV_BAND_H
#define TESSERACK_CPU_CONV_BAND_H

#include "aligned_buffer.h"
#include "conv.h"
#include "copy/strips.h"

#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace conv_detail {

struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// Output rows [first, first + rows) at `depth` of an image.
struct Band {
  int64_t image, depth, first, rows;
};

class Bands {
public:
  // At least so many, if there are rows enough.
  Bands(const ConvGeometry& geometry, const float* input, int64_t least) : g_(geometry), input_(input) {
    row_ = ((g_.out[2] - 1) * g_.stride[2] + reach(2)) * g_.in_channels;
    const bool padded = g_.padding[0] != 0 || g_.padding[1] != 0 || g_.padding[2] != 0;
    in_place_ = !padded && row_ <= g_.in[2] * g_.in_channels;
    const int64_t fit = std::max<int64_t>(1, (kFits / row_ - reach(1)) / g_.stride[1] + 1);
    height_ = std::min({g_.out[1], fit, std::max<int64_t>(1, g_.batch * g_.out[0] * g_.out[1] / least)});
    per_slice_ = ceil_div(g_.out[1], height_);
  }

  int64_t count() const { return g_.batch * g_.out[0] * per_slice_; }
  int64_t height() const { return height_; }

  Band at(int64_t i) const {
    const int64_t first = i % per_slice_ * height_;
    return {i / per_slice_ / g_.out[0], i / per_slice_ % g_.out[0], first, std::min(height_, g_.out[1] - first)};
  }

  // Elements from one row of input to the next.
  int64_t line() const { return in_place_ ? g_.in[2] * g_.in_channels : row_; }

  // The taps of the kernel's dimension d that read inside the image for one output.
  Range taps_inside(int d, int64_t out) const {
    const int64_t at = input_at(d, out, 0), step = g_.dilation[d];
    const int64_t end = at >= g_.in[d] ? 0 : std::min(g_.kernel[d], ceil_div(g_.in[d] - at, step));
    return {at >= 0 ? 0 : std::min(end, ceil_div(-at, step)), end};
  }

  // Copies a band where it needs padding; it holds until the next call with this buffer.
  const float* fill(const Band& band, AlignedBuffer& buffer) const {
    if (in_place_) return nullptr;
    const int64_t top = input_at(1, band.first, 0), rows = input_rows(band.rows);
    float* const to = buffer.get(g_.kernel[0] * input_rows(height_) * row_);
    const Range slices = taps_inside(0, band.depth);
    for (int64_t z = slices.begin; z < slices.end; ++z)
      for (int64_t y = std::max<int64_t>(0, -top); y < std::min(rows, g_.in[1] - top); ++y)
        pad(image_row(band, z, top + y), to + (z * rows + y) * row_);
    return to;
  }

  // The band's input row under tap y of output row r, at slice z of the kernel: only where both are inside the image.
  const float* row(const Band& band, const float* filled, int64_t z, int64_t y, int64_t r) const {
    const int64_t at = r * g_.stride[1] + y * g_.dilation[1];
    return filled ? filled + (z * input_rows(band.rows) + at) * row_
                  : image_row(band, z, input_at(1, band.first, 0) + at);
  }

private:
  static constexpr int64_t kFits = 1 << 16; // elements of input that stay in the L2 cache beside weights

  const ConvGeometry& g_;
  const float* input_;
  int64_t row_; // elements of a padded row
  int64_t height_, per_slice_;
  bool in_place_;

  // Input positions that one output position covers.
  int64_t reach(int d) const { return (g_.kernel[d] - 1) * g_.dilation[d] + 1; }
  int64_t input_rows(int64_t rows) const { return (rows - 1) * g_.stride[1] + reach(1); }
  int64_t input_at(int d, int64_t out, int64_t tap) const {
    return out * g_.stride[d] - g_.padding[d] + tap * g_.dilation[d];
  }
  const float* image_row(const Band& band, int64_t z, int64_t y) const {
    return input_ + ((band.image * g_.in[0] + input_at(0, band.depth, z)) * g_.in[1] + y) * g_.in[2] * g_.in_channels;
  }

  void pad(const float* from, float* to) const {
    const int64_t before = std::min(g_.padding[2] * g_.in_channels, row_);
    const int64_t present = std::min(g_.in[2] * g_.in_channels, row_ - before);
    std::fill_n(to, before, 0.0f);
    std::copy_n(from, present, to + before);
    std::fill(to + before + present, to + row_, 0.0f);
  }
};

} // namespace conv_detail
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_CONV_BAND_H
