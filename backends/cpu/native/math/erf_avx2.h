// erf, gelu and erfc by tables in registers, of four and eight intervals.
#ifndef TESSERACK_CPU_ERF_AVX2_H
#define TESSERACK_CPU_ERF_AVX2_H

#include "exp_avx2.h"

#ifdef TESSERACK_CPU_EXP_AVX2

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// erf(a) / a - 1 for a up to 1, erf(a) from there on, = sum of kErfParts[p][i] * (a - i - 1/2)^p for a from i to i + 1,
// interpolated at Chebyshev's points.
alignas(32) constexpr float kErfParts[9][8] = {
    {0x1.4fdeb8p-5f, 0x1.eea556p-1f, 0x1.ffcaa8p-1f, 0x1.ffffe8p-1f, 0x1.4fdeb8p-5f, 0x1.eea556p-1f, 0x1.ffcaa8p-1f,
     0x1.ffffe8p-1f},
    {-0x1.4c3876p-2f, 0x1.e72338p-4f, 0x1.1d843ap-9f, 0x1.6a34d6p-18f, -0x1.4c3876p-2f, 0x1.e72338p-4f, 0x1.1d843ap-9f,
     0x1.6a34d6p-18f},
    {-0x1.d6dd1cp-3f, -0x1.6d5a94p-3f, -0x1.64e406p-8f, -0x1.3d0bbp-16f, -0x1.d6dd1cp-3f, -0x1.6d5a94p-3f,
     -0x1.64e406p-8f, -0x1.3d0bbp-16f},
    {0x1.55c97ep-3f, 0x1.1c301p-3f, 0x1.118e7ap-7f, 0x1.63c0e6p-15f, 0x1.55c97ep-3f, 0x1.1c301p-3f, 0x1.118e7ap-7f,
     0x1.63c0e6p-15f},
    {0x1.091af6p-5f, -0x1.6d5b68p-5f, -0x1.1a855ap-7f, -0x1.1c29e8p-14f, 0x1.091af6p-5f, -0x1.6d5b68p-5f,
     -0x1.1a855ap-7f, -0x1.1c29e8p-14f},
    {-0x1.98c2d8p-5f, -0x1.ec9ff6p-7f, 0x1.929d16p-8f, 0x1.5190a6p-14f, -0x1.98c2d8p-5f, -0x1.ec9ff6p-7f,
     0x1.929d16p-8f, 0x1.5190a6p-14f},
    {0x1.815448p-16f, 0x1.3cbd0ap-6f, -0x1.6fcc32p-9f, -0x1.442236p-14f, 0x1.815448p-16f, 0x1.3cbd0ap-6f,
     -0x1.6fcc32p-9f, -0x1.442236p-14f},
    {0x1.3f725ap-7f, -0x1.f67f2ap-9f, 0x1.a695c8p-12f, 0x1.188e8p-14f, 0x1.3f725ap-7f, -0x1.f67f2ap-9f, 0x1.a695c8p-12f,
     0x1.188e8p-14f},
    {-0x1.1d2424p-10f, -0x1.3a80acp-9f, 0x1.3cb69ap-12f, -0x1.34734cp-15f, -0x1.1d2424p-10f, -0x1.3a80acp-9f,
     0x1.3cb69ap-12f, -0x1.34734cp-15f},
};

// 1.10 ulp, found by running over every fifth float32 from 2^-31 to 5. From 3.84 on it has rounded to one.
TS_INLINE __m256 erf_avx2(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f), round = _mm256_set1_ps(kRoundF), sign_bit = _mm256_set1_ps(-0.0f);
  const __m256 sign = _mm256_and_ps(x, sign_bit);
  const __m256 a = _mm256_min_ps(_mm256_set1_ps(3.99f), _mm256_xor_ps(x, sign)); // a NaN comes out of the second
  const __m256 shifted = _mm256_sub_ps(a, _mm256_set1_ps(0.5f)), place = _mm256_add_ps(shifted, round);
  const __m256 t = _mm256_sub_ps(shifted, _mm256_sub_ps(place, round));
  const __m256i interval = _mm256_castps_si256(place); // in the lowest two bits, which a permutation reads
  const auto coefficient = [&](int p) { return _mm256_permutevar_ps(_mm256_load_ps(kErfParts[p]), interval); };
  __m256 q = coefficient(8);
