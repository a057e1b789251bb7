// erfc by a table in registers: exp(-x^2) times a polynomial of its interval, whose coefficients a permutation picks.
#ifndef TESSERACK_CPU_ERFC_AVX512_H
#define TESSERACK_CPU_ERFC_AVX512_H

#include "exp_avx512.h"

#ifdef TESSERACK_CPU_EXP_AVX512

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// erfcx(a) = exp(a^2) erfc(a) = sum of kErfcxTable[p][i] * (a - centre)^p, interpolated at Chebyshev's points to 2^-28.
// 1 + a, from 1 to 16, has i as the two lowest bits of its exponent and the three highest of its mantissa.
alignas(64) constexpr float kErfcxTable[6][32] = {
    {0x1.9531e0p-2f, 0x1.5f88f6p-2f, 0x1.3583f6p-2f, 0x1.13e574p-2f, 0x1.f0fd28p-3f, 0x1.c3987ep-3f, 0x1.9d7738p-3f,
     0x1.7d0a5ep-3f, 0x1.54a7a0p-3f, 0x1.2a2af2p-3f, 0x1.08e62cp-3f, 0x1.dc603ap-4f, 0x1.b096fap-4f, 0x1.8c1404p-4f,
     0x1.6d2f82p-4f, 0x1.52b80ep-4f, 0x1.317430p-4f, 0x1.0e0780p-4f, 0x1.e3db9cp-5f, 0x1.b634a6p-5f, 0x1.90658cp-5f,
     0x1.709346p-5f, 0x1.556d4ep-5f, 0x1.3dfeb8p-5f, 0x1.ddcd36p-1f, 0x1.a36bbcp-1f, 0x1.73c18ap-1f, 0x1.4c630ep-1f,
     0x1.2b84f0p-1f, 0x1.0fce4ep-1f, 0x1.f07240p-2f, 0x1.c7f814p-2f},
    {-0x1.e78b36p-3f, -0x1.797a64p-3f, -0x1.2b11e6p-3f, -0x1.e36580p-4f, -0x1.8d6f74p-4f, -0x1.4baeacp-4f,
     -0x1.18737ap-4f, -0x1.dfc020p-5f, -0x1.82a852p-5f, -0x1.2aa650p-5f, -0x1.da3954p-6f, -0x1.81149cp-6f,
     -0x1.3e981cp-6f, -0x1.0bc46cp-6f, -0x1.c82c14p-7f, -0x1.8914e8p-7f, -0x1.404456p-7f, -0x1.f57caep-8f,
     -0x1.93108cp-8f, -0x1.4ae8bcp-8f, -0x1.14782cp-8f, -0x1.d4cddep-9f, -0x1.9276b6p-9f, -0x1.5d3ddap-9f,
     -0x1.0300a2p+0f, -0x1.a47284p-1f, -0x1.5961f4p-1f, -0x1.1ee43ep-1f, -0x1.e18ab8p-2f, -0x1.97fe7cp-2f,
     -0x1.5cbc2cp-2f, -0x1.2c84b0p-2f},
    {0x1.05e6cap-3f,  0x1.7012e4p-4f,  0x1.0a1578p-4f,  0x1.8a6ec6p-5f,  0x1.2adad6p-5f,  0x1.cdc858p-6f,
     0x1.6afd24p-6f,  0x1.21c22cp-6f,  0x1.a7ecdap-7f,  0x1.22eff2p-7f,  0x1.9ef6a6p-8f,  0x1.317bdap-8f,
     0x1.cdeaa4p-9f,  0x1.6534e0p-9f,  0x1.19a230p-9f,  0x1.c39a30p-10f, 0x1.4d06f0p-10f, 0x1.cea17ep-11f,
     0x1.4dfcdep-11f, 0x1.f196dap-12f, 0x1.7c66a4p-12f, 0x1.29376cp-12f, 0x1.d92420p-13f, 0x1.7eaa44p-13f,
     0x1.bd6cfap-1f,  0x1.54962ap-1f,  0x1.07d2dep-1f,  0x1.9dbe52p-2f,  0x1.482bccp-2f,  0x1.071d9ep-2f,
     0x1.aa32aap-3f,  0x1.5c7754p-3f},
    {-0x1.0133f4p-4f,  -0x1.4bcd74p-5f,  -0x1.ba0148p-6f,  -0x1.2ef90ap-6f,  -0x1.aa241cp-7f,  -0x1.32a894p-7f,
     -0x1.c28dbap-8f,  -0x1.512f84p-8f,  -0x1.c24a54p-9f,  -0x1.14344ap-9f,  -0x1.6372cap-10f, -0x1.dc1aa4p-11f,
     -0x1.49d468p-11f, -0x1.d662d2p-12f, -0x1.57e094p-12f, -0x1.00e4d6p-12f, -0x1.5782d6p-13f, -0x1.a80e8ap-14f,
     -0x1.134fb0p-14f, -0x1.748118p-15f, -0x1.04c148p-15f, -0x1.77b3d6p-16f, -0x1.156066p-16f, -0x1.a2516ap-17f,
     -0x1.46c6e2p-1f,  -0x1.db7306p-2f,  -0x1.5e9552p-2f,  -0x1.05d8bep-2f,  -0x1.8bed58p-3f,  -0x1.2ecd6ep-3f,
     -0x1.d43ecep-4f,  -0x1.6dcc96p-4f},
    {0x1.d6ceecp-6f,  0x1.18e976p-6f,  0x1.5b26bcp-7f,  0x1.bac95cp-8f,  0x1.22911ap-8f,  0x1.8755aap-9f,
     0x1.0dc33cp-9f,  0x1.7be4acp-10f, 0x1.d334fcp-11f, 0x1.012d98p-11f, 0x1.2b910cp-12f, 0x1.6df3d4p-13f,
     0x1.d189b2p-14f, 0x1.329958p-14f, 0x1.a03464p-15f, 0x1.2206dap-15f, 0x1.61a876p-16f, 0x1.841bfep-17f,
     0x1.c5524ep-18f, 0x1.1692e6p-18f, 0x1.652af2p-19f, 0x1.da8eb8p-20f, 0x1.450284p-20f, 0x1.c9088ap-21f,
     0x1.a9cd94p-2f,  0x1.2887dcp-2f,  0x1.a2c4bap-3f,  0x1.2ba2e4p-3f,  0x1.b23d78p-4f,  0x1.3e77f6p-4f,
     0x1.d88496p-5f,  0x1.626506p-5f},
    {-0x1.9281e2p-7f,  -0x1.bf618ep-8f,  -0x1.0209aap-8f,  -0x1.33e91ap-9f,  -0x1.7af040p-10f, -0x1.dfa86cp-11f,
     -0x1.377772p-11f, -0x1.9e1894p-12f, -0x1.d4efbep-13f, -0x1.d1e7cep-14f, -0x1.ed642ep-15f, -0x1.13d1c0p-15f,
     -0x1.431106p-16f, -0x1.89ec4ap-17f, -0x1.f169d2p-18f, -0x1.43d176p-18f, -0x1.671afap-19f, -0x1.5f5022p-20f,
     -0x1.71e034p-21f, -0x1.9d904ep-22f, -0x1.e62af0p-23f, -0x1.2a1c7ep-23f, -0x1.7b1178p-24f, -0x1.f1539cp-25f,
     -0x1.f667c2p-3f,  -0x1.50771ap-3f,  -0x1.c90e00p-4f,  -0x1.3aa75cp-4f,  -0x1.b6e35ap-5f,  -0x1.35e8f6p-5f,
     -0x1.bae744p-6f,  -0x1.401aa4p-6f}};

