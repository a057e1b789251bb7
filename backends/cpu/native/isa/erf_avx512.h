// erf and gelu by a table in registers: polynomials of erf(a) / a, the interval's coefficients picked by a permutation.
#ifndef TESSERACK_CPU_ERF_AVX512_H
#define TESSERACK_CPU_ERF_AVX512_H

#include "exp_avx512.h"

#ifdef TESSERACK_CPU_EXP_AVX512

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// erf(a) / a = sum of kErfTable[p][i] * (a - (i + 1/2) / 8)^p for a in [i / 8, (i + 1) / 8), interpolated at
// Chebyshev's points to 2^-28.
alignas(64) constexpr float kErfTable[5][32] = {
    {0x1.207d48p+0f, 0x1.1d83ecp+0f, 0x1.17bb2ap+0f, 0x1.0f725ap+0f, 0x1.0515ecp+0f, 0x1.f2491cp-1f, 0x1.d84714p-1f,
     0x1.bd2794p-1f, 0x1.a1d1fp-1f,  0x1.8706c6p-1f, 0x1.6d59d8p-1f, 0x1.553186p-1f, 0x1.3ecaa4p-1f, 0x1.2a3f12p-1f,
     0x1.178db8p-1f, 0x1.06a27ap-1f, 0x1.eebaaap-2f, 0x1.d33048p-2f, 0x1.ba55dp-2f,  0x1.a3dd54p-2f, 0x1.8f7e6ap-2f,
     0x1.7cf7e2p-2f, 0x1.6c1044p-2f, 0x1.5c959ap-2f, 0x1.4e5cc6p-2f, 0x1.4140b8p-2f, 0x1.352196p-2f, 0x1.29e3fcp-2f,
     0x1.1f704p-2f,  0x1.15b1e2p-2f, 0x1.0c9714p-2f, 0x1.04104p-2f},
    {-0x1.804068p-5f, -0x1.1ad8ecp-3f, -0x1.c630fcp-3f, -0x1.2cd334p-2f, -0x1.679e46p-2f, -0x1.91ec1p-2f,
     -0x1.aba09ep-2f, -0x1.b5e32cp-2f, -0x1.b2cde6p-2f, -0x1.a50d4ap-2f, -0x1.8f80a2p-2f, -0x1.74e932p-2f,
     -0x1.57b05ap-2f, -0x1.39c6fep-2f, -0x1.1c9bc8p-2f, -0x1.0122e4p-2f, -0x1.cfd144p-3f, -0x1.a251ep-3f,
     -0x1.79cddep-3f, -0x1.56032ep-3f, -0x1.368804p-3f, -0x1.1ae238p-3f, -0x1.02968cp-3f, -0x1.da62fap-4f,
     -0x1.b49738p-4f, -0x1.9315acp-4f, -0x1.75443cp-4f, -0x1.5aa058p-4f, -0x1.42bbe2p-4f, -0x1.2d3a0ep-4f,
     -0x1.19cc84p-4f, -0x1.0830f6p-4f},
    {-0x1.7e7394p-2f, -0x1.6948aep-2f, -0x1.414006p-2f, -0x1.0a9336p-2f, -0x1.95787cp-3f, -0x1.0f454ap-3f,
     -0x1.1b303ap-4f, -0x1.96b644p-7f, 0x1.1c8924p-5f,  0x1.22109p-4f,   0x1.881c76p-4f,  0x1.c45ac4p-4f,
     0x1.dd90d8p-4f,  0x1.dbcb3p-4f,   0x1.c71588p-4f,  0x1.a6972ap-4f,  0x1.8017a6p-4f,  0x1.57dbc4p-4f,
     0x1.30c0bcp-4f,  0x1.0c7a56p-4f,  0x1.d7ba38p-5f,  0x1.9e4a24p-5f,  0x1.6c6098p-5f,  0x1.415556p-5f,
     0x1.1c56e8p-5f,  0x1.f91ddcp-6f,  0x1.c26b6ep-6f,  0x1.9335e6p-6f,  0x1.6a4f9ep-6f,  0x1.46bb42p-6f,
     0x1.27a61cp-6f,  0x1.0c61ap-6f},
    {0x1.cb3d6ap-6f,  0x1.4bd69ap-4f,  0x1.00968ap-3f,  0x1.40c1fcp-3f,  0x1.61e4fp-3f,   0x1.63f3c2p-3f,
     0x1.4ae1dp-3f,   0x1.1d7a22p-3f,  0x1.c7c5bep-4f,  0x1.4c4d26p-4f,  0x1.ac3354p-5f,  0x1.bb5c8p-6f,
     0x1.bec9b8p-8f,  -0x1.08b882p-7f, -0x1.2642a4p-6f, -0x1.82b6ep-6f,  -0x1.a99698p-6f, -0x1.aabbbep-6f,
     -0x1.93fa38p-6f, -0x1.702f7ap-6f, -0x1.4720eep-6f, -0x1.1dd9d8p-6f, -0x1.ee856p-7f,  -0x1.a9807ap-7f,
     -0x1.6d7b28p-7f, -0x1.3a2b5cp-7f, -0x1.0eb864p-7f, -0x1.d42c16p-8f, -0x1.966faap-8f, -0x1.6253c6p-8f,
     -0x1.36341cp-8f, -0x1.10b128p-8f},
    {0x1.c73bc6p-4f,  0x1.9588cap-4f,  0x1.3a5318p-4f,  0x1.885988p-5f,  0x1.13b1fcp-6f,  -0x1.8f4ae2p-7f,
     -0x1.249a42p-5f, -0x1.a77db8p-5f, -0x1.e7c14p-5f,  -0x1.eb72c2p-5f, -0x1.c017bcp-5f, -0x1.76a42ap-5f,
     -0x1.1fc74p-5f,  -0x1.928712p-6f, -0x1.f25e22p-7f, -0x1.f6c93ep-8f, -0x1.168cecp-9f, 0x1.9e32b4p-10f,
     0x1.ede816p-9f,  0x1.3c0efep-8f,  0x1.4ea0bap-8f,  0x1.4243bcp-8f,  0x1.258342p-8f,  0x1.022c1ap-8f,
     0x1.bc6c94p-9f,  0x1.79aad4p-9f,  0x1.3eda78p-9f,  0x1.0c9dcep-9f,  0x1.c4eef8p-10f, 0x1.7edcb6p-10f,
     0x1.44d446p-10f, 0x1.14c366p-10f}};

