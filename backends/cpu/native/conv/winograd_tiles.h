// Where the tiles of convolution by F(2x2, 3x3) lie in images of either layout.
#ifndef TESSERACK_CPU_WINOGRAD_TILES_H
#define TESSERACK_CPU_WINOGRAD_TILES_H

#include "aligned_buffer.h"
#include "conv.h"
#include "copy/strips.h"
#include "winograd.h"

#ifdef TESSERACK_CPU_SIMD_F32
#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace winograd {

inline int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

// Tiles side by side: the first one's output position.
struct Segment {
  int64_t image, y, x, tiles;
};

// All tiles of a batch, row by row, in segments of one width (the last of a row may be shorter).
class Segments {
public:
  Segments(const ConvGeometry& g, int64_t most)
      : rows_(ceil_div(g.out[1], kStep)), cols_(ceil_div(g.out[2], kStep)),
        width_(ceil_div(cols_, ceil_div(cols_, most))), per_row_(ceil_div(cols_, width_)), batch_(g.batch) {}

  int64_t width() const { return width_; }
  int64_t count() const { return batch_ * rows_ * per_row_; }
  // The tiles of the segments in front of segment i.
  int64_t tiles_before(int64_t i) const { return i / per_row_ * cols_ + i % per_row_ * width_; }
  Segment at(int64_t i) const {
    const int64_t row = i / per_row_, first = i % per_row_ * width_;
    return {row / rows_, row % rows_ * kStep, first * kStep, std::min(width_, cols_ - first)};
  }

private:
  int64_t rows_, cols_, width_, per_row_, batch_;
};

// Dense images of one layout.
struct Images {
  float* data;
  int64_t channels, height, width;
  bool channels_last;

  int64_t image() const { return channels * height * width; }
  float* pixel(int64_t image_index, int64_t y, int64_t x) const {
    return data + image_index * image() + (y * width + x) * channels;
  }
  float* plane(int64_t image_index, int64_t channel) const {
    return data + image_index * image() + channel * height * width;
  }
};

inline Images inputs_of(const TiledConv& t) {
  const ConvGeometry& g = t.geometry;
  return {t.input, g.in_channels, g.in[1], g.in[2], g.channels_last};
}
inline Images outputs_of(const TiledConv& t) {
  const ConvGeometry& g = t.geometry;
  return {t.output, g.out_channels, g.out[1], g.out[2], g.channels_last};
}

// A tile's positions, channels side by side; strides in elements.
struct Tile {
  const float* data;
  int64_t row, col;
};

// Reads tiles of Size x Size positions. What sticks out of the image is zero.
template <int64_t Size> class TileReader {
public:
  explicit TileReader(const Images& images) : images_(images), depth_(round_up(images.channels, kLanes)) {}

  // `tiles` tiles side by side from (y, x) on, which may lie outside.
  void seek(int64_t image, int64_t y, int64_t x, int64_t tiles) {
    y_ = y, x_ = x;
    top_ = std::clamp<int64_t>(y, 0, images_.height), bottom_ = std::clamp<int64_t>(y + Size, 0, images_.height);
    left_ = std::clamp<int64_t>(x, 0, images_.width);
    right_ = std::clamp<int64_t>(x + (tiles - 1) * kStep + Size, 0, images_.width);
    if (images_.channels_last) {
      from_ = images_.pixel(image, top_, left_);
      col_ = images_.channels, row_ = images_.width * col_;
      return;
    }
    col_ = depth_, row_ = (right_ - left_) * depth_;
    float* const to = rows_.get((bottom_ - top_) * row_);
    for (int64_t line = top_; line < bottom_; ++line) gather_line(image, line, to + (line - top_) * row_);
    from_ = to;
  }

  Tile tile(int64_t i) {
    const int64_t x = x_ + i * kStep;
    if (top_ == y_ && bottom_ == y_ + Size && left_ <= x && x + Size <= right_) return {at(y_, x), row_, col_};
    float* const to = edge_.get(Size * Size * depth_);
    for (int64_t j = 0; j < Size * Size; ++j) {
      const int64_t y = y_ + j / Size, here = x + j % Size;
      float* const position = to + j * depth_;
      if (top_ <= y && y < bottom_ && left_ <= here && here < right_)
        std::copy_n(at(y, here), images_.channels, position);
      else
        std::fill_n(position, images_.channels, 0.0f);
    }
    return {to, Size * depth_, depth_};
  }

private:
  Images images_;
  int64_t depth_;
  int64_t y_ = 0, x_ = 0, top_ = 0, bottom_ = 0, left_ = 0, right_ = 0; // the last four: what is inside the image
  const float* from_ = nullptr;                                         // position (top_, left_)
  int64_t row_ = 0, col_ = 0;
  AlignedBuffer rows_, edge_;

  const float* at(int64_t y, int64_t x) const { return from_ + (y - top_) * row_ + (x - left_) * col_; }

  // A line of all planes, position after position.
  void gather_line(int64_t image, int64_t line, float* to) const {
    for (int64_t c = 0; c < images_.channels; c += kLanes)
      for (int64_t x = left_; x < right_; x += kLanes)
        simd::transpose_block(images_.plane(image, c) + line * images_.width + x, images_.height * images_.width,
                              std::min(kLanes, images_.channels - c), std::min(kLanes, right_ - x),
                              to + (x - left_) * depth_ + c, depth_);
  }
};

// body(tile's place, channels from here on, load) for each register of a tile's channels; load(y, x) is one position's.
template <class Body> inline void each_register(const Tile& tile, int64_t channels, const Body& body) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes)
    body(c, [&](int y, int x) { return simd::load(tile.data + y * tile.row + x * tile.col + c); });
  if (c == channels) return;
  const simd::Mask mask = simd::first(channels - c);
  body(c, [&](int y, int x) { return simd::load(tile.data + y * tile.row + x * tile.col + c, mask); });
}

} // namespace winograd
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_WINOGRAD_TILES_H
