// Rows of float16 to float32 and back, by the processor's own conversions where it has them; of float32 to bfloat16.
#ifndef TESSERACK_CPU_HALF_ROWS_H
#define TESSERACK_CPU_HALF_ROWS_H

#include "dtype_switch.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

#if defined(__F16C__)
// GCC 12 does not vectorise half conversions by itself.
inline void convert_row(float* __restrict dst, const Half* __restrict src, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(dst + i,
                     _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i))));
#endif
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  for (; i < n; ++i) dst[i] = half_to_float(src[i]);
}
inline void convert_row(Half* __restrict dst, const float* __restrict src, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i),
                        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(src + i), 0));
#endif
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), 0));
  for (; i < n; ++i) dst[i] = float_to_half(src[i]);
}
#if defined(__AVX2__) && !defined(__AVX512BW__)
// To nearest even, the upper 16 bits of each of eight; what is added to a NaN could make it another number.
inline __m256i bfloat16_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x),
                odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan)), 16);
}
inline void convert_row(BFloat16* __restrict dst, const float* __restrict src, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i low = bfloat16_bits(_mm256_loadu_ps(src + i)), high = bfloat16_bits(_mm256_loadu_ps(src + i + 8));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), packed);
  }
  for (; i < n; ++i) dst[i] = float_to_bfloat16(src[i]);
}
#endif
#else
inline void convert_row(float* __restrict dst, const Half* __restrict src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = half_to_float(src[i]);
}
inline void convert_row(Half* __restrict dst, const float* __restrict src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = float_to_half(src[i]);
}
#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_HALF_ROWS_H
