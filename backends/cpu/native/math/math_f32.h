// Branch-free float32 functions written so that the compiler vectorises a loop over them. Polynomials are minimax fits
// (Remez exchange, weighted by relative error) made for these reductions; the largest error in ulp, found by running
// over every float32, stands with each function.
#ifndef TESSERACK_CPU_MATH_F32_H
#define TESSERACK_CPU_MATH_F32_H

#include "math_f64.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

TS_INLINE float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

constexpr float kLn2HighF = 0x1.62e4p-1f, kLn2LowF = 0x1.7f7d1cp-20f; // the high part has 15 bits: n * high is exact
constexpr float kLog2EF = 0x1.715476p+0f;
constexpr float kRoundF = 0x1.8p23f; // adding it rounds to an integer, left in the low mantissa bits

TS_INLINE uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
TS_INLINE float float_of(uint32_t x) { return std::bit_cast<float>(x); }

// exp(r) - 1 for |r| <= ln2 / 2
TS_INLINE float expm1_reduced(float r) {
  float q = 0x1.6d9970p-10f;
  q = fused(q, r, 0x1.1227f8p-7f);
  q = fused(q, r, 0x1.555486p-5f);
  q = fused(q, r, 0x1.5554b0p-3f);
  q = fused(q, r, 0.5f);
  return fused(q, r * r, r);
}

struct ExpParts {
  float high, low;
};

// exp(x) as a float32 and what its rounding left. NaN passes every clamp: comparisons with it are false.
TS_INLINE ExpParts exp_parts(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float t = fused(x, kLog2EF, kRoundF);
  const float n = t - kRoundF;
  const float r = fused(n, -kLn2LowF, fused(n, -kLn2HighF, x));
  const int32_t i = static_cast<int32_t>(bits_of(t) - bits_of(kRoundF));
  const int32_t half = i >> 1; // two factors: the exponent of either alone stays in range
  const float first = float_of(static_cast<uint32_t>(half + 127) << 23);
  const float second = float_of(static_cast<uint32_t>(i - half + 127) << 23);
  const float p = expm1_reduced(r), high = 1.0f + p, low = (1.0f - high) + p;
  return {high * first * second, low * first * second};
}
TS_INLINE float exp_f32(float x) { return exp_parts(x).high; }

// exp(x) - 1 for -25 <= x <= 89, doubled last, as 2^127 is the largest power of two. 1.53 ulp.
TS_INLINE float expm1_near(float x) {
  const float t = fused(x, kLog2EF, kRoundF);
  const float n = t - kRoundF;
  const float r = fused(n, -kLn2LowF, fused(n, -kLn2HighF, x));
  const float half = float_of((bits_of(t) - bits_of(kRoundF) + 126) << 23);
  return 2.0f * fused(half, expm1_reduced(r), half - 0.5f);
}

TS_INLINE float expm1_f32(float x) {
  const float low = x < -25.0f ? -25.0f : x, y = expm1_near(low > 89.0f ? 89.0f : low);
  return x == 0.0f ? x : y;
}

// (a + a_low) / (d + d_low), the quotient corrected once by its remainder
TS_INLINE float divide_accurately(float a, float a_low, float d, float d_low) {
  const float r = 1.0f / d, q = a * r;
  return fused(r, fused(-q, d, a) + (a_low - q * d_low), q);
}

TS_INLINE float tanh_f32(float x) {
  float a = __builtin_fabsf(x);
  a = a > 10.0f ? 10.0f : a;
  const float e = expm1_near(-2.0f * a);
  const float d = e + 2.0f, d_low = (2.0f - d) + e;
  return __builtin_copysignf(divide_accurately(-e, 0.0f, d, d_low), x);
}

TS_INLINE float sigmoid_f32(float x) {
  const ExpParts z = exp_parts(-__builtin_fabsf(x));
  const float d = 1.0f + z.high, d_low = ((1.0f - d) + z.high) + z.low;
  const bool positive = x >= 0.0f;
  return divide_accurately(positive ? 1.0f : z.high, positive ? 0.0f : z.low, d, d_low);
}

TS_INLINE float silu_f32(float x) { return x * sigmoid_f32(x); }

TS_INLINE float log_limits(float x, float y) {
  y = x < __builtin_inff() ? y : x; // +inf, NaN
  y = x == 0.0f ? -__builtin_inff() : y;
  return x < 0.0f ? __builtin_nanf("") : y;
}