#pragma GCC unroll 8
  for (int p = 7; p >= 0; --p) q = _mm256_fmadd_ps(q, t, coefficient(p));
  const __m256 y = _mm256_blendv_ps(q, _mm256_fmadd_ps(a, q, a), _mm256_cmp_ps(place, round, _CMP_EQ_OQ));
  return _mm256_or_ps(_mm256_min_ps(one, y), sign);
}

// x / 2 * (1 + erf(x / sqrt(2))), rounded as its five instructions are, which a longer program has apart.
TS_INLINE __m256 gelu_avx2(__m256 x) {
  const __m256 y = erf_avx2(_mm256_mul_ps(x, _mm256_set1_ps(0x1.6a09e6p-1f)));
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_set1_ps(0.5f)), _mm256_add_ps(y, _mm256_set1_ps(1.0f)));
}

// erfcx(a) = exp(a^2) erfc(a) = sum of kErfcxParts[p][i] * (a - centre)^p, interpolated at Chebyshev's points. 1 + a,
// from 1 to 16, has i as the two lowest bits of its exponent and the highest of its mantissa.
alignas(32) constexpr float kErfcxParts[9][8] = {
    {0x1.494db0p-2f, 0x1.afbb40p-3f, 0x1.18932cp-3f, 0x1.7c0348p-4f, 0x1.fe6cc4p-5f, 0x1.627bccp-5f, 0x1.8a6adcp-1f,
     0x1.038d54p-1f},
    {-0x1.4f1986p-3f, -0x1.3086d8p-4f, -0x1.094920p-5f, -0x1.ed7f66p-7f, -0x1.c04664p-8f, -0x1.b1be48p-9f,
     -0x1.7c857cp-1f, -0x1.78cdd6p-2f},
    {0x1.37ea26p-4f, 0x1.98958ap-6f, 0x1.e9412ap-8f, 0x1.3c7764p-9f, 0x1.876370p-11f, 0x1.0898f8p-12f, 0x1.2b497ep-1f,
     0x1.d90094p-3f},
    {-0x1.0dc64ap-5f, -0x1.06324cp-7f, -0x1.b8bb22p-10f, -0x1.91074ap-12f, -0x1.53c55ep-14f, -0x1.41e7cap-16f,
     -0x1.9799aep-2f, -0x1.09e78cp-3f},
    {0x1.b65abep-7f, 0x1.435c4cp-9f, 0x1.845b9ap-12f, 0x1.f64d98p-15f, 0x1.2546fep-17f, 0x1.868362p-20f, 0x1.f0acc8p-3f,
     0x1.119300p-4f},
    {-0x1.50b800p-8f, -0x1.805f4ep-11f, -0x1.4e109cp-14f, -0x1.36c496p-17f, -0x1.f596a0p-21f, -0x1.d7fc52p-24f,
     -0x1.145232p-3f, -0x1.054038p-5f},
    {0x1.edc71ep-10f, 0x1.ba4b0cp-13f, 0x1.1ac40ap-16f, 0x1.7cb8e0p-20f, 0x1.ac37e8p-24f, 0x1.1cb14cp-27f,
     0x1.1cf8f0p-4f, 0x1.d42706p-7f},
    {-0x1.71433ep-11f, -0x1.011a6ap-14f, -0x1.029090p-18f, -0x1.e5cc22p-23f, -0x1.93d09ap-27f, -0x1.68af0ap-31f,
     -0x1.1aeaa6p-5f, -0x1.9559a0p-8f},
    {0x1.f0399cp-13f, 0x1.164762p-16f, 0x1.a4a4e2p-21f, 0x1.232022p-25f, 0x1.54ad3ep-30f, 0x1.b098fcp-35f,
     0x1.0106f2p-6f, 0x1.45f8a0p-9f},
};

