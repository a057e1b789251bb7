// Branch-free float32 functions of angles, their inverses and hyperbolic kin, erfinv and remainders, for loops that the
// compiler vectorises. They work in float64, where a short polynomial leaves no error to speak of: where nothing else
// is said, at most 0.51 ulp, over every 97th float32 or over random pairs.
#ifndef TESSERACK_CPU_TRIG_F32_H
#define TESSERACK_CPU_TRIG_F32_H

#include "math_f32.h"
#include "trig_short.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// |x| < kTrigLimit
TS_INLINE float tan_f32(float x) {
  const Reduced a = reduce_half_pi(x);
  const SinCos y = sin_cos(a.r);
  const bool odd = (a.quadrant & 1) != 0;
  const float t = static_cast<float>((odd ? -y.cos : y.sin) / (odd ? y.sin : y.cos));
  return x == 0.0f ? x : t;
}

constexpr double kHalfPi = 0x1.921fb54442d18p+0, kPi = 0x1.921fb54442d18p+1;

// atan(small / large) for 0 <= small <= large, large > 0, in [0, pi / 4].
TS_INLINE double atan_quotient(double small, double large) {
  const bool upper = small > 0x1.a827999fcef32p-2 * large; // tan(pi / 8): then pi / 4 less the angle between them
  const double t = (upper ? small - large : small) / (upper ? small + large : large), z = t * t;
  double p = 0x1.81bc49c9c1c7fp-5;
  p = fused(p, z, -0x1.5a64db5fa6028p-4);
  p = fused(p, z, 0x1.c43953a0a2bf8p-4);
  p = fused(p, z, -0x1.247cb81860d73p-3);
  p = fused(p, z, 0x1.9998fe5e75de6p-3);
  p = fused(p, z, -0x1.5555548248b4cp-2);
  p = fused(p, z, 0x1.ffffffffd0e2dp-1);
  return (upper ? kHalfPi / 2 : 0.0) + t * p;
}
TS_INLINE float atan_f32(float x) {
  const double a = __builtin_fabs(static_cast<double>(x));
  const bool above = a > 1.0;
  const double y = atan_quotient(above ? 1.0 : a, above ? a : 1.0);
  return __builtin_copysignf(static_cast<float>(above ? kHalfPi - y : y), x);
}
TS_INLINE float atan2_f32(float y, float x) {
  const double a = __builtin_fabs(static_cast<double>(y)), b = __builtin_fabs(static_cast<double>(x));
  const bool steep = a > b, equal = a == b; // both may be infinite, or zero
  const double small = steep ? b : a, large = steep ? a : b;
  const double first = atan_quotient(equal ? (a == 0.0 ? 0.0 : 1.0) : small, equal ? 1.0 : large);
  const double acute = steep ? kHalfPi - first : first;
  const float r = static_cast<float>(std::bit_cast<int32_t>(x) < 0 ? kPi - acute : acute);
  return x != x ? x : __builtin_copysignf(r, y);
}

#if defined(__FMA__)
TS_INLINE float asin_f32(float x) { return short_asin(x); }
TS_INLINE float acos_f32(float x) { return short_acos(x); }
#else
// (asin(x) - x) / x^3 in z = x^2 <= 1 / 4
TS_INLINE double asin_tail(double z) {
  double p = 0x1.e01fbe6e290aap-6;
  p = fused(p, z, 0x1.64c53d87c33e8p-8);
  p = fused(p, z, 0x1.3c4f51d8dff90p-6);
  p = fused(p, z, 0x1.6a9e5d9f2db80p-6);
  p = fused(p, z, 0x1.f208e784ad457p-6);
  p = fused(p, z, 0x1.6db5cfc7487fbp-5);
  p = fused(p, z, 0x1.333334cea4c06p-4);
  return fused(p, z, 0x1.55555554ee2fdp-3);
}
// NaN beyond 1.
TS_INLINE float asin_f32(float x) {
  const double a = __builtin_fabs(static_cast<double>(x));
  const bool upper = a > 0.5; // then the half of the complement's
  const double z = upper ? 0.5 * (1.0 - a) : a * a, s = upper ? __builtin_sqrt(z) : a;
  const double y = s + s * z * asin_tail(z);
  return __builtin_copysignf(static_cast<float>(upper ? kHalfPi - 2.0 * y : y), x);
}
TS_INLINE float acos_f32(float x) {
  const double d = x, a = __builtin_fabs(d);
  const bool upper = a > 0.5;
  const double z = upper ? 0.5 * (1.0 - a) : a * a, s = upper ? __builtin_sqrt(z) : d;
  const double y = s + s * z * asin_tail(z);
  return static_cast<float>(!upper ? kHalfPi - y : d < 0.0 ? kPi - 2.0 * y : 2.0 * y);
}
#endif

TS_INLINE float sinh_f32(float x) {
  const double a = __builtin_fabs(static_cast<double>(x)), e = expm1_short(a > 100.0 ? 100.0 : a);
  const float y = static_cast<float>(0.5 * (e + e / (e + 1.0)));
  return x != x ? x : __builtin_copysignf(a < 0x1p-12 ? static_cast<float>(a + a * a * a * (1.0 / 6)) : y, x);
}
TS_INLINE float cosh_f32(float x) {
  const double a = __builtin_fabs(static_cast<double>(x)), e = exp_short(a > 100.0 ? 100.0 : a);
  const float y = static_cast<float>(0.5 * (e + 1.0 / e));
  return x != x ? x : y;
}
TS_INLINE float asinh_f32(float x) {
  const double a = __builtin_fabs(static_cast<double>(x));
  const double y = a < 0x1p-9 ? a - a * a * a * (1.0 / 6) : log_short(a + __builtin_sqrt(a * a + 1.0));
  return x != x ? x : __builtin_copysignf(static_cast<float>(y), x);
}
TS_INLINE float acosh_f32(float x) {
  const double d = x, y = log_short(d + __builtin_sqrt((d - 1.0) * (d + 1.0)));
  return x != x ? x : d < 1.0 ? __builtin_nanf("") : static_cast<float>(y);
}
TS_INLINE float atanh_f32(float x) {
  const double a = __builtin_fabs(static_cast<double>(x));
  const double y = a < 0x1p-9 ? a + a * a * a * (1.0 / 3) : 0.5 * log_short((1.0 + a) / (1.0 - a));
  return x != x ? x : a > 1.0 ? __builtin_nanf("") : __builtin_copysignf(static_cast<float>(y), x);
}

