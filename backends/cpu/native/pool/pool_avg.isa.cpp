// avg_pool2d and its gradient.
#include "pool_window.h"
#include "threads.h"

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kPoolGrain = 8192; // window taps worth a thread
constexpr uint64_t kFloats =
    uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16 | uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;

// Geometry of either direction; params are read from `first` on: kernel, stride, padding, ceil, include, override.
struct AvgWindow {
  Axis h, w;
  bool include_padding;
  int64_t divisor; // 0: the size of the window

  AvgWindow(const Call& call, const Tensor& input, const Tensor& output, int first) {
    const auto kernel = call.param(first).as_ints(), stride = call.param(first + 1).as_ints(),
               padding = call.param(first + 2).as_ints();
    for (size_t d = 0; d < 2; ++d) {
      const int in_dim = input.ndim() - 2 + static_cast<int>(d);
      const int64_t k = pair_at(kernel, d, 1);
      (d == 0 ? h : w) =
          Axis{input.size(in_dim), output.size(in_dim), k, pair_at(stride, d, k), pair_at(padding, d, 0), 1};
    }
    include_padding = call.param(first + 4).as_bool();
    divisor = call.param(first + 5).as_int_or(0);
  }

  // Extent of window o; with padding counted it may reach one padding beyond the input.
  int64_t extent(const Axis& axis, int64_t o) const {
    const int64_t begin = axis.at(o, 0), end = std::min(begin + axis.kernel, axis.in + axis.padding);
    if (include_padding) return end - begin;
    return std::max<int64_t>(0, std::min(end, axis.in) - std::max<int64_t>(begin, 0));
  }
  double scale(int64_t oh, int64_t ow) const {
    const int64_t size = divisor != 0 ? divisor : extent(h, oh) * extent(w, ow);
    return size == 0 ? 0.0 : 1.0 / static_cast<double>(size);
  }
  int64_t taps() const { return h.kernel * w.kernel; }
};

template <class A> std::vector<A> row_scales(const AvgWindow& window, int64_t oh) {
  std::vector<A> scales(static_cast<size_t>(window.w.out));
  for (int64_t ow = 0; ow < window.w.out; ++ow) scales[static_cast<size_t>(ow)] = static_cast<A>(window.scale(oh, ow));
  return scales;
}

// columns += a row of the input: neighbours, for vectors.
template <class A, class T>
__attribute__((noinline)) void add_row(A* __restrict columns, const T* __restrict line, int64_t n) {
  for (int64_t i = 0; i < n; ++i) columns[i] += load(line[i]);
}

// The rows of a window are added first, then each window's columns.
template <class T>
void average_row(const AvgWindow& window, const T* in, const Planes& from, T* out, int64_t out_step, int64_t oh,
                 std::vector<Accumulator<T>>& sums) {
  std::fill(sums.begin(), sums.end(), Accumulator<T>{0});
  Accumulator<T>* const columns = sums.data() + window.w.out;
  for (int64_t kh = 0; kh < window.h.kernel; ++kh) {
    if (!window.h.inside(oh, kh)) continue;
    const T* line = in + window.h.at(oh, kh) * from.row_stride;
    if (from.col_stride == 1)
      add_row(columns, line, window.w.in);
    else
      for (int64_t i = 0; i < window.w.in; ++i) columns[i] += load(line[i * from.col_stride]);
  }
  for (int64_t kw = 0; kw < window.w.kernel; ++kw) {
    const int64_t first = window.w.first(kw), last = window.w.last(kw);
    const Accumulator<T>* column = columns + window.w.at(first, kw);
    for (int64_t j = first; j < last; ++j, column += window.w.stride) sums[static_cast<size_t>(j)] += *column;
  }
  const auto scales = row_scales<Accumulator<T>>(window, oh);
  for (int64_t ow = 0; ow < window.w.out; ++ow)
    out[ow * out_step] = store<T>(sums[static_cast<size_t>(ow)] * scales[static_cast<size_t>(ow)]);
}

// One output row of a channels-last image, all channels of a pixel together.
template <class T>
void average_pixels(const AvgWindow& window, const T* in, const Planes& from, T* out, int64_t out_step, int64_t oh,
                    std::vector<Accumulator<T>>& sums) {
  for (int64_t ow = 0; ow < window.w.out; ++ow, out += out_step) {
    std::fill(sums.begin(), sums.end(), Accumulator<T>{0});
    for (int64_t kh = 0; kh < window.h.kernel; ++kh) {
      for (int64_t kw = 0; kw < window.w.kernel; ++kw) {
        if (!window.h.inside(oh, kh) || !window.w.inside(ow, kw)) continue;
        const T* pixel = in + window.h.at(oh, kh) * from.row_stride + window.w.at(ow, kw) * from.col_stride;
        for (size_t c = 0; c < sums.size(); ++c) sums[c] += load(pixel[c]);
      }
    }
    const auto scale = static_cast<Accumulator<T>>(window.scale(oh, ow));
    for (size_t c = 0; c < sums.size(); ++c) out[c] = store<T>(sums[c] * scale);
  }
}

