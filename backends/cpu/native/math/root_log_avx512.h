// Roots and logarithms on vectors of float32: an estimate refined in place of the root, and a table in registers.
// Largest errors, over every float32: roots none, logarithms 0.76 ulp.
#ifndef TESSERACK_CPU_ROOT_LOG_AVX512_H
#define TESSERACK_CPU_ROOT_LOG_AVX512_H

#include "exp_avx512.h"

#ifdef TESSERACK_CPU_EXP_AVX512

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// As double_avx512.h has it.
TS_INLINE __m512 sqrt_avx512(__m512 x) {
  const __m512i above = _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x0d800000)); // 2^-100
  const __mmask16 odd = _mm512_cmpge_epu32_mask(above, _mm512_set1_epi32(0x7f800000 - 0x0d800000));
  if (__builtin_expect(odd != 0, 0)) return _mm512_maskz_sqrt_ps(0xffff, x);
  const __m512 estimate = _mm512_maskz_rsqrt14_ps(0xffff, x), half = _mm512_set1_ps(0.5f);
  __m512 g = _mm512_mul_ps(x, estimate), h = _mm512_mul_ps(estimate, half);
  const __m512 r = _mm512_fnmadd_ps(g, h, half);
  g = _mm512_fmadd_ps(g, r, g), h = _mm512_fmadd_ps(h, r, h);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(g, g, x), h, g);
}

// By the sixteenth of [1, 2) that the mantissa lies in: a c of five bits, whose product with it less 1 is exact and
// small, and -log(c) in two parts, of which the first is a multiple of 2^-15. The last is counted from 2, so that
// nothing is lost just below 1.
alignas(64) constexpr float kLogTableF[3][16] = {
    {0x1.0p+0f, 0x1.ep-1f, 0x1.cp-1f, 0x1.ap-1f, 0x1.9p-1f, 0x1.8p-1f, 0x1.7p-1f, 0x1.6p-1f, 0x1.5p-1f, 0x1.4p-1f,
     0x1.3p-1f, 0x1.3p-1f, 0x1.2p-1f, 0x1.1p-1f, 0x1.1p-1f, 0x1.0p-1f},
    {0x0.0p+0f, 0x1.086p-4f, 0x1.118p-3f, 0x1.a94p-3f, 0x1.f99p-3f, 0x1.2698p-2f, 0x1.5228p-2f, 0x1.7fbp-2f,
     0x1.af5p-2f, 0x1.e148p-2f, 0x1.0ae8p-1f, 0x1.0ae8p-1f, 0x1.2698p-1f, 0x1.43d8p-1f, 0x1.43d8p-1f, 0x1.62e4p-1f},
    {0x0.0p+0f, -0x1.9d2988p-18f, -0x1.c5f76p-17f, -0x1.2c3752p-19f, 0x1.c6cb3cp-19f, -0x1.deecb2p-18f, 0x1.7039c6p-17f,
     -0x1.7109fap-20f, 0x1.4a9246p-17f, 0x1.4344e4p-19f, -0x1.23a5f6p-18f, -0x1.23a5f6p-18f, -0x1.deecb2p-17f,
     0x1.ff2f92p-17f, 0x1.ff2f92p-17f, 0x1.7f7d1cp-20f},
};
TS_INLINE __m512 log_avx512(__m512 x) {
  const __m512 m = _mm512_maskz_getmant_ps(0xffff, x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
  const __m512 e = _mm512_maskz_getexp_ps(0xffff, x);
  const __m512i k = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(m), 19);
  const auto picked = [&](int part) {
    return _mm512_maskz_permutexvar_ps(0xffff, k, _mm512_load_ps(kLogTableF[part]));
  };
  const __m512 r = _mm512_fmsub_ps(m, picked(0), _mm512_set1_ps(1.0f));
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(-0x1.4419a2p-3f), r, _mm512_set1_ps(0x1.9a0968p-3f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(-0x1.000374p-2f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555550p-2f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(-0.5f));
  const __m512 low = _mm512_fmadd_ps(e, _mm512_set1_ps(kLn2LowF), picked(2));
  const __m512 base = _mm512_fmadd_ps(e, _mm512_set1_ps(kLn2HighF), picked(1));
  const __m512 y = _mm512_add_ps(base, _mm512_add_ps(r, _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), low)));
  return _mm512_mask_mov_ps(y, _mm512_fpclass_ps_mask(x, 0x0e), base); // of zeros and of infinity
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_ROOT_LOG_AVX512_H