TS_INLINE float hypot_f32(float a, float b) {
  const double x = a, y = b;
  const float r = static_cast<float>(__builtin_sqrt(x * x + y * y));
  return __builtin_fabsf(a) == __builtin_inff() || __builtin_fabsf(b) == __builtin_inff() ? __builtin_inff() : r;
}

// Inverse of erf, by its quotient with x as a function of w = -log(1 - x^2), after Giles, "Approximating the erfinv
// function" (2011): a polynomial in w below 5, in its root up to the 17.4 of the float32 next to 1. 0.55 ulp.
constexpr double kErfinvCentre[] = {0x1.9218a0e728a6cp-32, -0x1.2c95ba7ba1292p-27, 0x1.2de6b6494026ep-26,
                                    0x1.f3e053c8c2e61p-22, -0x1.cca6d68745fcep-19, -0x1.4ce132b7adec7p-18,
                                    0x1.c9c2b132493eap-13, -0x1.4866757dc2ceap-10, -0x1.11c40eae3be51p-8,
                                    0x1.f91e8b3704113p-3,  0x1.805c5d053341ap+0};
constexpr double kErfinvTail[] = {-0x1.0db3c7f07b033p-15, 0x1.5ec5583905a32p-14, 0x1.3cc18b5d5fd8cp-18,
                                  -0x1.7dc5187c33cfep-12, 0x1.f968724960943p-11, -0x1.b9e6f8022ae5ap-10,
                                  0x1.46362755894ddp-9,   -0x1.ebb7ba8932783p-9, 0x1.600102c680cb7p-8,
                                  0x1.0158a6ff52c7ap+0,   0x1.8abcc3793971fp+1};
TS_INLINE double polynomial(const double (&coefficients)[11], double x) {
  double p = coefficients[0];
#pragma GCC unroll 10
  for (int i = 1; i < 11; ++i) p = fused(p, x, coefficients[i]);
  return p;
}
TS_INLINE float erfinv_f32(float x) {
  const double d = x, w = -log_short((1.0 - d) * (1.0 + d));
  const double centre = polynomial(kErfinvCentre, w - 2.5), tail = polynomial(kErfinvTail, __builtin_sqrt(w) - 3.25);
  const float y = static_cast<float>(d * (w < 5.0 ? centre : tail));
  return __builtin_fabsf(x) == 1.0f ? __builtin_copysignf(__builtin_inff(), x) : x == 0.0f ? x : y;
}

// The same where w is below 5, of which the argument of the logarithm is normal and positive.
constexpr float kErfinvNearF = 0.9966f;
TS_INLINE float erfinv_near_f32(float x) {
  const double d = x;
  const Split a = split_f64((1.0 - d) * (1.0 + d));
  const double s = a.f / (2.0 + a.f), z = s * s;
  double p = 0x1.e2f6e15f04923p-3; // as log_short has it
  p = fused(p, z, 0x1.2438d6039deb6p-2);
  p = fused(p, z, 0x1.999a7a8721416p-2);
  p = fused(p, z, 0x1.555554fda6e4ep-1);
  const double log = fused(a.exponent, kLn2High, fused(a.exponent, kLn2Low, fused(s * z, p, s + s)));
  const double y = d * polynomial(kErfinvCentre, -log - 2.5);
  return x == 0.0f ? x : static_cast<float>(y);
}

// The quotient cut to an integer, and what is left of a, which has its sign. Both are exact for finite b and quotients
// below kQuotientLimit: those of 24-bit numbers differ from an integer by more than the division's rounding, and the
// product fits into 53 bits.
constexpr float kQuotientLimit = 0x1p+22f;
struct Division {
  double quotient, rest;
};
TS_INLINE Division divide_f32(float a, float b) {
  const double x = a, y = b, q = __builtin_trunc(x / y);
  return {q, x - q * y};
}
TS_INLINE bool divides_exactly(float a, float b) {
  return (__builtin_fabsf(a / b) < kQuotientLimit) & (__builtin_fabsf(b) < __builtin_inff());
}
TS_INLINE float fmod_f32(float a, float b) { return __builtin_copysignf(static_cast<float>(divide_f32(a, b).rest), a); }

// Python's % and //: the rest has the sign of b.
TS_INLINE float mod_f32(float a, float b) {
  const float r = fmod_f32(a, b);
  return r != 0.0f && (b < 0.0f) != (r < 0.0f) ? r + b : r;
}
TS_INLINE float floordiv_f32(float a, float b) {
  const Division d = divide_f32(a, b);
  const double q = d.rest != 0.0 && (b < 0.0f) != (d.rest < 0.0) ? d.quotient - 1.0 : d.quotient;
  return q == 0.0 ? __builtin_copysignf(0.0f, a / b) : static_cast<float>(q);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_TRIG_F32_H
