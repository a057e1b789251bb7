// Matrices of 4-byte elements, transposed on their way: whole cache lines are read and written, by blocks in registers.
#ifndef TESSERACK_CPU_TRANSPOSE_H
#define TESSERACK_CPU_TRANSPOSE_H

#include "math/simd_f32.h"

#ifdef TESSERACK_CPU_SIMD_F32

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int64_t kTransposeLine = 16; // elements of a cache line
constexpr int64_t kTransposeBand = 64; // rows written side by side

template <bool Streamed> inline void put_register(float* at, simd::Vector v) {
#if defined(__AVX512F__)
  Streamed ? _mm512_stream_ps(at, v) : simd::store(at, v);
#else
  Streamed ? _mm256_stream_ps(at, v) : simd::store(at, v);
#endif
}

// kLanes x kLanes elements; the source's lines after these are asked for.
template <class Put> inline void transpose_square(const float* from, int64_t from_col, bool ask, const Put& put) {
  using namespace simd;
  Vector block[kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    block[i] = load(from + i * from_col);
    if (ask) __builtin_prefetch(from + (i + kTransposeLine) * from_col);
  }
  simd::transpose(block);
#pragma GCC unroll 16
  for (int64_t j = 0; j < kLanes; ++j) put(j, block[j]);
}

// A square as wide as a line. Registers that hold half of one go through a tile, so that each line is read and written
// at one time: rows a power of two apart share a set of the first cache, which holds eight.
template <bool Streamed>
inline void transpose_lines(float* to, int64_t to_row, const float* from, int64_t from_col, bool ask) {
  using simd::kLanes;
  if constexpr (kLanes == kTransposeLine) {
    transpose_square(from, from_col, ask,
                     [&](int64_t j, simd::Vector v) { put_register<Streamed>(to + j * to_row, v); });
  } else {
    alignas(64) float tile[kTransposeLine * kTransposeLine];
    for (int64_t c = 0; c < kTransposeLine; c += kLanes)
      for (int64_t r = 0; r < kTransposeLine; r += kLanes)
        transpose_square(from + c * from_col + r, from_col, ask && r == 0,
                         [&](int64_t j, simd::Vector v) { simd::store(tile + (r + j) * kTransposeLine + c, v); });
    for (int64_t r = 0; r < kTransposeLine; ++r)
      for (int64_t c = 0; c < kTransposeLine; c += kLanes)
        put_register<Streamed>(to + r * to_row + c, simd::load(tile + r * kTransposeLine + c));
  }
}

// to[r * to_row + c] = from[c * from_col + r] for r < rows and c < cols. To be streamed, every row has to begin with a
// line.
template <bool Streamed>
inline void transpose_band(float* to, int64_t to_row, const float* from, int64_t from_col, int64_t rows, int64_t cols) {
  const int64_t whole_rows = rows / kTransposeLine * kTransposeLine,
                whole_cols = cols / kTransposeLine * kTransposeLine;
  for (int64_t c = 0; c < whole_cols; c += kTransposeLine)
    for (int64_t r = 0; r < whole_rows; r += kTransposeLine)
      transpose_lines<Streamed>(to + r * to_row + c, to_row, from + c * from_col + r, from_col,
                                c + 2 * kTransposeLine <= cols);
  typedef uint32_t Bits __attribute__((may_alias)); // not floats: whatever they are stays as it is
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c)
      reinterpret_cast<Bits*>(to)[r * to_row + c] = reinterpret_cast<const Bits*>(from)[c * from_col + r];
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_TRANSPOSE_H
