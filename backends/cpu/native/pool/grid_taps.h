// Where a block of places of grid_sample's grid reads: the elements around each, with weights and their slopes.
// Everything here has internal linkage: the .isa.cpp files compile it once per instruction set.
#pragma once

#include "dtype_switch.h"
#include "math/math_f32.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tesserack::cpu {
namespace {

constexpr int64_t kBlock = 256;
enum Mode { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Padding { kZeros = 0, kBorder = 1, kReflection = 2 };

// Keys' kernel with a = -0.75: the weights of four neighbours, and their derivatives by the place t after the second.
template <class A> using Lines = std::array<std::array<A, kBlock>, 4>;
template <class A>
__attribute__((noinline)) void cubic(const A* __restrict t, Lines<A>& weights, Lines<A>& slopes, int64_t count) {
  constexpr A a = A{-0.75};
  const auto far = [](A x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  const auto near = [](A x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far_slope = [](A x) { return (3 * a * x - 10 * a) * x + 8 * a; };
  const auto near_slope = [](A x) { return (3 * (a + 2) * x - 2 * (a + 3)) * x; };
  A* const __restrict w = weights[0].data();
  A* const __restrict d = slopes[0].data();
  for (int64_t p = 0; p < count; ++p) {
    const A x = t[p];
    w[p] = far(x + 1), w[kBlock + p] = near(x), w[2 * kBlock + p] = near(1 - x), w[3 * kBlock + p] = far(2 - x);
    d[p] = far_slope(x + 1), d[kBlock + p] = near_slope(x);
    d[2 * kBlock + p] = -near_slope(1 - x), d[3 * kBlock + p] = -far_slope(2 - x);
  }
}

// The geometry of a call: sizes of the input's spatial dims, first to last, and how many places each image has.
struct Shape {
  int dims;
  std::array<int64_t, 3> size{};
  int64_t batch, channels, elements = 1, places = 1, mode, padding;
  bool align;

  Shape(const backend::Tensor& input, const backend::Tensor& grid, const backend::Call& call)
      : dims(static_cast<int>(input.ndim()) - 2), batch(input.size(0)), channels(input.size(1)),
        mode(call.param(0).as_int()), padding(call.param(1).as_int()), align(call.param(2).as_bool()) {
    for (int d = 0; d < dims; ++d) {
      size[static_cast<size_t>(d)] = input.size(d + 2);
      elements *= input.size(d + 2);
      places *= grid.size(d + 1);
    }
    if (elements > std::numeric_limits<int32_t>::max())
      backend::fail(TS_ERROR, "%s: expected planes of fewer than 2^31 elements, got %lld", call.op(),
                    static_cast<long long>(elements));
  }
  int taps() const { return mode == kNearest ? 1 : mode == kCubic ? 16 : 1 << dims; }
};

// What a block of places reads: element numbers (-1: none), weights, and, if asked for, derivatives of those by each
// coordinate. A plane has fewer than 2^31 elements.
template <class A> struct Taps {
  int count;
  bool with_slopes;
  std::vector<int32_t> index;
  std::vector<A> weight;
  std::array<std::vector<A>, 3> slope; // of grid[..., 0], ...

  Taps(const Shape& s, bool slopes) : count(s.taps()), with_slopes(slopes) {
    const size_t n = static_cast<size_t>(count * kBlock);
    index.resize(n), weight.resize(n, A{1}); // 1, and a slope of 0, stay where the nearest is taken
    for (int d = 0; slopes && d < s.dims; ++d) slope[static_cast<size_t>(d)].resize(n);
  }
  size_t at(int tap, int64_t p) const { return static_cast<size_t>(tap * kBlock + p); }
};

// Coordinates held within the borders, which count as outside for the derivative (if asked for); without a branch. A
// function of its own, as those below: else the compiler finds no vectors.
template <class A>
__attribute__((noinline)) void hold(A* __restrict at, A* __restrict slope, int64_t count, int64_t size) {
  const A last = static_cast<A>(size - 1);
  for (int64_t p = 0; slope != nullptr && p < count; ++p) slope[p] = (at[p] > 0) & (at[p] < last) ? slope[p] : A{0};
  for (int64_t p = 0; p < count; ++p) {
    const A x = at[p], low = x > 0 ? x : A{0};
    at[p] = low >= last ? last : low;
  }
}

// The same of reflections, without a branch and without the library's remainder: exact where the quotient is small,
// and a coordinate that is far outside is anywhere between the borders.
template <class A>
__attribute__((noinline)) void reflect(A* __restrict at, A* __restrict slope, int64_t count, int64_t size, bool align) {
  const A low = align ? A{0} : A{-0.5}, span = static_cast<A>(align ? size - 1 : size), last = static_cast<A>(size - 1);
  if (span == 0) {
    std::fill_n(at, count, A{0}), std::fill_n(slope, count, A{0});
    return;
  }
  for (int64_t p = 0; p < count; ++p) {
    const A away = std::abs(at[p] - low), turns = std::floor(away / span);
    const A passed = away - turns * span, rest = passed < 0 ? A{0} : passed > span ? span : passed;
    const bool odd = std::floor(turns * A{0.5}) * A{2} != turns;
    const A x = (odd ? span - rest : rest) + low, sign = (at[p] < low) != odd ? A{-1} : A{1};
    const bool inside = (x > 0) & (x < last);
    at[p] = !(x > 0) ? A{0} : x >= last ? last : x;
    slope[p] = inside ? slope[p] * sign : A{0};
  }
}

// Coordinates of a block of places among elements, last dim first as in the grid, and their derivatives.
template <class A> struct Located { std::array<std::array<A, kBlock>, 3> at, slope; };

// Of every Dims-th number of the grid, rounded as PyTorch rounds: a picture that is rounded to integers afterwards
// shows the last bit of what lies halfway. A function of its own for each way, as those above.
template <int Dims, class T, class A>
__attribute__((noinline)) void place(A* __restrict at, const T* __restrict grid, int64_t count, A scale, A shift) {
  for (int64_t p = 0; p < count; ++p) at[p] = fused(static_cast<A>(load(grid[p * Dims])) + 1, scale, shift);
}

template <class T, class A>
void locate(Located<A>& found, const Shape& s, const T* grid, int64_t count, bool with_slopes) {
  for (int d = 0; d < s.dims; ++d) {
    const size_t e = static_cast<size_t>(d);
    const int64_t size = s.size[static_cast<size_t>(s.dims - 1 - d)];
    const A scale = static_cast<A>(s.align ? size - 1 : size) / 2, shift = s.align ? A{0} : A{-0.5};
    A *const at = found.at[e].data(), *const slope = found.slope[e].data();
    s.dims == 2 ? place<2>(at, grid + d, count, scale, shift) : place<3>(at, grid + d, count, scale, shift);
    if (with_slopes || s.padding == kReflection) std::fill_n(slope, count, scale);
    if (s.padding == kZeros || s.mode == kCubic) continue; // cubic pads each of its elements
    if (s.padding == kBorder)
      hold(at, with_slopes ? slope : nullptr, count, size);
    else
      reflect(at, slope, count, size, s.align);
  }
}

// The elements before and after coordinates, -1 for those outside, and their shares. A function of its own, and its
// conditions without a branch: else the compiler finds no vectors.
template <class A>
__attribute__((noinline)) void split(const A* __restrict at, A* __restrict before, A* __restrict after,
                                     int32_t* __restrict first, int32_t* __restrict second, int64_t count,
                                     int32_t size) {
  const A last = static_cast<A>(size);
  for (int64_t p = 0; p < count; ++p) {
    const A floor = std::floor(at[p]), t = at[p] - floor;
    // Also of coordinates that are no numbers: all elements are outside. One condition at a time, or there are no
    // vectors.
    const A low = floor >= A{-1} ? floor : A{-2}, held = low <= last ? low : A{-2};
    const int32_t n = static_cast<int32_t>(held), next = n + 1;
    before[p] = 1 - t;
    after[p] = t;
    const int32_t above = n >= 0 ? n : -1, after_above = next >= 0 ? next : -1;
    first[p] = above < size ? above : -1;
    second[p] = after_above < size ? after_above : -1;
  }
}

// One of the four elements around each place of a plane: by its row and column, and their shares.
template <class A>
__attribute__((noinline)) void join(const int32_t* __restrict row, const int32_t* __restrict column,
                                    const A* __restrict down, const A* __restrict across, int32_t width,
                                    int32_t* __restrict index, A* __restrict weight, int64_t count) {
  for (int64_t p = 0; p < count; ++p) {
    index[p] = (row[p] | column[p]) >= 0 ? row[p] * width + column[p] : -1;
    weight[p] = down[p] * across[p];
  }
}

template <int Dims, class A> void set_linear(Taps<A>& taps, const Shape& s, const Located<A>& where, int64_t count) {
  std::array<std::array<std::array<A, kBlock>, 2>, Dims> parts; // of the element before and after, last dim first
  std::array<std::array<std::array<int32_t, kBlock>, 2>, Dims> numbers;
  for (size_t d = 0; d < Dims; ++d)
    split(where.at[d].data(), parts[d][0].data(), parts[d][1].data(), numbers[d][0].data(), numbers[d][1].data(), count,
          static_cast<int32_t>(s.size[Dims - 1 - d]));
  for (int tap = 0; tap < 1 << Dims; ++tap) {
    int32_t* __restrict index = taps.index.data() + taps.at(tap, 0);
    A* __restrict weight = taps.weight.data() + taps.at(tap, 0);
    if constexpr (Dims == 2) {
      const size_t down = tap >> 1, across = tap & 1;
      join(numbers[1][down].data(), numbers[0][across].data(), parts[1][down].data(), parts[0][across].data(),
           static_cast<int32_t>(s.size[1]), index, weight, count);
    }
    for (int64_t k = 0; Dims != 2 && k < count; ++k) {
      const size_t p = static_cast<size_t>(k);
      A product = 1;
      int32_t place = 0, least = 0;
      for (size_t d = Dims; d-- > 0;) {
        const size_t side = tap >> d & 1;
        const int32_t n = numbers[d][side][p];
        product *= parts[d][side][p];
        least = std::min(least, n);
        place = place * static_cast<int32_t>(s.size[Dims - 1 - d]) + std::max(n, 0);
      }
      index[p] = least < 0 ? -1 : place;
      weight[p] = product;
    }
    for (size_t d = 0; taps.with_slopes && d < Dims; ++d) {
      A* __restrict slope = taps.slope[d].data() + taps.at(tap, 0);
      const A sign = tap >> d & 1 ? A{1} : A{-1};
      for (int64_t k = 0; k < count; ++k) {
        const size_t p = static_cast<size_t>(k);
        A product = sign * where.slope[d][p];
        for (size_t e = 0; e < Dims; ++e)
          if (e != d) product *= parts[e][tap >> e & 1][p];
        slope[p] = product;
      }
    }
  }
}

// The elements that coordinates name, -1 for those outside and for what is no number.
template <class A>
__attribute__((noinline)) void name_elements(const A* __restrict at, int32_t* __restrict number, int64_t count,
                                             int32_t size) {
  const A end = static_cast<A>(size);
  for (int64_t p = 0; p < count; ++p) {
    const A x = std::nearbyint(at[p]);
    number[p] = static_cast<int32_t>((x >= A{0}) & (x < end) ? x : A{-1});
  }
}

// The number in its plane of the element in each line, -1 where the lines or the place in them lie outside.
__attribute__((noinline)) void join_numbers(int32_t* __restrict lines, const int32_t* __restrict number, int32_t size,
                                            int64_t count) {
  for (int64_t p = 0; p < count; ++p) lines[p] = (lines[p] | number[p]) >= 0 ? lines[p] * size + number[p] : -1;
}

template <int Dims, class A> void set_nearest(Taps<A>& taps, const Shape& s, const Located<A>& where, int64_t count) {
  alignas(64) std::array<int32_t, kBlock> number;
  int32_t* const index = taps.index.data();
  for (size_t d = Dims; d-- > 0;) {
    const int32_t size = static_cast<int32_t>(s.size[Dims - 1 - d]);
    int32_t* const to = d == Dims - 1 ? index : number.data();
    name_elements(where.at[d].data(), to, count, size);
    if (d != Dims - 1) join_numbers(index, number.data(), size, count);
  }
}

template <class A> void set_cubic(Taps<A>& taps, const Shape& s, const Located<A>& where, int64_t count) {
  std::array<Lines<A>, 2> weights, slopes;
  std::array<Lines<int32_t>, 2> numbers;
  alignas(64) std::array<A, kBlock> share, line, unused{};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t size = s.size[1 - d];
    const A* const at = where.at[d].data();
    for (int64_t p = 0; p < count; ++p) share[static_cast<size_t>(p)] = at[p] - std::floor(at[p]);
    cubic<A>(share.data(), weights[d], slopes[d], count);
    for (size_t k = 0; k < 4; ++k) {
      const A offset = static_cast<A>(static_cast<int64_t>(k) - 1);
      for (int64_t p = 0; p < count; ++p) line[static_cast<size_t>(p)] = std::floor(at[p]) + offset;
      if (s.padding == kBorder) hold<A>(line.data(), nullptr, count, size);
      if (s.padding == kReflection) reflect(line.data(), unused.data(), count, size, s.align);
      name_elements(line.data(), numbers[d][k].data(), count, static_cast<int32_t>(size));
    }
  }
  const int32_t width = static_cast<int32_t>(s.size[1]);
  for (size_t j = 0; j < 4; ++j)
    for (size_t i = 0; i < 4; ++i) {
      const size_t to = taps.at(static_cast<int>(4 * j + i), 0);
      const int32_t* __restrict row = numbers[1][j].data(), * __restrict column = numbers[0][i].data();
      const A* __restrict wy = weights[1][j].data(), * __restrict wx = weights[0][i].data();
      int32_t* __restrict index = taps.index.data() + to;
      A* __restrict weight = taps.weight.data() + to;
      for (int64_t p = 0; p < count; ++p) {
        index[p] = (row[p] | column[p]) >= 0 ? row[p] * width + column[p] : -1;
        weight[p] = wx[p] * wy[p];
      }
      if (!taps.with_slopes) continue;
      for (size_t p = 0; p < static_cast<size_t>(count); ++p) {
        taps.slope[0][to + p] = slopes[0][i][p] * wy[p] * where.slope[0][p];
        taps.slope[1][to + p] = wx[p] * slopes[1][j][p] * where.slope[1][p];
      }
    }
}

template <class T, class A> void fill_taps(Taps<A>& taps, const Shape& s, const T* grid, int64_t count) {
  Located<A> where;
  locate(where, s, grid, count, taps.with_slopes);
  if (s.mode == kNearest)
    s.dims == 2 ? set_nearest<2>(taps, s, where, count) : set_nearest<3>(taps, s, where, count);
  else if (s.mode == kCubic)
    set_cubic(taps, s, where, count);
  else if (s.dims == 2)
    set_linear<2>(taps, s, where, count);
  else
    set_linear<3>(taps, s, where, count);
}

} // namespace
} // namespace tesserack::cpu
