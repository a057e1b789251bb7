// Geometry shared by the pooling kernels. Planes are (H, W); images lie either as planes or channels-last.
#ifndef TESSERACK_CPU_POOL_WINDOW_H
#define TESSERACK_CPU_POOL_WINDOW_H

#include "copy/box.h"
#include "dtype_switch.h"

#include <algorithm>
#include <span>
#include <vector>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

// One spatial dimension: output o covers inputs o * stride - padding + t * dilation for taps t < kernel.
struct Axis {
  int64_t in, out, kernel, stride, padding, dilation;

  int64_t at(int64_t o, int64_t tap) const { return o * stride - padding + tap * dilation; }
  bool inside(int64_t o, int64_t tap) const { return at(o, tap) >= 0 && at(o, tap) < in; }
  // Outputs [first, last) whose tap falls inside the input.
  int64_t first(int64_t tap) const {
    const int64_t before = padding - tap * dilation;
    return before <= 0 ? 0 : std::min(out, (before + stride - 1) / stride);
  }
  int64_t last(int64_t tap) const {
    const int64_t room = in - 1 + padding - tap * dilation;
    return room < 0 ? 0 : std::min(out, room / stride + 1);
  }
};

// A 3- or 4-dimensional image tensor as planes with strides.
struct Planes {
  int64_t batch, channels, batch_stride, channel_stride, row_stride, col_stride;

  explicit Planes(const backend::Tensor& t) {
    const int d = t.ndim();
    if (d != 3 && d != 4)
      backend::fail(TS_ERROR, "pooling: expected a 3- or 4-dimensional tensor, got %d dimensions", d);
    batch = d == 4 ? t.size(0) : 1;
    batch_stride = d == 4 ? t.stride(0) : 0;
    channels = t.size(d - 3);
    channel_stride = t.stride(d - 3), row_stride = t.stride(d - 2), col_stride = t.stride(d - 1);
  }
  int64_t plane(int64_t index) const { return index / channels * batch_stride + index % channels * channel_stride; }
  bool channels_innermost() const { return channel_stride == 1 && channels > 1 && col_stride != 1; }
};

// Sums of the gradients of one plane, or of several channels of a channels-last image: in the output itself where its
// type and layout allow, else in a buffer. Pixel p of channel c is at(p)[c * channel_step()].
template <class T> class GradientSums {
public:
  using A = Accumulator<T>;
  GradientSums(const Planes& to, int64_t height, int64_t width) : to_(to), height_(height), width_(width) {
    direct_ = std::is_same_v<T, A> && to.row_stride == width * to.col_stride;
  }
  void start(T* target, int64_t channels) {
    target_ = target, channels_ = channels;
    if constexpr (std::is_same_v<T, A>) {
      if (direct_) base_ = target, pixel_ = to_.col_stride, channel_ = channels == 1 ? 1 : to_.channel_stride;
    }
    if (!direct_) {
      buffer_.resize(static_cast<size_t>(height_ * width_ * channels));
      base_ = buffer_.data(), pixel_ = channels, channel_ = 1;
    }
    if (pixel_ == channels) { // no gaps between pixels
      std::fill_n(base_, height_ * width_ * channels, A{0});
    } else {
      for (int64_t p = 0; p < height_ * width_; ++p)
        for (int64_t c = 0; c < channels; ++c) at(p)[c * channel_] = A{0};
    }
  }
  A* at(int64_t pixel) const { return base_ + pixel * pixel_; }
  int64_t pixel_step() const { return pixel_; }
  int64_t channel_step() const { return channel_; }
  void finish() const {
    if (direct_) return;
    if (is_half<T> && channels_ == 1 && to_.row_stride == width_ * to_.col_stride) { // halves are narrowed in vectors
      const Box box{1, height_ * width_, 0, to_.col_stride};
      return storer<float>(dtype_of<T>())(reinterpret_cast<char*>(target_), reinterpret_cast<const float*>(base_), box);
    }
    for (int64_t i = 0; i < height_; ++i)
      for (int64_t j = 0; j < width_; ++j)
        for (int64_t c = 0; c < channels_; ++c)
          target_[i * to_.row_stride + j * to_.col_stride + c * to_.channel_stride] = store<T>(at(i * width_ + j)[c]);
  }

private:
  Planes to_;
  int64_t height_, width_, channels_ = 0, pixel_ = 0, channel_ = 0;
  bool direct_;
  T* target_ = nullptr;
  A* base_ = nullptr;
  std::vector<A> buffer_;
};

// Channels dealt with together in a channels-last image: enough for long vectors, few enough to share among threads.
constexpr int64_t kChannelBlock = 64;

// Element d (0: height, 1: width) of a list of one or two; `fallback` when the list is empty.
inline int64_t pair_at(std::span<const int64_t> list, size_t d, int64_t fallback) {
  return list.empty() ? fallback : list[std::min(d, list.size() - 1)];
}

} // namespace TESSERACK_VARIANT
using namespace TESSERACK_VARIANT;
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_POOL_WINDOW_H