template <class T> void average(const Call& call) {
  const Tensor in = call.in(0), out = call.out(0);
  const AvgWindow window(call, in, out, 0);
  const Planes from(in), to(out);
  const bool by_channel = from.channels_innermost() && to.channels_innermost();
  const int64_t lines = from.batch * (by_channel ? 1 : from.channels) * window.h.out;
  const int64_t line_work = window.w.out * window.taps() * (by_channel ? from.channels : 1);
  parallel_for(0, lines, std::max<int64_t>(1, kPoolGrain / line_work), [&](int64_t begin, int64_t end) {
    std::vector<Accumulator<T>> sums(static_cast<size_t>(by_channel ? from.channels : window.w.out + window.w.in));
    for (int64_t line = begin; line < end; ++line) {
      const int64_t image = line / window.h.out, oh = line % window.h.out;
      if (by_channel) {
        average_pixels<T>(window, in.data<T>() + image * from.batch_stride, from,
                          out.data<T>() + image * to.batch_stride + oh * to.row_stride, to.col_stride, oh, sums);
      } else {
        average_row<T>(window, in.data<T>() + from.plane(image), from,
                       out.data<T>() + to.plane(image) + oh * to.row_stride, to.col_stride, oh, sums);
      }
    }
  });
}

void avg_pool2d(const Call& call) {
  switch_float("avg_pool2d", call.in(0).dtype(), [&](auto tag) { average<typename decltype(tag)::type>(call); });
}

// Adds one plane's gradients, a row of outputs at a time: what each column gets of it, to every row of its windows.
template <class T>
void spread_plane(const AvgWindow& window, const T* grad, const Planes& from, const GradientSums<T>& sums) {
  using A = Accumulator<T>;
  std::vector<A> columns(static_cast<size_t>(window.w.in));
  for (int64_t oh = 0; oh < window.h.out; ++oh) {
    const auto scales = row_scales<A>(window, oh);
    const T* line = grad + oh * from.row_stride;
    std::fill(columns.begin(), columns.end(), A{0});
    for (int64_t kw = 0; kw < window.w.kernel; ++kw) {
      const int64_t first = window.w.first(kw), last = window.w.last(kw);
      A* target = columns.data() + window.w.at(first, kw);
      for (int64_t ow = first; ow < last; ++ow, target += window.w.stride)
        *target += load(line[ow * from.col_stride]) * scales[static_cast<size_t>(ow)];
    }
    for (int64_t kh = 0; kh < window.h.kernel; ++kh) {
      if (!window.h.inside(oh, kh)) continue;
      A* const row = sums.at(window.h.at(oh, kh) * window.w.in);
      if (sums.pixel_step() == 1)
        add_row(row, columns.data(), window.w.in);
      else
        for (int64_t i = 0; i < window.w.in; ++i) row[i * sums.pixel_step()] += columns[static_cast<size_t>(i)];
    }
  }
}

// Adds the gradients of some channels of a channels-last image, pixel by pixel.
template <class T>
void spread_pixels(const AvgWindow& window, const T* grad, const Planes& from, int64_t channels,
                   const GradientSums<T>& sums) {
  const int64_t from_step = from.channel_stride, to_step = sums.channel_step();
  for (int64_t oh = 0; oh < window.h.out; ++oh) {
    for (int64_t ow = 0; ow < window.w.out; ++ow) {
      const auto scale = static_cast<Accumulator<T>>(window.scale(oh, ow));
      const T* pixel = grad + oh * from.row_stride + ow * from.col_stride;
      for (int64_t kh = 0; kh < window.h.kernel; ++kh) {
        for (int64_t kw = 0; kw < window.w.kernel; ++kw) {
          if (!window.h.inside(oh, kh) || !window.w.inside(ow, kw)) continue;
          Accumulator<T>* target = sums.at(window.h.at(oh, kh) * window.w.in + window.w.at(ow, kw));
          if (from_step == 1 && to_step == 1) {
            for (int64_t c = 0; c < channels; ++c) target[c] += load(pixel[c]) * scale;
          } else {
            for (int64_t c = 0; c < channels; ++c) target[c * to_step] += load(pixel[c * from_step]) * scale;
          }
        }
      }
    }
  }
}

template <class T> void average_backward(const Call& call) {
  const Tensor out = call.out(0), grad = call.in(0);
  const AvgWindow window(call, out, grad, 1);
  const Planes to(out), from(grad);
  const int64_t together = to.channels_innermost() ? std::min(kChannelBlock, to.channels) : 1;
  const int64_t blocks = (to.channels + together - 1) / together;
  const int64_t work = (window.h.out * window.w.out * window.taps() + window.h.in * window.w.in) * together;
  parallel_for(0, to.batch * blocks, std::max<int64_t>(1, kPoolGrain / work), [&](int64_t begin, int64_t end) {
    GradientSums<T> sums(to, window.h.in, window.w.in);
    for (int64_t job = begin; job < end; ++job) {
      const int64_t image = job / blocks, first = job % blocks * together,
                    count = std::min(together, to.channels - first);
      const T* g = grad.data<T>() + image * from.batch_stride + first * from.channel_stride;
      sums.start(out.data<T>() + image * to.batch_stride + first * to.channel_stride, count);
      count == 1 ? spread_plane<T>(window, g, from, sums) : spread_pixels<T>(window, g, from, count, sums);
      sums.finish();
    }
  });
}

// Schema: grad, input_size, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override.
void avg_pool2d_backward(const Call& call) {
  switch_float("avg_pool2d_backward", call.in(0).dtype(),
               [&](auto tag) { average_backward<typename decltype(tag)::type>(call); });
}

} // namespace

TS_KERNEL_AS("avg_pool2d", avg_pool2d, kFloats, TS_L_CHANNELS_LAST);
TS_KERNEL_AS("avg_pool2d_backward", avg_pool2d_backward, kFloats, TS_L_CHANNELS_LAST);

} // namespace tesserack::cpu
