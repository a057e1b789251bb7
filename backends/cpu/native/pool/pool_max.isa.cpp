// max_pool2d_with_indices and its gradient. NaN wins; of equal values the first in row-major order.
#include "pool_window.h"
#include "reduce/fold.h"
#include "threads.h"

#include <cstring>
#include <limits>
#include <utility>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kPoolGrain = 8192; // window taps worth a thread

template <class A> constexpr A lowest() {
  if constexpr (std::is_floating_point_v<A>) return -std::numeric_limits<A>::infinity();
  return std::numeric_limits<A>::lowest();
}

// Takes n more candidates, one per running maximum; they lie `step` apart at positions `at_step` apart.
template <class T, class Index>
__attribute__((noinline)) void take(const T* from, int64_t step, Index at, Index at_step, int64_t n,
                                    Accumulator<T>* best, Index* where) {
  const auto each = [&](int64_t from_step) {
    for (int64_t j = 0; j < n; ++j) {
      const Accumulator<T> value = load(from[j * from_step]);
      const bool better = value > best[j] || value != value;
      best[j] = better ? value : best[j];
      where[j] = better ? at + static_cast<Index>(j) * at_step : where[j];
    }
  };
  if constexpr (is_float<T>) {
    if (step == 1) return each(1);
    if (step == 2) return each(2);
  }
  each(step);
}

// Windows that lie wholly inside dense planes, whatever the planes' width: some outputs at a time, in the order in
// which they lie, each of the taps gathered for all of them.
template <class T> class WholeWindows {
public:
  static constexpr int64_t kTogether = 128;

  WholeWindows(const T* in, T* out, int64_t* where, const Axis& h, const Axis& w)
      : in_(in), out_(out), where_(where), h_(h), w_(w) {}

  static bool suit(const backend::Tensor& in, const backend::Tensor& out, const backend::Tensor& where, const Axis& h,
                   const Axis& w) {
    constexpr int64_t kPlaneUpTo = 1 << 22;                // so that offsets within a group of outputs are small
    if (w.out >= kTogether && w.stride <= 2) return false; // rows are long enough for themselves, without a gather
    const auto whole = [](const Axis& a) { return a.at(0, 0) >= 0 && a.at(a.out - 1, a.kernel - 1) < a.in; };
    return in.is_contiguous() && out.is_contiguous() && where.is_contiguous() && whole(h) && whole(w) &&
           h.in * w.in <= kPlaneUpTo;
  }

  // Outputs [begin, end).
  void run(int64_t begin, int64_t end) const {
    const int64_t plane = h_.out * w_.out;
    int64_t p = begin / plane, oh = begin % plane / w_.out, ow = begin % w_.out;
    alignas(64) int32_t position[kTogether], offset[kTogether], at[kTogether];
    alignas(64) float best[kTogether];
    for (int64_t i = begin; i < end; i += kTogether) {
      const int64_t n = std::min(kTogether, end - i), first = p;
      for (int64_t j = 0; j < n;) { // to the end of an output row
        const int64_t here = std::min(n - j, w_.out - ow), start = h_.at(oh, 0) * w_.in + w_.at(ow, 0),
                      before = (p - first) * h_.in * w_.in;
        for (int64_t k = 0; k < here; ++k) {
          position[j + k] = static_cast<int32_t>(start + k * w_.stride);
          offset[j + k] = static_cast<int32_t>(before + start + k * w_.stride);
        }
        j += here, ow += here;
        if (ow == w_.out) ow = 0, ++oh;
        if (oh == h_.out) oh = 0, ++p;
      }
      const T* const from = in_ + first * h_.in * w_.in;
      for (int64_t j = 0; j < n; ++j) best[j] = lowest<float>(), at[j] = position[j];
      for (int64_t kh = 0; kh < h_.kernel; ++kh)
        for (int64_t kw = 0; kw < w_.kernel; ++kw) {
          const auto tap = static_cast<int32_t>(kh * h_.dilation * w_.in + kw * w_.dilation);
          take_gathered(from + tap, offset, position, tap, n, best, at);
        }
      for (int64_t j = 0; j < n; ++j) out_[i + j] = store<T>(best[j]);
      for (int64_t j = 0; j < n; ++j) where_[i + j] = at[j];
    }
  }

private:
  const T* in_;
  T* out_;
  int64_t* where_;
  const Axis &h_, &w_;

  __attribute__((noinline)) static void take_gathered(const T* from, const int32_t* offset, const int32_t* position,
                                                      int32_t tap, int64_t n, float* best, int32_t* at) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const float value = load(from[offset[j]]);
      const bool better = value > best[j] || value != value;
      best[j] = better ? value : best[j];
      at[j] = better ? position[j] + tap : at[j];
    }
  }
};