// 2^n for the integers -252 <= n <= 0, as two factors whose exponents stay in range.
struct TwoPowers {
  __m256 first, second;
};
TS_INLINE TwoPowers two_powers(__m256i n) {
  const __m256i bias = _mm256_set1_epi32(127), half = _mm256_srai_epi32(n, 1);
  const auto power = [&](__m256i e) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, bias), 23)); };
  return {power(half), power(_mm256_sub_epi32(n, half))};
}

// 2.5 ulp, found by running over every 7063rd float32 and six million between 1/2 and 10.1.
TS_INLINE __m256 erfc_avx2(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f), round = _mm256_set1_ps(kRoundF);
  // Below the least float32 from 10.1 on. A NaN comes out of the second operand of min.
  const __m256 a = _mm256_min_ps(_mm256_set1_ps(10.1f), _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x));
  const __m256i interval = _mm256_srli_epi32(_mm256_castps_si256(_mm256_add_ps(a, one)), 22);
  const __m256i centre = _mm256_or_si256(_mm256_slli_epi32(interval, 22), _mm256_set1_epi32(1 << 21));
  const __m256 t = _mm256_sub_ps(a, _mm256_sub_ps(_mm256_castsi256_ps(centre), one));
  const auto coefficient = [&](int k) {
    return _mm256_permutevar8x32_ps(_mm256_load_ps(kErfcxParts[k]), interval); // by the lowest three bits
  };
  __m256 p = coefficient(8);
#pragma GCC unroll 8
  for (int k = 7; k >= 0; --k) p = _mm256_fmadd_ps(p, t, coefficient(k));
  // exp(-a^2) = 2^n (1 + q), the square in two parts
  const __m256 square = _mm256_mul_ps(a, a), square_low = _mm256_fmsub_ps(a, a, square);
  const __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(square, _mm256_set1_ps(-kLog2EF), round), round);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(kLn2HighF), square);
  r = _mm256_add_ps(_mm256_fmadd_ps(n, _mm256_set1_ps(kLn2LowF), r), square_low); // of the opposite sign
  __m256 q = _mm256_fnmadd_ps(_mm256_set1_ps(0x1.6d9970p-10f), r, _mm256_set1_ps(0x1.1227f8p-7f));
  q = _mm256_fnmadd_ps(q, r, _mm256_set1_ps(0x1.555486p-5f));
  q = _mm256_fnmadd_ps(q, r, _mm256_set1_ps(0x1.5554b0p-3f));
  q = _mm256_fnmadd_ps(q, r, _mm256_set1_ps(0.5f));
  q = _mm256_fmsub_ps(q, _mm256_mul_ps(r, r), r);
  const TwoPowers scale = two_powers(_mm256_cvtps_epi32(n));
  const __m256 y = _mm256_mul_ps(_mm256_mul_ps(_mm256_fmadd_ps(p, q, p), scale.first), scale.second);
  return _mm256_blendv_ps(y, _mm256_sub_ps(_mm256_set1_ps(2.0f), y), x);
}

// out[i] = F(a[i])
template <__m256 (*F)(__m256)> int registers_avx2(float* out, const float* a, const float*, const float*, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 first = _mm256_loadu_ps(a + i), second = _mm256_loadu_ps(a + i + 8);
    _mm256_storeu_ps(out + i, F(first));
    _mm256_storeu_ps(out + i + 8, F(second));
  }
  while (i < n) {
    const int64_t count = n - i < 8 ? n - i : 8;
    float rest[8] = {};
    std::memcpy(rest, a + i, static_cast<size_t>(count) * sizeof(float));
    _mm256_storeu_ps(rest, F(_mm256_loadu_ps(rest)));
    std::memcpy(out + i, rest, static_cast<size_t>(count) * sizeof(float));
    i += count;
  }
  return 0;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_ERF_AVX2_H