// log(x) + low for normal positive x, e being what its exponent is counted from.
TS_INLINE float log_normal(float x, int32_t e0, float low) {
  const uint32_t t = bits_of(x) - 0x3f3504f3u; // mantissa from sqrt(1/2) up
  const float e = static_cast<float>((static_cast<int32_t>(t) >> 23) - e0);
  const float f = float_of((t & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0x1.1b421cp-4f;
  p = fused(p, f, -0x1.e2e940p-4f);
  p = fused(p, f, 0x1.e650b2p-4f);
  p = fused(p, f, -0x1.fb4342p-4f);
  p = fused(p, f, 0x1.2332c0p-3f);
  p = fused(p, f, -0x1.5562e2p-3f);
  p = fused(p, f, 0x1.99a546p-3f);
  p = fused(p, f, -0x1.ffffeep-3f);
  p = fused(p, f, 0x1.555546p-2f);
  const float f2 = f * f;
  const float tail = fused(e, kLn2LowF, fused(f2, -0.5f, f2 * f * p)) + low;
  return fused(e, kLn2HighF, f + tail);
}
TS_INLINE float log_f32(float x) {
  const bool tiny = x < 0x1p-126f;
  return log_limits(x, log_normal(tiny ? x * 0x1p23f : x, tiny ? 23 : 0, 0.0f));
}

// What rounding 1 + x lost comes back as its share of the logarithm's slope. 1.3 ulp.
TS_INLINE float log1p_f32(float x) {
  const float u = 1.0f + x;
  const float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
  const float y = log_limits(u, log_normal(u, 0, lost / u));
  return __builtin_fabsf(x) < 0x1p-25f ? x : y;
}

// The rest goes through float64, where a short polynomial leaves no error to speak of.

TS_INLINE float log2_f32(float x) { return static_cast<float>(log_short(x) * 0x1.71547652b82fep+0); }
TS_INLINE float log10_f32(float x) { return static_cast<float>(log_short(x) * 0x1.bcb7b1526e50ep-2); }
TS_INLINE float exp2_f32(float x) { return static_cast<float>(exp_short(x * 0x1.62e42fefa39efp-1)); }

// Quadrant and remainder for |x| < kTrigLimit: n * high is exact for n < 2^20.
constexpr float kTrigLimit = 1.0e6f;
struct Reduced {
  double r;
  uint64_t quadrant;
};
TS_INLINE Reduced reduce_half_pi(float x) {
  const double d = x;
  const double t = d * 0x1.45f306dc9c883p-1 + kRound;
  const double n = t - kRound;
  const double r = (d - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
  return {r, std::bit_cast<uint64_t>(t)};
}
struct SinCos {
  double sin, cos;
};
TS_INLINE SinCos sin_cos(double r) {
  const double z = r * r;
  return {r + r * z *
                  (-0x1.5555554caaf57p-3 +
                   z * (0x1.1111088aa4c3dp-7 + z * (-0x1.a00f93d8d29a0p-13 + z * 0x1.6cd5f0aa6f019p-19))),
          1.0 - 0.5 * z +
              z * z *
                  (0x1.5555554f42aa0p-5 +
                   z * (-0x1.6c16b88c076f5p-10 + z * (0x1.a01117979362ep-16 + z * -0x1.24290af71e5c2p-22)))};
}
TS_INLINE float sin_or_cos(float x, uint64_t shift) {
  const Reduced a = reduce_half_pi(x);
  const uint64_t quadrant = a.quadrant + shift;
  const SinCos both = sin_cos(a.r);
  const double y = (quadrant & 1) != 0 ? both.cos : both.sin;
  return static_cast<float>(std::bit_cast<double>(std::bit_cast<uint64_t>(y) ^ ((quadrant & 2) << 62)));
}
TS_INLINE float sin_f32(float x) { return x == 0.0f ? x : sin_or_cos(x, 0); }
TS_INLINE float cos_f32(float x) { return sin_or_cos(x, 1); }

// erf below 1 in magnitude, where 1 is left out of the series' first coefficient so that x itself is added last; above,
// 1 - erfc by the logarithm of erfc on [1, 4.1], at the end of which erf has reached 1. 1.06 ulp.
TS_INLINE float erf_f32(float x) {
  const float z = x * x;
  float q = -0x1.4383eacdd3c31p-17f;
  q = fused(q, z, 0x1.d826b0a9095f3p-14f);
  q = fused(q, z, -0x1.bcbea89b24489p-11f);
  q = fused(q, z, 0x1.5628f0107e624p-8f);
  q = fused(q, z, -0x1.b829a7effaad8p-6f);
  q = fused(q, z, 0x1.ce2f079d36fecp-4f);
  q = fused(q, z, -0x1.8127465fd3958p-2f);
  q = fused(q, z, 0x1.06eba82004b78p-3f);
  const float small = fused(x, q, x);
  float a = __builtin_fabsf(x);
  a = a > 4.1f ? 4.1f : a;
  float p = 0x1.181a6b04e46b9p-23f;
  p = fused(p, a, -0x1.8b7f8c92b0c11p-16f);
  p = fused(p, a, 0x1.db0b3701f4920p-12f);
  p = fused(p, a, -0x1.1636c49a7cfcfp-8f);
  p = fused(p, a, 0x1.9e6e066cfe14bp-6f);
  p = fused(p, a, -0x1.bc8e61599a457p-4f);
  p = fused(p, a, -0x1.4428f90dcdf40p-1f);
  p = fused(p, a, -0x1.212ee8a172639p+0f);
  p = fused(p, a, 0x1.9c6b9f5b91565p-13f);
  const float large = __builtin_copysignf(expm1_near(p), x);
  return a < 1.0f ? small : large;
}

// erfc(a) = exp(-a^2) / (1 + 2 a) * p((a - 3) / (a + 3)) for a from 0 to 10.1, after which it is below the least
// float32; p interpolates (1 + 2 a) erfcx(a) at Chebyshev's points to 2^-30. One division serves both quotients.
TS_INLINE float erfc_f32(float x) {
  double a = __builtin_fabs(static_cast<double>(x));
  a = a > 10.1 ? 10.1 : a;
  const double b = a + 3.0, c = 1.0 + 2.0 * a, r = 1.0 / (b * c);
  const double t = (a - 3.0) * c * r;
  double p = 0x1.30aa9e0619b32p-15;
  p = fused(p, t, -0x1.7af3c03309586p-13);
  p = fused(p, t, -0x1.84a3e4fd7e79ap-11);
  p = fused(p, t, 0x1.fec0f8c5fc5a2p-10);
  p = fused(p, t, 0x1.4b790e661d731p-9);
  p = fused(p, t, -0x1.85ba983dbe395p-6);
  p = fused(p, t, 0x1.17c84a05e2457p-4);
  p = fused(p, t, -0x1.e8896e42183ebp-4);
  p = fused(p, t, 0x1.0983848279da2p-3);
  p = fused(p, t, -0x1.85a18b06df5b6p-5);
  p = fused(p, t, -0x1.15c0857d0a227p-3);
  p = fused(p, t, 0x1.40c522dab27afp+0);
  const double y = exp_short(-a * a) * (p * (b * r));
  return static_cast<float>(x < 0.0f ? 2.0 - y : y);
}

// x / 2 * (1 + erf(x / sqrt(2)))
TS_INLINE float gelu_f32(float x) { return 0.5f * x * (1.0f + erf_f32(x * 0x1.6a09e6p-1f)); }

TS_INLINE float relu6_of(float x) {
  const float low = (x > 0.0f) | (x != x) ? x : 0.0f;
  return (low < 6.0f) | (low != low) ? low : 6.0f;
}
TS_INLINE float hardsigmoid_f32(float x) { return relu6_of(x + 3.0f) / 6.0f; }
TS_INLINE float hardswish_f32(float x) { return x * relu6_of(x + 3.0f) / 6.0f; }

TS_INLINE float pow_f32(float base, float exponent) {
  const double x = base, y = exponent, ax = __builtin_fabs(x);
  double t = y * log_short(ax);
  t = t < -800.0 ? -800.0 : t; // float32 under- and overflows long before
  t = t > 800.0 ? 800.0 : t;
  double power = exp_short(t);
  const double half = y * 0.5;
  const bool whole = __builtin_rint(y) == y, odd = whole && __builtin_rint(half) != half;
  const bool unsigned_base = !(std::bit_cast<int64_t>(x) < 0);
  power = (!unsigned_base && odd) ? -power : power;
  power = (x < 0.0 && !whole && ax < __builtin_inf()) ? __builtin_nan("") : power;
  power = (y == 0.0 || x == 1.0 || (x == -1.0 && __builtin_fabs(y) == __builtin_inf())) ? 1.0 : power;
  return static_cast<float>(power);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MATH_F32_H
