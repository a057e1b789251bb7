// grid_sample_backward: by the input, a thread with planes of its own, and by the grid, a sum over channels.
#include "dtype_switch.h"
#include "grid_taps.h"
#include "threads.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;

constexpr uint64_t kFloats =
    uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16 | uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;

template <class T, class A>
void add_slopes(std::array<std::array<A, kBlock>, 3>& sums, const Taps<A>& taps, int tap, const T* __restrict plane,
                const T* __restrict grad, int64_t count, int dims) {
  std::array<A, kBlock> values;
  const int32_t* __restrict index = taps.index.data() + taps.at(tap, 0);
  A* __restrict to = values.data();
  for (int64_t p = 0; p < count; ++p) {
    const A value = load(plane[std::max(index[p], 0)]) * load(grad[p]);
    to[p] = index[p] >= 0 ? value : A{0};
  }
  for (size_t d = 0; d < static_cast<size_t>(dims); ++d) {
    const A* __restrict slope = taps.slope[d].data() + taps.at(tap, 0);
    A* __restrict line = sums[d].data();
    for (int64_t p = 0; p < count; ++p) line[p] += slope[p] * to[p];
  }
}

// Gradients by the grid: a sum over channels, each place on its own.
template <class T> void grid_gradient(const Call& call, const Shape& s) {
  using A = Accumulator<T>;
  const T *grad = call.in(0).data<T>(), *input = call.in(1).data<T>(), *grid = call.in(2).data<T>();
  T* out = call.out(1).data<T>();
  const int64_t blocks = (s.places + kBlock - 1) / kBlock, work = kBlock * s.taps() * s.channels;
  parallel_for(0, s.batch * blocks, std::max<int64_t>(1, 16384 / work), [&](int64_t begin, int64_t end) {
    Taps<A> taps(s, true);
    std::array<std::array<A, kBlock>, 3> sums;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t n = b / blocks, first = b % blocks * kBlock, count = std::min(kBlock, s.places - first);
      fill_taps(taps, s, grid + (n * s.places + first) * s.dims, count);
      for (auto& line : sums) line.fill(0);
      for (int64_t c = 0; c < s.channels; ++c) {
        const T *plane = input + (n * s.channels + c) * s.elements,
                *from = grad + (n * s.channels + c) * s.places + first;
        for (int tap = 0; tap < taps.count; ++tap) add_slopes(sums, taps, tap, plane, from, count, s.dims);
      }
      T* to = out + (n * s.places + first) * s.dims;
      for (int64_t p = 0; p < count; ++p)
        for (int d = 0; d < s.dims; ++d)
          to[p * s.dims + d] = store<T>(sums[static_cast<size_t>(d)][static_cast<size_t>(p)]);
    }
  });
}

// Gradients by the input: a thread has some channels of an image for itself.
template <class T> void input_gradient(const Call& call, const Shape& s) {
  using A = Accumulator<T>;
  const T *grad = call.in(0).data<T>(), *grid = call.in(2).data<T>();
  T* out = call.out(0).data<T>();
  const int64_t work = (s.places * s.taps() + s.elements);
  parallel_for(0, s.batch * s.channels, std::max<int64_t>(1, 16384 / work), [&](int64_t begin, int64_t end) {
    Taps<A> taps(s, false);
    for (int64_t next = begin; next < end;) {
      const int64_t n = next / s.channels, last = std::min(end, (n + 1) * s.channels);
      std::vector<A> planes(static_cast<size_t>((last - next) * s.elements), A{0});
      for (int64_t first = 0; first < s.places; first += kBlock) {
        const int64_t count = std::min(kBlock, s.places - first);
        fill_taps(taps, s, grid + (n * s.places + first) * s.dims, count);
        for (int64_t c = next; c < last; ++c) {
          A* plane = planes.data() + (c - next) * s.elements;
          const T* from = grad + c * s.places + first;
          for (int tap = 0; tap < taps.count; ++tap)
            for (int64_t p = 0; p < count; ++p) {
              const size_t at = taps.at(tap, p);
              if (taps.index[at] >= 0) plane[taps.index[at]] += taps.weight[at] * load(from[p]);
            }
        }
      }
      for (int64_t k = 0; k < (last - next) * s.elements; ++k)
        out[next * s.elements + k] = store<T>(planes[static_cast<size_t>(k)]);
      next = last;
    }
  });
}

// Inputs: grad, input, grid; outputs: the gradients by input and grid; params: mode, padding, align_corners.
void grid_sample_backward(const Call& call) {
  const Shape s(call.in(1), call.in(2), call);
  switch_float(call.op(), call.in(0).dtype(), [&](auto tag) {
    input_gradient<typename decltype(tag)::type>(call, s);
    grid_gradient<typename decltype(tag)::type>(call, s);
  });
}

} // namespace

TS_KERNEL_AS("grid_sample_backward", grid_sample_backward, kFloats, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
