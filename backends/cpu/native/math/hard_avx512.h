// hardsigmoid and hardswish for AVX-512: a sixth by a product and its remainder, which round as the division does.
#ifndef TESSERACK_CPU_HARD_AVX512_H
#define TESSERACK_CPU_HARD_AVX512_H

#include "exp_avx512.h"

#ifdef TESSERACK_CPU_EXP_AVX512

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// min(max(x + 3, 0), 6); a NaN comes out of the second operand of min and max.
TS_INLINE __m512 relu6_avx512(__m512 x) {
  const __m512 low = _mm512_maskz_max_ps(0xffff, _mm512_setzero_ps(), _mm512_add_ps(x, _mm512_set1_ps(3.0f)));
  return _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(6.0f), low);
}

// x / 6. Where the remainder is no number (of an infinity, or after an overflow) the product stands, and where there is
// none: a zero keeps its sign.
TS_INLINE __m512 sixth(__m512 x) {
  const __m512 inverse = _mm512_set1_ps(0x1.555556p-3f);
  const __m512 q = _mm512_mul_ps(x, inverse);
  const __m512 remainder = _mm512_fnmadd_ps(q, _mm512_set1_ps(6.0f), x);
  const __mmask16 number = _mm512_cmp_ps_mask(remainder, _mm512_setzero_ps(), _CMP_NEQ_OQ);
  return _mm512_mask3_fmadd_ps(remainder, inverse, q, number);
}

TS_INLINE __m512 hardsigmoid_avx512(__m512 x) { return sixth(relu6_avx512(x)); }
TS_INLINE __m512 hardswish_avx512(__m512 x) { return sixth(_mm512_mul_ps(x, relu6_avx512(x))); }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_HARD_AVX512_H
