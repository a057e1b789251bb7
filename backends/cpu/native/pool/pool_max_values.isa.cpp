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
    const int64_t parts = (w_.out + kPart - 1) / kPart, jobs = from_.batch * from_.channels * h_.out * parts;
    const int64_t work = std::min(kPart, w_.out) * h_.kernel * w_.kernel;
    parallel_for(0, jobs, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)), [&](int64_t begin, int64_t end) {
      std::vector<A> best(static_cast<size_t>(std::min(kPart, w_.out)));
      for (int64_t job = begin; job < end; ++job) {
        const int64_t line = job / parts, first = job % parts * kPart;
        part(line / h_.out, line % h_.out, first, std::min(w_.out, first + kPart), best.data());
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