// 2 ulp, found by running over every float32.
TS_INLINE __m512 erf_avx512(__m512 x) {
  const __m512 sign_bit = _mm512_set1_ps(-0.0f), one = _mm512_set1_ps(1.0f), round = _mm512_set1_ps(kRoundF);
  const __m512 sign = _mm512_and_ps(x, sign_bit);
  // A NaN comes out of the second operand of min.
  const __m512 a = _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(3.99f), _mm512_xor_ps(x, sign));
  const __m512 shifted = _mm512_sub_ps(a, _mm512_set1_ps(0.0625f));
  const __m512 place = _mm512_fmadd_ps(shifted, _mm512_set1_ps(8.0f), round);
  const __m512 t = _mm512_fnmadd_ps(_mm512_sub_ps(place, round), _mm512_set1_ps(0.125f), shifted);
  const __m512i interval = _mm512_castps_si512(place); // in the lowest five bits, which a permutation reads
  const auto coefficient = [&](int p) {
    return _mm512_permutex2var_ps(_mm512_load_ps(kErfTable[p]), interval, _mm512_load_ps(kErfTable[p] + 16));
  };
  __m512 q = _mm512_fmadd_ps(coefficient(4), t, coefficient(3));
  q = _mm512_fmadd_ps(q, t, coefficient(2));
  q = _mm512_fmadd_ps(q, t, coefficient(1));
  q = _mm512_fmadd_ps(q, t, coefficient(0));
  const __m512 y = _mm512_maskz_min_ps(0xffff, one, _mm512_mul_ps(a, q));
  const __mmask16 reached = _mm512_cmp_ps_mask(a, _mm512_set1_ps(3.92f), _CMP_GE_OQ);
  return _mm512_or_ps(_mm512_mask_blend_ps(reached, y, one), sign);
}

// x / 2 * (1 + erf(x / sqrt(2)))
TS_INLINE __m512 gelu_avx512(__m512 x) {
  const __m512 y = erf_avx512(_mm512_mul_ps(x, _mm512_set1_ps(0x1.6a09e6p-1f)));
  return _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.5f)), _mm512_add_ps(y, _mm512_set1_ps(1.0f)));
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_ERF_AVX512_H
