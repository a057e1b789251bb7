// One register of float32 with a masked tail, for kernels that are written instruction by instruction.
#ifndef TESSERACK_CPU_SIMD_F32_H
#define TESSERACK_CPU_SIMD_F32_H

#include <cstdint>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#define TESSERACK_CPU_SIMD_F32 1
#include <immintrin.h>
#include <utility>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace simd {

#if defined(__AVX512F__)

constexpr int64_t kLanes = 16;
constexpr int kRegisters = 32;
using Vector = __m512;
using Mask = __mmask16;

// The first n lanes, 0 <= n <= kLanes.
inline Mask first(int64_t n) { return static_cast<Mask>((1u << n) - 1); }
inline Vector zero() { return _mm512_setzero_ps(); }
inline Vector load(const float* at) { return _mm512_loadu_ps(at); }
inline Vector load(const float* at, Mask mask) { return _mm512_maskz_loadu_ps(mask, at); }
inline void store(float* at, Vector v) { _mm512_storeu_ps(at, v); }
inline void store(float* at, Vector v, Mask mask) { _mm512_mask_storeu_ps(at, mask, v); }
inline Vector broadcast(const float* at) { return _mm512_set1_ps(*at); }
inline Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline __m256 half_sum(Vector v) {
  // By the compiler's own shuffle: GCC 12 warns of what its header leaves undefined in the intrinsics.
  return _mm256_add_ps(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                       __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}

#else

constexpr int64_t kLanes = 8;
constexpr int kRegisters = 16;
using Vector = __m256;
using Mask = __m256i;

inline Mask first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vector zero() { return _mm256_setzero_ps(); }
inline Vector load(const float* at) { return _mm256_loadu_ps(at); }
inline Vector load(const float* at, Mask mask) { return _mm256_maskload_ps(at, mask); }
inline void store(float* at, Vector v) { _mm256_storeu_ps(at, v); }
// The first lanes by plain stores: AMD's processors take a masked one apart into dozens of instructions, one that
// leaves nothing out too, which cost the tiles of a matrix product 8 to 15 %.
inline void store(float* at, Vector v, Mask mask) {
  const int lanes = _mm256_movemask_ps(_mm256_castsi256_ps(mask));
  if (lanes == 255) return store(at, v);
  __m128 part = _mm256_castps256_ps128(v);
  if (lanes & 8) {
    _mm_storeu_ps(at, part);
    at += 4;
    part = _mm256_extractf128_ps(v, 1);
  }
  const int left = lanes & 8 ? lanes >> 4 : lanes;
  if (left & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(at), part);
    at += 2;
    part = _mm_movehl_ps(part, part);
  }
  if (left == 1 || left == 7) _mm_store_ss(at, part);
}
inline Vector broadcast(const float* at) { return _mm256_broadcast_ss(at); }
inline Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256 half_sum(Vector v) { return v; }

#endif

// The sums of four registers' lanes.
inline __m128 sums(Vector a, Vector b, Vector c, Vector d) {
  const __m256 ab = _mm256_hadd_ps(half_sum(a), half_sum(b)), cd = _mm256_hadd_ps(half_sum(c), half_sum(d));
  const __m256 all = _mm256_hadd_ps(ab, cd);
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

// In a 2 x 2 arrangement of blocks of `Block` lanes, those off the diagonal change places.
template <int Block, int... I> void swap_blocks(Vector& a, Vector& b, std::integer_sequence<int, I...>) {
  constexpr int lanes = static_cast<int>(kLanes); // lanes of b count from here
  const Vector low = __builtin_shufflevector(a, b, (I & Block ? lanes + I - Block : I)...);
  b = __builtin_shufflevector(a, b, (I & Block ? lanes + I : I + Block)...);
  a = low;
}

// Transposes kLanes registers in place, by blocks of 1, 2, 4, ... lanes.
template <int Block = 1> void transpose(Vector (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if (!(i & Block)) swap_blocks<Block>(rows[i], rows[i + Block], std::make_integer_sequence<int, kLanes>());
  if constexpr (2 * Block < kLanes) transpose<2 * Block>(rows);
}

// to[j * to_row + i] = from[i * from_row + j] for i < rows and j < cols, both at most kLanes. Each j takes a whole
// register, with zeros after the last row, or what the mask leaves of it.
template <bool Whole, class... M>
inline void transpose_block(const float* from, int64_t from_row, int64_t rows, int64_t cols, float* to, int64_t to_row,
                            M... mask) {
  const Mask present = first(cols);
  Vector block[kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    if constexpr (Whole) {
      block[i] = load(from + i * from_row);
      __builtin_prefetch(from + i * from_row + 2 * kLanes);
    } else
      block[i] = i < rows ? load(from + i * from_row, present) : zero();
  }
  transpose(block);
#pragma GCC unroll 16
  for (int64_t j = 0; j < kLanes; ++j)
    if (Whole || j < cols) store(to + j * to_row, block[j], mask...);
}
template <class... M>
inline void transpose_block(const float* from, int64_t from_row, int64_t rows, int64_t cols, float* to, int64_t to_row,
                            M... mask) {
  const bool whole = rows == kLanes && cols == kLanes;
  (whole ? transpose_block<true, M...> : transpose_block<false, M...>)(from, from_row, rows, cols, to, to_row, mask...);
}

} // namespace simd
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_SIMD_F32_H
