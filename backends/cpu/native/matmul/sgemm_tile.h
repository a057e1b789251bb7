// The inner kernels of the float32 matrix product: a tile of C held in registers.
#ifndef TESSERACK_CPU_SGEMM_TILE_H
#define TESSERACK_CPU_SGEMM_TILE_H

#include "sgemm_tile_avx2.h"

#ifdef TESSERACK_CPU_SIMD_F32
#include <array>
#include <utility>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace sgemm {

using simd::kLanes;
using simd::Vector;

// Accumulators, a row of B and the address registers just fit: 14 x 2 registers with AVX-512, 6 x 2 with AVX2.
constexpr int kTileRows = simd::kRegisters == 32 ? 14 : 6;
constexpr int64_t kTileCols = 2 * kLanes;
constexpr int kWideRows = simd::kRegisters == 32 ? 6 : 3; // tiles of up to so many rows are four registers wide
constexpr int kPrefetch = 6;                              // rows of B ahead
constexpr int kLine = 16;                                 // elements of a cache line

// One tile: c = start + a @ b. Strides in elements; columns beyond the last register's mask are not touched. With more
// runs than one the sum goes on: the next run of the depth starts a_run behind the last one's start in A, and so in B.
struct Tile {
  const float* a;
  int64_t a_step; // from one row of A to the next, or from one column to the next: see multiply
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  const float* start; // NULL: zeros
  int64_t start_row;
  int64_t depth;
  simd::Mask last; // of the last register of a row
  bool last_whole; // the mask leaves nothing out
  bool b_whole;    // the last register of a row of B may be read whole
  int64_t runs = 1, a_run = 0, b_run = 0;
};

// c = start + sums. Whole: the last register of a row, too.
template <bool Whole, int R, int V> inline void finish(const Tile& t, Vector (&sums)[R][V]) {
  // Copies, for a store of a vector might change a tile as far as the compiler knows.
  float* const c = t.c;
  const float* const start = t.start;
  const int64_t c_row = t.c_row, start_row = t.start_row;
  const simd::Mask last = t.last;
  if (start) {
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const float* at = start + i * start_row + v * kLanes;
        sums[i][v] = simd::add(sums[i][v], Whole || v < V - 1 ? simd::load(at) : simd::load(at, last));
      }
  }
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* at = c + i * c_row + v * kLanes;
      Whole || v < V - 1 ? simd::store(at, sums[i][v]) : simd::store(at, sums[i][v], last);
    }
}

// sums += one run of A times one of B. ByRows: a row of A is contiguous; else a column is.
template <int R, int V, bool ByRows>
inline void multiply_run(const Tile& t, const float* a, const float* b, Vector (&sums)[R][V]) {
  // Every third row has a pointer; the other two are addressed by multiples of the stride.
  constexpr int kPointers = ByRows ? (R + 2) / 3 : 1;
  const float* rows[kPointers];
  for (int i = 0; i < kPointers; ++i) rows[i] = a + 3 * i * t.a_step;
  for (int64_t p = 0; p < t.depth; ++p, b += t.b_row) {
    Vector right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      right[v] = v == V - 1 ? simd::load(b + v * kLanes, t.last) : simd::load(b + v * kLanes);
      if (v * kLanes % kLine == 0) __builtin_prefetch(b + kPrefetch * t.b_row + v * kLanes);
    }
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      const Vector left = simd::broadcast(ByRows ? rows[i / 3] + i % 3 * t.a_step : rows[0] + i);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[i][v] = simd::fma(left, right[v], sums[i][v]);
    }
#pragma GCC unroll 5
    for (int i = 0; i < kPointers; ++i) rows[i] += ByRows ? 1 : t.a_step;
  }
}

// R rows and V registers of columns.
template <int R, int V, bool ByRows> void multiply(const Tile& t) {
  Vector sums[R][V];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[i][v] = simd::zero();
  for (int i = 0; i < R; ++i)
    for (int v = 0; v < V; v += kLine / kLanes) __builtin_prefetch(t.c + i * t.c_row + v * kLanes, 1);
#ifndef __AVX512F__
  if constexpr (V == 2 && R >= kRoundsFrom) {
    if (t.b_whole && t.depth >= kSteps && t.runs > 0) {
      multiply_rounds<R, ByRows>(sums, t.a, t.a_step, t.b, t.b_row, t.depth, t.runs, t.a_run, t.b_run, kPrefetch);
      return t.last_whole ? finish<true>(t, sums) : finish<false>(t, sums);
    }
  }
#endif
  for (int64_t run = 0; run < t.runs; ++run)
    multiply_run<R, V, ByRows>(t, t.a + run * t.a_run, t.b + run * t.b_run, sums);
  finish<false>(t, sums);
}

using MultiplyFn = void (*)(const Tile&);

template <int V, bool ByRows, int... R> constexpr auto kernels_of(std::integer_sequence<int, R...>) {
  return std::array<MultiplyFn, sizeof...(R)>{&multiply<R + 1, V, ByRows>...};
}

// The kernel for 1 <= rows <= kTileRows and 1, 2 or (up to kWideRows rows) 4 registers of columns.
template <bool ByRows> MultiplyFn kernel(int64_t rows, int64_t registers) {
  static constexpr auto one = kernels_of<1, ByRows>(std::make_integer_sequence<int, kTileRows>());
  static constexpr auto two = kernels_of<2, ByRows>(std::make_integer_sequence<int, kTileRows>());
  static constexpr auto four = kernels_of<4, ByRows>(std::make_integer_sequence<int, kWideRows>());
  const auto at = static_cast<size_t>(rows - 1);
  return registers == 4 ? four[at] : registers == 2 ? two[at] : one[at];
}

// Scalar products of R rows with four columns that are contiguous along the depth.
constexpr int kDotRows = simd::kRegisters == 32 ? 6 : 2, kDotCols = 4;

// Each of the four results of a row is handed to store(row, __m128).
template <int R, class Store>
void dot(const float* a, int64_t a_row, const float* const (&b)[kDotCols], int64_t depth, const Store& store) {
  Vector sums[R][kDotCols];
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) sums[i][j] = simd::zero();
  const auto step = [&](int64_t p, auto... mask) {
    Vector right[kDotCols];
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) right[j] = simd::load(b[j] + p, mask...);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const Vector left = simd::load(a + i * a_row + p, mask...);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) sums[i][j] = simd::fma(left, right[j], sums[i][j]);
    }
  };
  int64_t p = 0;
  for (; p + kLanes <= depth; p += kLanes) step(p);
  if (p < depth) step(p, simd::first(depth - p));
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i) store(i, simd::sums(sums[i][0], sums[i][1], sums[i][2], sums[i][3]));
}

} // namespace sgemm
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_SGEMM_TILE_H
