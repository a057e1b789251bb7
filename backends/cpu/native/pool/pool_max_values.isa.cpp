// max_pool2d_values: maxima of windows without their places. NaN wins.
#include "pool_window.h"
#include "threads.h"

#include <limits>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kGrain = 16384; // window taps worth a thread
constexpr int64_t kPart = 1024;   // outputs whose maxima stay in the first cache over all taps

template <class A> constexpr A least() {
  if constexpr (std::is_floating_point_v<A>) return -std::numeric_limits<A>::infinity();
  return std::numeric_limits<A>::lowest();
}

// A NaN is no less than anything, and stays.
template <class A> inline A greater(A best, A value) { return !(value <= best) & (best == best) ? value : best; }

// best[j] and element j * step, for n of them. Neighbours and short steps have loops that become vectors.
template <class T, int Step>
__attribute__((noinline)) void take(Accumulator<T>* __restrict best, const T* __restrict from, int64_t step,
                                    int64_t n) {
  for (int64_t j = 0; j < n; ++j) best[j] = greater<Accumulator<T>>(best[j], load(from[j * (Step ? Step : step)]));
}
template <class T> void take_any(Accumulator<T>* best, const T* from, int64_t step, int64_t n) {
  switch (step) {
  case 1: return take<T, 1>(best, from, step, n);
  case 2: return take<T, 2>(best, from, step, n);
  case 3: return take<T, 3>(best, from, step, n);
  case 4: return take<T, 4>(best, from, step, n);
  case 8: return take<T, 8>(best, from, step, n);
  default: return take<T, 0>(best, from, step, n);
  }
}

// to[i] of from[i] and the one `apart` from it. Of equal ones the first stays, as in a window taken element by element.
template <class A>
__attribute__((noinline)) void double_up(A* __restrict to, const A* __restrict from, int64_t apart, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = greater(from[i], from[i + apart]);
}

// The last step, of every Step-th.
template <class T, int Step>
__attribute__((noinline)) void finish(T* __restrict out, const Accumulator<T>* __restrict from, int64_t apart,
                                      int64_t step, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    const int64_t i = j * (Step ? Step : step);
    out[j] = store<T>(greater(from[i], from[i + apart]));
  }
}

// The greatest of n that lie side by side: as many at once as a loop over them makes registers of.
template <class T> Accumulator<T> greatest(const T* from, int64_t n) {
  constexpr int64_t kAbreast = 64;
  Accumulator<T> best[kAbreast];
  for (int64_t j = 0; j < kAbreast; ++j) best[j] = load(from[j]);
  int64_t i = kAbreast;
  for (; i + kAbreast <= n; i += kAbreast)
    for (int64_t j = 0; j < kAbreast; ++j) best[j] = greater<Accumulator<T>>(best[j], load(from[i + j]));
  for (int64_t j = 0; i + j < n; ++j) best[j] = greater<Accumulator<T>>(best[j], load(from[i + j]));
  for (int64_t half = kAbreast / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) best[j] = greater(best[j], best[j + half]);
  return best[0];
}

template <class T> class MaxValues {
  using A = Accumulator<T>;

public:
  explicit MaxValues(const Call& call)
      : from_(call.in(0)), to_(call.out(0)), in_(call.in(0).data<T>()), out_(call.out(0).data<T>()) {
    const auto kernel = call.param(0).as_ints(), stride = call.param(1).as_ints(), padding = call.param(2).as_ints(),
               dilation = call.param(3).as_ints();
    for (size_t d = 0; d < 2; ++d) {
      const int dim = call.in(0).ndim() - 2 + static_cast<int>(d);
      const int64_t k = pair_at(kernel, d, 1);
      (d == 0 ? h_ : w_) = Axis{call.in(0).size(dim),  call.out(0).size(dim),  k,
                                pair_at(stride, d, k), pair_at(padding, d, 0), pair_at(dilation, d, 1)};
    }
  }

  void run() {
    join_lines();
    const bool apart = suits_alone(), slides = !apart && suits_sliding();
    const int64_t at_once = apart ? 1 : slides ? std::max<int64_t>(1, kPart / w_.stride) : kPart;
    const int64_t parts = (w_.out + at_once - 1) / at_once, jobs = from_.batch * from_.channels * h_.out * parts;
    const int64_t work = std::min(at_once, w_.out) * h_.kernel * w_.kernel;
    parallel_for(0, jobs, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)), [&](int64_t begin, int64_t end) {
      std::vector<A> best(static_cast<size_t>(slides ? 2 * (kPart + reach()) : std::min(kPart, w_.out)));
      for (int64_t job = begin; job < end; ++job) {
        const int64_t line = job / parts, first = job % parts * at_once, last = std::min(w_.out, first + at_once);
        if (apart)
          out_[to_.plane(line / h_.out) + line % h_.out * to_.row_stride + first] = store<T>(greatest(
              in_ + from_.plane(line / h_.out) + line % h_.out * from_.row_stride + w_.at(first, 0), w_.kernel));
        else if (slides)
          slide(line, first, last, best.data());
        else
          part(line / h_.out, line % h_.out, first, last, best.data());
      }
    });
  }

