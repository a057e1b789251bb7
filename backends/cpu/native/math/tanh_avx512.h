// tanh for AVX-512: tanh_f32's formula with a reciprocal estimate in place of its division.
#ifndef TESSERACK_CPU_TANH_AVX512_H
#define TESSERACK_CPU_TANH_AVX512_H

#include "exp_avx512.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// A NaN comes out of the second operand of min.
TS_INLINE __m512 tanh_avx512(__m512 x) {
  const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f)), round = _mm512_set1_ps(kRoundF);
  const __m512 a = _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(10.0f), _mm512_xor_ps(x, sign));
  const __m512 t = _mm512_fmadd_ps(a, _mm512_set1_ps(-2 * kLog2EF), round);
  const __m512 n = _mm512_sub_ps(t, round);
  // exp(-2a) = 2^n exp(r)
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2HighF), _mm512_mul_ps(a, _mm512_set1_ps(-2.0f)));
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2LowF), r);
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6d9970p-10f), r, _mm512_set1_ps(0x1.1227f8p-7f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555486p-5f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5554b0p-3f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
  q = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
  const __m512i bits = _mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(t), 23);
  const __m512 one = _mm512_set1_ps(1.0f), two = _mm512_set1_ps(2.0f);
  const __m512 scale = _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_castps_si512(one)));
  // -expm1(-2a), over 2 + expm1(-2a)
  const __m512 e = _mm512_fnmadd_ps(scale, q, _mm512_sub_ps(one, scale));
  const __m512 d = _mm512_sub_ps(two, e), d_low = _mm512_sub_ps(_mm512_sub_ps(two, d), e);
  const __m512 estimate = _mm512_maskz_rcp14_ps(0xffff, d);
  const __m512 y = _mm512_mul_ps(e, estimate);
  const __m512 remainder = _mm512_fnmadd_ps(y, d_low, _mm512_fnmadd_ps(y, d, e));
  return _mm512_or_ps(_mm512_fmadd_ps(remainder, estimate, y), sign);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_TANH_AVX512_H