// Every other element of two registers.
template <class T> inline Vector<T> even_of(Vector<T> low, Vector<T> high) {
  return [&]<int... K>(std::integer_sequence<int, K...>) { return __builtin_shufflevector(low, high, (2 * K)...); }
  (std::make_integer_sequence<int, kLanes<T>>());
}

template <class T, class Index> class MaxPool {
public:
  explicit MaxPool(const Call& call)
      : input_(call.in(0)), values_(call.out(0)), indices_(call.out(1)), from_(input_), to_(values_), at_(indices_),
        in_(call.in(0).data<T>()), out_(values_.data<T>()), where_(indices_.data<int64_t>()) {
    const auto kernel = call.param(0).as_ints(), stride = call.param(1).as_ints(), padding = call.param(2).as_ints(),
               dilation = call.param(3).as_ints();
    for (size_t d = 0; d < 2; ++d) {
      const int dim = call.in(0).ndim() - 2 + static_cast<int>(d);
      const int64_t k = pair_at(kernel, d, 1);
      (d == 0 ? h_ : w_) = Axis{call.in(0).size(dim),  values_.size(dim),      k,
                                pair_at(stride, d, k), pair_at(padding, d, 0), pair_at(dilation, d, 1)};
    }
  }

  void run() {
    const int64_t taps = h_.kernel * w_.kernel;
    if constexpr (std::is_same_v<T, float>) {
      if (WholeWindows<T>::suit(input_, values_, indices_, h_, w_)) {
        const WholeWindows<T> windows(in_, out_, where_, h_, w_);
        const int64_t grain = std::max(WholeWindows<T>::kTogether, kPoolGrain / taps);
        return parallel_for(0, values_.numel(), grain, [&](int64_t begin, int64_t end) { windows.run(begin, end); });
      }
    }
    const bool by_channel = from_.channels_innermost() && to_.channels_innermost() && at_.channels_innermost();
    const int64_t lines = from_.batch * (by_channel ? 1 : from_.channels) * h_.out;
    const int64_t line_work = w_.out * taps * (by_channel ? from_.channels : 1);
    parallel_for(0, lines, std::max<int64_t>(1, kPoolGrain / line_work), [&](int64_t begin, int64_t end) {
      const size_t width = static_cast<size_t>(by_channel ? from_.channels : w_.out);
      std::vector<Accumulator<T>> best(width);
      std::vector<Index> where(width);
      for (int64_t line = begin; line < end; ++line) {
        by_channel ? pixels(line / h_.out, line % h_.out, best, where) : row(line / h_.out, line % h_.out, best, where);
      }
    });
  }

private:
  static constexpr int64_t kPart = 1024, kWholeFrom = 192; // outputs: of shorter rows the ends are too much

  Tensor input_, values_, indices_;
  Planes from_, to_, at_;
  const T* in_;
  T* out_;
  int64_t* where_;
  Axis h_{}, w_{};

  // First tap inside the input, which a window of values no greater than the start keeps.
  Index origin(int64_t oh, int64_t ow) const {
    int64_t kh = 0, kw = 0;
    while (h_.at(oh, kh) < 0) ++kh;
    while (w_.at(ow, kw) < 0) ++kw;
    return static_cast<Index>(h_.at(oh, kh) * w_.in + w_.at(ow, kw));
  }

  // The origins of a row: those of the windows that begin inside lie in one line.
  void set_origins(int64_t oh, int64_t begin, int64_t end, Index* where) const {
    int64_t kh = 0;
    while (h_.at(oh, kh) < 0) ++kh;
    const int64_t line = h_.at(oh, kh) * w_.in, inside = std::min(end, w_.first(0));
    for (int64_t ow = begin; ow < inside; ++ow) where[ow] = origin(oh, ow);
    const auto start = static_cast<Index>(line - w_.padding);
    for (Index ow = static_cast<Index>(std::max(begin, inside)); ow < static_cast<Index>(end); ++ow)
      where[ow] = start + ow * static_cast<Index>(w_.stride);
  }

  // One output row of one plane, all columns together.
  void row(int64_t plane, int64_t oh, std::vector<Accumulator<T>>& best, std::vector<Index>& where) const {
    const T* in = in_ + from_.plane(plane);
    T* const out = out_ + to_.plane(plane) + oh * to_.row_stride;
    int64_t* const at = where_ + at_.plane(plane) + oh * at_.row_stride;
    int64_t begin = 0;
    if constexpr (std::is_floating_point_v<T> && sizeof(T) == sizeof(Index)) {
      if (w_.out >= kWholeFrom && w_.stride <= 2 && from_.col_stride == 1 && to_.col_stride == 1 &&
          at_.col_stride == 1) {
        const int64_t first = std::min(w_.out, w_.first(0)), last = w_.last(w_.kernel - 1);
        columns(plane, oh, 0, first, best, where);
        begin = w_.stride == 1 ? whole<1>(in, oh, first, last, out, at) : whole<2>(in, oh, first, last, out, at);
      }
    }
    columns(plane, oh, begin, w_.out, best, where);
  }

  // Windows of a row that lie inside the plane, some whole registers of them; returns where it stopped.
  template <int Step> int64_t whole(const T* in, int64_t oh, int64_t first, int64_t last, T* out, int64_t* at) const {
    constexpr int lanes = kLanes<T>, ways = 2;
    typedef Index Places __attribute__((vector_size(kVectorBytes)));
    Places numbers{};
    for (int k = 0; k < lanes; ++k) numbers[k] = static_cast<Index>(k * Step);
    int64_t j = first;
    // One more than is written: the elements between those of a stride of two are read too.
    for (; j + ways * lanes < last; j += ways * lanes) {
      Vector<T> best[ways];
      Places where[ways];
      for (int k = 0; k < ways; ++k) {
        best[k] = lowest<T>() - Vector<T>{};
        where[k] = numbers + origin(oh, j + k * lanes);
      }
      for (int64_t kh = 0; kh < h_.kernel; ++kh) {
        if (!h_.inside(oh, kh)) continue;
        const T* line = in + h_.at(oh, kh) * from_.row_stride;
        for (int64_t kw = 0; kw < w_.kernel; ++kw)
#pragma GCC unroll 2
          for (int k = 0; k < ways; ++k) {
            const int64_t w = w_.at(j + k * lanes, kw);
            const Vector<T> value =
                Step == 1 ? load_vector(line + w) : even_of<T>(load_vector(line + w), load_vector(line + w + lanes));
            const Places better = reinterpret_cast<Places>((value > best[k]) | (value != value));
            best[k] = better ? value : best[k];
            where[k] = better ? numbers + static_cast<Index>(h_.at(oh, kh) * w_.in + w) : where[k];
          }
      }
      for (int k = 0; k < ways; ++k) {
        std::memcpy(out + j + k * lanes, &best[k], sizeof best[k]);
        typedef int64_t Wide __attribute__((vector_size(lanes * sizeof(int64_t))));
        const Wide wide = __builtin_convertvector(where[k], Wide);
        std::memcpy(at + j + k * lanes, &wide, sizeof wide);
      }
    }
    return j;
  }
  // Outputs [from, to) of a row, by parts, so that what runs over all taps stays in the first cache.
  void columns(int64_t plane, int64_t oh, int64_t from, int64_t to, std::vector<Accumulator<T>>& best,
               std::vector<Index>& where) const {
    const T* in = in_ + from_.plane(plane);
    T* const out = out_ + to_.plane(plane) + oh * to_.row_stride;
    int64_t* const at = where_ + at_.plane(plane) + oh * at_.row_stride;
    for (int64_t begin = from; begin < to; begin += kPart) {
      const int64_t end = std::min(to, begin + kPart);
      set_origins(oh, begin, end, where.data());
      std::fill(best.begin() + begin, best.begin() + end, lowest<Accumulator<T>>());
      for (int64_t kh = 0; kh < h_.kernel; ++kh) {
        if (!h_.inside(oh, kh)) continue;
        const int64_t h = h_.at(oh, kh);
        for (int64_t kw = 0; kw < w_.kernel; ++kw) {
          const int64_t first = std::max(begin, w_.first(kw)), last = std::min(end, w_.last(kw));
          if (first >= last) continue;
          const int64_t w = w_.at(first, kw);
          take<T, Index>(in + h * from_.row_stride + w * from_.col_stride, w_.stride * from_.col_stride,
                         static_cast<Index>(h * w_.in + w), static_cast<Index>(w_.stride), last - first,
                         best.data() + first, where.data() + first);
        }
      }
      write(best.data() + begin, where.data() + begin, end - begin, out + begin * to_.col_stride, to_.col_stride,
            at + begin * at_.col_stride, at_.col_stride);
    }
  }

  // One output row of a channels-last image, all channels of a pixel together.
  void pixels(int64_t image, int64_t oh, std::vector<Accumulator<T>>& best, std::vector<Index>& where) const {
    for (int64_t ow = 0; ow < w_.out; ++ow) {
      std::fill(best.begin(), best.end(), lowest<Accumulator<T>>());
      std::fill(where.begin(), where.end(), origin(oh, ow));
      for (int64_t kh = 0; kh < h_.kernel; ++kh) {
        for (int64_t kw = 0; kw < w_.kernel; ++kw) {
          if (!h_.inside(oh, kh) || !w_.inside(ow, kw)) continue;
          const int64_t h = h_.at(oh, kh), w = w_.at(ow, kw);
          take<T, Index>(in_ + image * from_.batch_stride + h * from_.row_stride + w * from_.col_stride, 1,
                         static_cast<Index>(h * w_.in + w), 0, from_.channels, best.data(), where.data());
        }
      }
      write(best.data(), where.data(), from_.channels,
            out_ + image * to_.batch_stride + oh * to_.row_stride + ow * to_.col_stride, 1,
            where_ + image * at_.batch_stride + oh * at_.row_stride + ow * at_.col_stride, 1);
    }
  }

  static void write(const Accumulator<T>* best, const Index* where, int64_t n, T* out, int64_t out_step, int64_t* at,
                    int64_t at_step) {
    if (out_step == 1 && at_step == 1) return write(best, where, n, out, at);
    for (int64_t j = 0; j < n; ++j) out[j * out_step] = store<T>(best[j]);
    for (int64_t j = 0; j < n; ++j) at[j * at_step] = where[j];
  }
  static void write(const Accumulator<T>* __restrict best, const Index* __restrict where, int64_t n, T* __restrict out,
                    int64_t* __restrict at) {
    for (int64_t j = 0; j < n; ++j) out[j] = store<T>(best[j]);
    for (int64_t j = 0; j < n; ++j) at[j] = where[j];
  }
};