private:
  Planes from_, to_;
  const T* in_;
  T* out_;
  Axis h_{}, w_{};

  // Lines that follow each other, of windows that share nothing and reach from end to end, are one long line.
  void join_lines() {
    const int64_t lines = from_.batch * from_.channels;
    const bool apart = w_.padding == 0 && (w_.kernel - 1) * w_.dilation < w_.stride && w_.in == w_.out * w_.stride;
    const auto follow = [&](const Planes& p, int64_t size) {
      return p.col_stride == 1 && p.channel_stride == size && (p.batch == 1 || p.batch_stride == p.channels * size);
    };
    if (h_.in != 1 || h_.out != 1 || !apart || !follow(from_, w_.in) || !follow(to_, w_.out)) return;
    w_.in *= lines, w_.out *= lines;
    from_.batch = from_.channels = to_.batch = to_.channels = 1;
  }

  int64_t reach() const { return (w_.kernel - 1) * w_.dilation + 1; } // elements from the first of a window to its last

  bool is_line() const {
    return h_.kernel == 1 && h_.padding == 0 && h_.stride == 1 && from_.col_stride == 1 && to_.col_stride == 1;
  }

  // Long windows that share little.
  bool suits_alone() const {
    return is_line() && w_.kernel >= 64 && w_.dilation == 1 && w_.stride >= w_.kernel / 4 && w_.padding == 0 &&
           w_.at(w_.out - 1, w_.kernel - 1) < w_.in;
  }

  // Windows of one line that leave little out between them, and of which many fit into a part.
  bool suits_sliding() const {
    return is_line() && w_.kernel > 1 && w_.stride <= w_.kernel && reach() <= kPart && w_.out > 0;
  }

  // Outputs [begin, end) of a line: maxima of two neighbours, of two of those, and so on, each step over all of them.
  void slide(int64_t line, int64_t begin, int64_t end, A* space) const {
    const T* const in = in_ + from_.plane(line / h_.out) + line % h_.out * from_.row_stride;
    T* const out = out_ + to_.plane(line / h_.out) + line % h_.out * to_.row_stride + begin;
    const int64_t first = w_.at(begin, 0), span = (end - 1 - begin) * w_.stride + reach();
    A *const one = space, *const other = space + kPart + reach();
    const A* from = one;
    if (std::is_same_v<T, A> && first >= 0 && first + span <= w_.in) {
      from = reinterpret_cast<const A*>(in + first);
    } else {
      const int64_t from_here = std::clamp<int64_t>(-first, 0, span),
                    to_here = std::clamp(w_.in - first, from_here, span);
      std::fill_n(one, from_here, least<A>());
      for (int64_t i = from_here; i < to_here; ++i) one[i] = load(in[first + i]);
      std::fill_n(one + to_here, span - to_here, least<A>());
    }
    int64_t taken = 1, left = span;
    for (; 2 * taken < w_.kernel; taken *= 2) {
      A* const to = from == one ? other : one;
      left -= taken * w_.dilation;
      double_up(to, from, taken * w_.dilation, left);
      from = to;
    }
    const int64_t apart = (w_.kernel - taken) * w_.dilation, n = end - begin;
    switch (w_.stride) {
    case 1: return finish<T, 1>(out, from, apart, 1, n);
    case 2: return finish<T, 2>(out, from, apart, 2, n);
    default: return finish<T, 0>(out, from, apart, w_.stride, n);
    }
  }

  // Outputs [begin, end) of a row.
  void part(int64_t plane, int64_t oh, int64_t begin, int64_t end, A* best) const {
    const T* const in = in_ + from_.plane(plane);
    std::fill_n(best, end - begin, least<A>());
    for (int64_t kh = 0; kh < h_.kernel; ++kh) {
      if (!h_.inside(oh, kh)) continue;
      const T* const row = in + h_.at(oh, kh) * from_.row_stride;
      for (int64_t kw = 0; kw < w_.kernel; ++kw) {
        const int64_t first = std::max(begin, w_.first(kw)), last = std::min(end, w_.last(kw));
        if (first < last)
          take_any(best + first - begin, row + w_.at(first, kw) * from_.col_stride, w_.stride * from_.col_stride,
                   last - first);
      }
    }
    T* const out = out_ + to_.plane(plane) + oh * to_.row_stride;
    for (int64_t j = begin; j < end; ++j) out[j * to_.col_stride] = store<T>(best[j - begin]);
  }
};

void max_pool2d_values(const Call& call) {
  switch_real("max_pool2d_values", call.in(0).dtype(),
              [&](auto tag) { MaxValues<typename decltype(tag)::type>(call).run(); });
}

} // namespace

TS_KERNEL_AS("max_pool2d_values", max_pool2d_values, 0, TS_L_CHANNELS_LAST);

} // namespace tesserack::cpu
