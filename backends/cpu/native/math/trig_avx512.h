// Sine, cosine, arc tangent and the functions to base 2 on vectors of float32, where trig_f32.h and math_f32.h go
// through float64 at half the width. Minimax fits as there; largest errors, over every 37th float32: sine 0.85 ulp,
// cosine 0.87, arc tangent 1.29, powers 0.85 and logarithms 0.99.
#ifndef TESSERACK_CPU_TRIG_AVX512_H
#define TESSERACK_CPU_TRIG_AVX512_H

#include "exp_avx512.h"
#include "trig_short.h"

#ifdef TESSERACK_CPU_EXP_AVX512

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// sin(x), or a right angle on cos(x), for |x| below the limit: x less n right angles, and by n's last bits which of the
// two functions of the rest and with which sign.
TS_INLINE __m512 sin_or_cos_avx512(__m512 x, int turn) {
  const __m512 one = _mm512_set1_ps(1.0f), round = _mm512_set1_ps(kRoundF);
  const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.45f306p-1f), round), n = _mm512_sub_ps(t, round);
  const __m512i quadrant = _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(turn));
  const __m512 first = _mm512_fnmadd_ps(n, _mm512_set1_ps(kRightHigh), x);
  const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kRightMiddle), first);
  __m512 low = _mm512_fnmadd_ps(n, _mm512_set1_ps(kRightMiddle), _mm512_sub_ps(first, r)); // what r lost
  low = _mm512_fnmadd_ps(n, _mm512_set1_ps(kRightLow), low);
  const __m512 z = _mm512_mul_ps(r, r), half = _mm512_mul_ps(z, _mm512_set1_ps(0.5f));
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6c5dc4p-19f), z, _mm512_set1_ps(-0x1.a00d84p-13f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.111106p-7f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-0x1.555556p-3f));
  const __m512 sine = _mm512_add_ps(r, _mm512_fmadd_ps(_mm512_mul_ps(r, z), p, low));
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.99771ap-16f), z, _mm512_set1_ps(-0x1.6c0aa4p-10f));
  q = _mm512_fmadd_ps(q, z, _mm512_set1_ps(0x1.555548p-5f));
  const __m512 near = _mm512_sub_ps(one, half); // 1 - z / 2, and what it lost
  const __m512 lost = _mm512_fnmadd_ps(r, low, _mm512_sub_ps(_mm512_sub_ps(one, near), half));
  const __m512 cosine = _mm512_add_ps(near, _mm512_fmadd_ps(_mm512_mul_ps(z, z), q, lost));
  const __mmask16 odd = _mm512_movepi32_mask(_mm512_maskz_slli_epi32(0xffff, quadrant, 31));
  const __m512i sign = _mm512_and_si512(_mm512_maskz_slli_epi32(0xffff, quadrant, 30), _mm512_set1_epi32(INT32_MIN));
  const __m512 y = _mm512_mask_blend_ps(odd, sine, cosine);
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(y), sign));
}
TS_INLINE __m512 sin_avx512(__m512 x) { // 0 keeps its sign
  const __mmask16 zero = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ);
  return _mm512_mask_blend_ps(zero, sin_or_cos_avx512(x, 0), x);
}
TS_INLINE __m512 cos_avx512(__m512 x) { return sin_or_cos_avx512(x, 1); }

// Beyond 1 the rest of a right angle of the reciprocal's.
TS_INLINE __m512 atan_avx512(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
  const __m512 a = _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
  const __mmask16 above = _mm512_cmp_ps_mask(a, one, _CMP_GT_OQ);
  const __m512 t = _mm512_mask_div_ps(a, above, _mm512_set1_ps(-1.0f), a), z = _mm512_mul_ps(t, t);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(-0x1.d6300ap-10f), z, _mm512_set1_ps(0x1.65a66ep-7f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-0x1.fed174p-6f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.dac9f0p-5f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-0x1.583494p-4f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.c09a00p-4f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-0x1.2421b6p-3f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.9991fep-3f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-0x1.55553ep-2f));
  const __m512 tail =
      _mm512_fmadd_ps(_mm512_mul_ps(t, z), p, _mm512_maskz_mov_ps(above, _mm512_set1_ps(-0x1.777a5cp-25f)));
  const __m512 y = _mm512_add_ps(_mm512_add_ps(t, tail), _mm512_maskz_mov_ps(above, _mm512_set1_ps(0x1.921fb6p+0f)));
  return _mm512_or_ps(y, sign);
}

// 2^n times 2^r, |r| <= 1 / 2.
TS_INLINE __m512 exp2_avx512(__m512 x) {
  const __m512 low = _mm512_maskz_max_ps(0xffff, _mm512_set1_ps(-160.0f), x);
  const __m512 near = _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(160.0f), low), round = _mm512_set1_ps(kRoundF);
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(near, round), round), r = _mm512_sub_ps(near, n);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.446a18p-13f), r, _mm512_set1_ps(0x1.5f08b2p-10f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3b29e6p-7f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6af6cp-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebfbe0p-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e430p-1f));
  return _mm512_maskz_scalef_ps(0xffff, _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f)), n);
}

// The exponent and the logarithm of a mantissa from sqrt(1/2) to sqrt(2), whose slope at 1 stands in two parts.
TS_INLINE __m512 log2_avx512(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 m = _mm512_maskz_getmant_ps(0xffff, x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
  const __mmask16 upper = _mm512_cmp_ps_mask(m, _mm512_set1_ps(0x1.6a09e6p+0f), _CMP_GT_OQ);
  __m512 e = _mm512_maskz_getexp_ps(0xffff, x);
  e = _mm512_mask_add_ps(e, upper, e, one);
  const __m512 f = _mm512_sub_ps(_mm512_mask_mul_ps(m, upper, m, _mm512_set1_ps(0.5f)), one);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(-0x1.c251c6p-4f), f, _mm512_set1_ps(0x1.7d4ee2p-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-0x1.8750ccp-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.a30518p-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-0x1.eabbd4p-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.277e38p-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-0x1.715a7ap-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ec7096p-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-0x1.715470p-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.4ae0c0p-26f));
  return _mm512_add_ps(e, _mm512_fmadd_ps(f, _mm512_set1_ps(0x1.715476p+0f), _mm512_mul_ps(f, p)));
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_TRIG_AVX512_H