void max_pool2d_with_indices(const Call& call) {
  const Tensor in = call.in(0);
  switch_real("max_pool2d_with_indices", in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Where values and positions are as wide as each other, their loop is vectorised whole.
    if constexpr (is_float<T> && sizeof(Accumulator<T>) == sizeof(int32_t)) {
      const int64_t plane = in.size(in.ndim() - 1) * in.size(in.ndim() - 2);
      if (plane <= std::numeric_limits<int32_t>::max()) return MaxPool<T, int32_t>(call).run();
    }
    MaxPool<T, int64_t>(call).run();
  });
}

[[noreturn]] __attribute__((noinline, cold)) void fail_position(int64_t position, int64_t plane) {
  backend::fail(TS_INDEX_ERROR, "max_pool2d_backward: index %lld is out of bounds for a plane of %lld elements",
                static_cast<long long>(position), static_cast<long long>(plane));
}

template <class T> class MaxPoolBackward {
public:
  explicit MaxPoolBackward(const Call& call)
      : to_(call.out(0)), from_(call.in(0)), at_(call.in(1)), out_(call.out(0).data<T>()), grad_(call.in(0).data<T>()),
        positions_(call.in(1).data<int64_t>()) {
    const Tensor out = call.out(0), grad = call.in(0);
    height_ = out.size(out.ndim() - 2), width_ = out.size(out.ndim() - 1);
    rows_ = grad.size(grad.ndim() - 2), cols_ = grad.size(grad.ndim() - 1);
    // Rows that follow each other are one long row.
    if (follow(from_) && follow(at_)) cols_ *= rows_, rows_ = 1;
  }

  void run() const {
    const int64_t together = to_.channels_innermost() ? std::min(kChannelBlock, to_.channels) : 1;
    const int64_t blocks = (to_.channels + together - 1) / together;
    const int64_t grain = std::max<int64_t>(1, kPoolGrain / (height_ * width_ * together));
    parallel_for(0, to_.batch * blocks, grain, [&](int64_t begin, int64_t end) {
      GradientSums<T> sums(to_, height_, width_);
      for (int64_t job = begin; job < end; ++job) {
        const int64_t first = job % blocks * together;
        add_at_maxima(job / blocks, first, std::min(together, to_.channels - first), sums);
      }
    });
  }

private:
  Planes to_, from_, at_;
  T* out_;
  const T* grad_;
  const int64_t* positions_;
  int64_t height_, width_, rows_, cols_;

  bool follow(const Planes& planes) const { return planes.row_stride == cols_ * planes.col_stride; }

  // Adds the gradients of channels first .. first + count - 1 of one image.
  void add_at_maxima(int64_t image, int64_t first, int64_t count, GradientSums<T>& sums) const {
    const int64_t plane = height_ * width_;
    const T* g = grad_ + image * from_.batch_stride + first * from_.channel_stride;
    const int64_t* positions = positions_ + image * at_.batch_stride + first * at_.channel_stride;
    sums.start(out_ + image * to_.batch_stride + first * to_.channel_stride, count);
    const int64_t pixel_step = sums.pixel_step(), channel_step = sums.channel_step();
    Accumulator<T>* base = sums.at(0);
    const auto add = [&](int64_t position, int64_t c, T value) {
      if (static_cast<uint64_t>(position) >= static_cast<uint64_t>(plane)) fail_position(position, plane);
      base[position * pixel_step + c * channel_step] += load(value);
    };
    for (int64_t i = 0; i < rows_; ++i) {
      const T* pixel = g + i * from_.row_stride;
      const int64_t* where = positions + i * at_.row_stride;
      if (count == 1 && pixel_step == 1) {
        for (int64_t j = 0; j < cols_; ++j) {
          const int64_t position = where[j * at_.col_stride];
          if (static_cast<uint64_t>(position) >= static_cast<uint64_t>(plane)) fail_position(position, plane);
          base[position] += load(pixel[j * from_.col_stride]);
        }
        continue;
      }
      for (int64_t j = 0; j < cols_; ++j)
        for (int64_t c = 0; c < count; ++c)
          add(where[j * at_.col_stride + c * at_.channel_stride], c,
              pixel[j * from_.col_stride + c * from_.channel_stride]);
    }
    sums.finish();
  }
};

void max_pool2d_backward(const Call& call) {
  switch_float("max_pool2d_backward", call.out(0).dtype(),
               [&](auto tag) { MaxPoolBackward<typename decltype(tag)::type>(call).run(); });
}

} // namespace

TS_KERNEL_AS("max_pool2d_with_indices", max_pool2d_with_indices, 0, TS_L_CHANNELS_LAST);
TS_KERNEL_AS("max_pool2d_backward", max_pool2d_backward, 0, TS_L_CHANNELS_LAST);

} // namespace tesserack::cpu