// 2.5 ulp, found by running over every float32.
TS_INLINE __m512 erfc_avx512(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), round = _mm512_set1_ps(kRoundF);
  // Below the least float32 from 10.1 on. A NaN comes out of the second operand of min.
  const __m512 a = _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(10.1f), _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x));
  const __m512i place = _mm512_castps_si512(_mm512_add_ps(a, one));
  const __m512i interval = _mm512_maskz_srli_epi32(0xffff, place, 20); // its lowest five bits count
  const __m512i kept = _mm512_maskz_slli_epi32(0xffff, interval, 20);
  const __m512 centre = _mm512_castsi512_ps(_mm512_maskz_or_epi32(0xffff, kept, _mm512_set1_epi32(1 << 19)));
  const __m512 t = _mm512_sub_ps(a, _mm512_sub_ps(centre, one));
  const auto coefficient = [&](int p) {
    return _mm512_permutex2var_ps(_mm512_load_ps(kErfcxTable[p]), interval, _mm512_load_ps(kErfcxTable[p] + 16));
  };
  __m512 p = _mm512_fmadd_ps(coefficient(5), t, coefficient(4));
#pragma GCC unroll 4
  for (int k = 3; k >= 0; --k) p = _mm512_fmadd_ps(p, t, coefficient(k));
  // exp(-a^2) = 2^n (1 + q), the square in two parts
  const __m512 square = _mm512_mul_ps(a, a), square_low = _mm512_fmsub_ps(a, a, square);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(square, _mm512_set1_ps(-kLog2EF), round), round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(kLn2HighF), square);
  r = _mm512_add_ps(_mm512_fmadd_ps(n, _mm512_set1_ps(kLn2LowF), r), square_low); // of the opposite sign
  __m512 q = _mm512_fnmadd_ps(_mm512_set1_ps(0x1.6d9970p-10f), r, _mm512_set1_ps(0x1.1227f8p-7f));
  q = _mm512_fnmadd_ps(q, r, _mm512_set1_ps(0x1.555486p-5f));
  q = _mm512_fnmadd_ps(q, r, _mm512_set1_ps(0x1.5554b0p-3f));
  q = _mm512_fnmadd_ps(q, r, _mm512_set1_ps(0.5f));
  q = _mm512_fmsub_ps(q, _mm512_mul_ps(r, r), r);
  const __m512 y = _mm512_maskz_scalef_ps(0xffff, _mm512_fmadd_ps(p, q, p), n);
  return _mm512_mask_sub_ps(y, _mm512_movepi32_mask(_mm512_castps_si512(x)), _mm512_set1_ps(2.0f), y);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_ERFC_AVX512_H
