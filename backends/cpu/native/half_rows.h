// Rows of float16 to float32 and back, by the processor's own conversions where it has them.
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
