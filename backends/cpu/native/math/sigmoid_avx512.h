// The logistic function for AVX-512: powers of two from a table held in a register leave a short polynomial, and no
// clamping or scaling is done where |x| <= 87. At most 1.6 ulp, found by running over every float32.
#ifndef TESSERACK_CPU_SIGMOID_AVX512_H
#define TESSERACK_CPU_SIGMOID_AVX512_H

#include "exp_avx512.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)

#include <array>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// 2^(j / 16) as a float, and what its rounding left relative to it.
struct SixteenthPowers {
  alignas(64) float high[16];
  alignas(64) float rest[16];
};
constexpr SixteenthPowers kSixteenths = {
    {0x1p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fep+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f,
     0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f, 0x1.ae89fap+0f, 0x1.c199bep+0f,
     0x1.d5818ep+0f, 0x1.ea4afap+0f},
    {0x0p+0f, 0x1.8d96d4p-25f, -0x1.9c0c22p-27f, 0x1.964904p-25f, 0x1.125002p-25f, 0x1.370be4p-25f, -0x1.0a355p-25f,
     -0x1.00d8acp-27f, 0x1.26055cp-26f, -0x1.05cb44p-25f, 0x1.67a1cap-28f, 0x1.a3b5e4p-28f, -0x1.f9c304p-27f,
     -0x1.6961b4p-28f, -0x1.a5217cp-28f, 0x1.61428ep-28f}};

// The bits of `high`, less j where t << kExponentShift puts it.
constexpr int kExponentShift = 19;
struct SixteenthBits {
  alignas(64) std::array<uint32_t, 16> bits{};
  constexpr SixteenthBits() {
    for (uint32_t j = 0; j < 16; ++j) bits[j] = std::bit_cast<uint32_t>(kSixteenths.high[j]) - (j << kExponentShift);
  }
};
constexpr SixteenthBits kSixteenthBits;

// Lanes with |x| > 87 or NaN.
TS_INLINE __mmask16 sigmoid_is_far(__m512 x) {
  const __m512i magnitude = _mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(x), 1);
  return _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(static_cast<int>(bits_of(87.0f) << 1)));
}

// 1 / (1 + exp(-x)) for |x| <= 87.
TS_INLINE __m512 sigmoid_near(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), round = _mm512_set1_ps(0x1.8p19f); // rounds to sixteenths
  const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(-kLog2EF), round);
  const __m512 n = _mm512_sub_ps(t, round);
  __m512 u = _mm512_fmadd_ps(n, _mm512_set1_ps(kLn2HighF), x); // exp(-x) = 2^n exp(-u), |u| <= ln2 / 32
  u = _mm512_fmadd_ps(n, _mm512_set1_ps(kLn2LowF), u);
  const __m512i k = _mm512_castps_si512(t); // 16 n in its low bits
  const __m512i table = _mm512_load_si512(kSixteenthBits.bits.data());
  const __m512i exponent = _mm512_maskz_slli_epi32(0xffff, k, kExponentShift);
  const __m512 power =
      _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_maskz_permutexvar_epi32(0xffff, k, table)));
  const __m512 rest = _mm512_maskz_permutexvar_ps(0xffff, k, _mm512_load_ps(kSixteenths.rest));
  __m512 q = _mm512_fmadd_ps(u, _mm512_set1_ps(-1.0f / 6), _mm512_set1_ps(0.5f));
  q = _mm512_fmadd_ps(q, u, _mm512_set1_ps(-1.0f));
  q = _mm512_fmadd_ps(q, u, rest);
  const __m512 z = _mm512_fmadd_ps(power, q, power);
  const __m512 d = _mm512_add_ps(z, one), d_low = _mm512_sub_ps(one, _mm512_sub_ps(d, z));
  // The estimate has 14 bits; one Newton step brings it to 28.
  const __m512 y = _mm512_maskz_rcp14_ps(0xffff, d);
  const __m512 error = _mm512_fnmadd_ps(d_low, y, _mm512_fnmadd_ps(d, y, one));
  return _mm512_fmadd_ps(y, error, y);
}

// A number's result does not depend on its neighbours.
TS_INLINE __m512 sigmoid_mixed(__m512 x) {
  return _mm512_mask_blend_ps(sigmoid_is_far(x), sigmoid_near(x), sigmoid_avx512(x));
}

// What becomes of x and its logistic function: that alone, or silu.
TS_INLINE __m512 as_is(__m512, __m512 y) { return y; }
TS_INLINE __m512 times_x(__m512 x, __m512 y) { return _mm512_mul_ps(x, y); }

template <__m512 (*Finish)(__m512, __m512)>
int sigmoid_loop_avx512(float* out, const float* a, const float*, const float*, int64_t n) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512 first = _mm512_loadu_ps(a + i), second = _mm512_loadu_ps(a + i + 16);
    const bool far = (sigmoid_is_far(first) | sigmoid_is_far(second)) != 0;
    const __m512 y = far ? sigmoid_mixed(first) : sigmoid_near(first);
    const __m512 z = far ? sigmoid_mixed(second) : sigmoid_near(second);
    _mm512_storeu_ps(out + i, Finish(first, y));
    _mm512_storeu_ps(out + i + 16, Finish(second, z));
  }
  for (; i < n; i += 16) {
    const __mmask16 mask = n - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (n - i)) - 1);
    const __m512 x = _mm512_maskz_loadu_ps(mask, a + i);
    _mm512_mask_storeu_ps(out + i, mask, Finish(x, sigmoid_mixed(x)));
  }
  return 0;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_SIGMOID_AVX512_H
