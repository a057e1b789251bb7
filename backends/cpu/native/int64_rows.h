// Rows of int64 to floats and back, where AVX2 has no instruction: eight at a time by way of float64 or int32 where all
// fit, which they nearly always do.
#ifndef TESSERACK_CPU_INT64_ROWS_H
#define TESSERACK_CPU_INT64_ROWS_H

#include "storage.h"

#if defined(__AVX2__) && !defined(__AVX512DQ__)
#include <immintrin.h>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Of |x| < 2^51, exactly: added to the bits of 1.5 * 2^52 they are the last ones of its mantissa.
inline bool fit_float64(__m256i a, __m256i b) {
  const __m256i half = _mm256_set1_epi64x(int64_t{1} << 51), above = _mm256_set1_epi64x(~((int64_t{1} << 52) - 1));
  return _mm256_testz_si256(_mm256_or_si256(_mm256_add_epi64(a, half), _mm256_add_epi64(b, half)), above);
}
inline __m256d to_float64(__m256i x) {
  const __m256d bias = _mm256_set1_pd(0x1.8p52);
  return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_add_epi64(x, _mm256_castpd_si256(bias))), bias);
}

inline __m256i load_int64(const int64_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

inline void convert_row(double* __restrict dst, const int64_t* __restrict src, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i a = load_int64(src + i), b = load_int64(src + i + 4);
    if (fit_float64(a, b)) [[likely]] {
      _mm256_storeu_pd(dst + i, to_float64(a));
      _mm256_storeu_pd(dst + i + 4, to_float64(b));
    } else {
      for (int64_t j = i; j < i + 8; ++j) dst[j] = static_cast<double>(src[j]);
    }
  }
  for (; i < n; ++i) dst[i] = static_cast<double>(src[i]);
}

// Rounded once, since float64 holds them.
inline void convert_row(float* __restrict dst, const int64_t* __restrict src, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i a = load_int64(src + i), b = load_int64(src + i + 4);
    if (fit_float64(a, b)) [[likely]] {
      _mm_storeu_ps(dst + i, _mm256_cvtpd_ps(to_float64(a)));
      _mm_storeu_ps(dst + i + 4, _mm256_cvtpd_ps(to_float64(b)));
    } else {
      for (int64_t j = i; j < i + 8; ++j) dst[j] = static_cast<float>(src[j]);
    }
  }
  for (; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}

inline void convert_row(int64_t* __restrict dst, const float* __restrict src, int64_t n) {
  const __m256 sign = _mm256_set1_ps(-0.0f), limit = _mm256_set1_ps(0x1p31f);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(src + i);
    const __m256 fits = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), limit, _CMP_LT_OQ);
    if (_mm256_movemask_ps(fits) == 0xff) [[likely]] {
      const __m256i whole = _mm256_cvttps_epi32(x);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), _mm256_cvtepi32_epi64(_mm256_castsi256_si128(whole)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i + 4),
                          _mm256_cvtepi32_epi64(_mm256_extracti128_si256(whole, 1)));
    } else {
      for (int64_t j = i; j < i + 8; ++j) dst[j] = float_to_int<int64_t>(src[j]);
    }
  }
  for (; i < n; ++i) dst[i] = float_to_int<int64_t>(src[i]);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_INT64_ROWS_H
