// exp and the logistic function with instructions the compiler does not reach from plain code: scaling by a power of
// two, and a reciprocal estimate in place of a division. Masked forms avoid GCC 12's warning about its own headers.
#ifndef TESSERACK_CPU_EXP_AVX512_H
#define TESSERACK_CPU_EXP_AVX512_H

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define TESSERACK_CPU_EXP_AVX512 1

#include "copy/stream.h"
#include "math_f32.h"
#include "reduce/fold.h"

#include <immintrin.h>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// exp(x) = 2^n (1 + q)
struct ExpParts512 {
  __m512 n, q;
};
TS_INLINE ExpParts512 exp_parts512(__m512 x) {
  const __m512 round = _mm512_set1_ps(kRoundF);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(kLog2EF), round), round);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2HighF), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2LowF), r);
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6d9970p-10f), r, _mm512_set1_ps(0x1.1227f8p-7f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555486p-5f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5554b0p-3f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
  return {n, _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r)};
}

// For |x| up to 110, whose result under- or overflows properly in the scaling.
TS_INLINE __m512 exp_clamped(__m512 x) {
  const ExpParts512 parts = exp_parts512(x);
  return _mm512_maskz_scalef_ps(0xffff, _mm512_add_ps(_mm512_set1_ps(1.0f), parts.q), parts.n);
}

// A NaN comes out of the second operand of min and max.
TS_INLINE __m512 exp_avx512(__m512 x) {
  const __m512 low = _mm512_maskz_max_ps(0xffff, _mm512_set1_ps(-110.0f), x);
  return exp_clamped(_mm512_maskz_min_ps(0xffff, _mm512_set1_ps(110.0f), low));
}

// For -25 and above, up to 89; of a zero: +0. Half of it first, so that nothing overflows before its time.
TS_INLINE __m512 expm1_clamped(__m512 x) {
  const ExpParts512 parts = exp_parts512(x);
  const __m512 half = _mm512_set1_ps(0.5f), scale = _mm512_maskz_scalef_ps(0xffff, half, parts.n);
  const __m512 y = _mm512_fmadd_ps(scale, parts.q, _mm512_sub_ps(scale, half));
  return _mm512_add_ps(y, y);
}
TS_INLINE __m512 expm1_avx512(__m512 x) {
  const __m512 low = _mm512_maskz_max_ps(0xffff, _mm512_set1_ps(-25.0f), x);
  const __m512 y = expm1_clamped(_mm512_maskz_min_ps(0xffff, _mm512_set1_ps(89.0f), low));
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ), y, x);
}
// x from 0 on, expm1(x) below.
TS_INLINE __m512 elu_avx512(__m512 x) {
  const __m512 y = expm1_clamped(_mm512_maskz_max_ps(0xffff, _mm512_set1_ps(-25.0f), x));
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ), y, x);
}

TS_INLINE __m512 sigmoid_avx512(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 z = exp_clamped(
      _mm512_maskz_max_ps(0xffff, _mm512_set1_ps(-110.0f), _mm512_or_ps(x, _mm512_set1_ps(-0.0f)))); // exp(-|x|)
  const __m512 d = _mm512_add_ps(one, z), d_low = _mm512_add_ps(_mm512_sub_ps(one, d), z);
  const __m512 numerator = _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), one, z);
  // The estimate has 14 bits; the remainder, taken with fused operations, brings the quotient to 28.
  const __m512 estimate = _mm512_maskz_rcp14_ps(0xffff, d);
  const __m512 y = _mm512_mul_ps(numerator, estimate);
  const __m512 remainder = _mm512_fnmadd_ps(y, d_low, _mm512_fnmadd_ps(y, d, numerator));
  return _mm512_fmadd_ps(remainder, estimate, y);
}

// out[i] = F(a[i]), two vectors in flight.
template <__m512 (*F)(__m512)> inline void map_avx512(float* out, const float* a, int64_t n) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512 first = F(_mm512_loadu_ps(a + i)), second = F(_mm512_loadu_ps(a + i + 16));
    _mm512_storeu_ps(out + i, first);
    _mm512_storeu_ps(out + i + 16, second);
  }
  for (; i < n; i += 16) {
    const __mmask16 mask = n - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (n - i)) - 1);
    _mm512_mask_storeu_ps(out + i, mask, F(_mm512_maskz_loadu_ps(mask, a + i)));
  }
}

template <__m512 (*F)(__m512)> int loop_avx512(float* out, const float* a, const float*, const float*, int64_t n) {
  map_avx512<F>(out, a, n);
  return 0;
}

// y = exp(x - shift); returns the sum of n <= kRun values.
inline float exp_and_sum_part(const float* x, float shift, int64_t n, float* y, const Soon<float>& soon) {
  const __m512 centre = _mm512_set1_ps(shift);
  __m512 a = _mm512_setzero_ps(), b = a;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    soon.ask(i, 32);
    const __m512 first = exp_avx512(_mm512_sub_ps(_mm512_loadu_ps(x + i), centre));
    const __m512 second = exp_avx512(_mm512_sub_ps(_mm512_loadu_ps(x + i + 16), centre));
    _mm512_storeu_ps(y + i, first);
    _mm512_storeu_ps(y + i + 16, second);
    a = _mm512_add_ps(a, first);
    b = _mm512_add_ps(b, second);
  }
  for (; i < n; i += 16) {
    const __mmask16 mask = n - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (n - i)) - 1);
    const __m512 rest = exp_avx512(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), centre));
    _mm512_mask_storeu_ps(y + i, mask, rest);
    a = _mm512_mask_add_ps(a, mask, a, rest);
  }
  return sum_lanes<float>(_mm512_add_ps(a, b));
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_EXP_AVX512_H
