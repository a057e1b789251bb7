// erfc and erf in float64, branch-free for the compiler to vectorise.
#ifndef TESSERACK_CPU_ERFC_F64_H
#define TESSERACK_CPU_ERFC_F64_H

#include "math_f64.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// erfc(a) = exp(-a^2) / (1 + 2 a) * p((a - 3) / (a + 3)) for a from 0 to 27.3, after which it is below the least
// float64; p interpolates (1 + 2 a) erfcx(a) at Chebyshev's points to 2^-59. One division serves both quotients, and
// the square is taken in two parts. 5 ulp, found against 40 digits; erfc(0) is 1, for which c1 is two ulp off. Exp is
// exp_f64, or exp_near_f64 for |x| up to kErfcNear.
constexpr double kErfcNear = 26.0;
template <auto Exp> TS_INLINE double erfc_by(double x) {
  double a = __builtin_fabs(x);
  a = a > 27.3 ? 27.3 : a;
  const double b = a + 3.0, c = 1.0 + 2.0 * a, r = 1.0 / (b * c);
  const double t = (a - 3.0) * c * r;
  double p = 0x1.32f916d7f24bap-31;
  p = fused(p, t, 0x1.4506fff442275p-32);
  p = fused(p, t, -0x1.05aac0c41f5f7p-27);
  p = fused(p, t, -0x1.703abbbe34070p-27);
  p = fused(p, t, 0x1.60d95cb4ecaebp-25);
  p = fused(p, t, 0x1.a331fbdb48692p-24);
  p = fused(p, t, -0x1.306ed7718ab49p-23);
  p = fused(p, t, -0x1.48edb7639c1ecp-21);
  p = fused(p, t, 0x1.7fecf28a61665p-22);
  p = fused(p, t, 0x1.d1bfc39a95099p-19);
  p = fused(p, t, -0x1.890959090a61ep-21);
  p = fused(p, t, -0x1.5137874a8ac3dp-16);
  p = fused(p, t, 0x1.4c2b9e952f690p-18);
  p = fused(p, t, 0x1.065a168ff926fp-13);
  p = fused(p, t, -0x1.b91289739688ap-14);
  p = fused(p, t, -0x1.98db4fb0af7c3p-11);
  p = fused(p, t, 0x1.ef1bdd6f30d1dp-10);
  p = fused(p, t, 0x1.4b884e3b08132p-9);
  p = fused(p, t, -0x1.8574c40bf8dc6p-6);
  p = fused(p, t, 0x1.17ca2877f5227p-4);
  p = fused(p, t, -0x1.e88b803a48d95p-4);
  p = fused(p, t, 0x1.098366a5b45e9p-3);
  p = fused(p, t, -0x1.85a15c58aa5f0p-5);
  p = fused(p, t, -0x1.15c084bb9e8f3p-3);
  p = fused(p, t, 0x1.40c522d7e4987p+0);
  const double high = float_of(bits_of(a) & ~uint64_t{0x7ffffff}); // its square is exact
  const double z = (a - high) * (a + high);
  const double y = Exp(-high * high) * (p * (b * r));
  const double tail = fused(-y, z * fused(z, fused(z, 1.0 / 6, -0.5), 1.0), y); // y exp(-z)
  return x < 0.0 ? 2.0 - tail : tail;
}

TS_INLINE double erfc_f64(double x) {
  return erfc_by<[](double a) { return exp_f64(a); }>(x);
}
TS_INLINE double erfc_near_f64(double x) {
  return erfc_by<[](double a) { return exp_near_f64(a); }>(x);
}

// Below 1 in magnitude x + x q(x^2), q an interpolation of erf(x) / x - 1 at Chebyshev's points to 2^-56.
TS_INLINE double erf_near_f64(double x) {
  const double z = x * x;
  double q = -0x1.29b9f1b3df556p-38;
  q = fused(q, z, 0x1.7f072188e194dp-34);
  q = fused(q, z, -0x1.4e607b41a6416p-30);
  q = fused(q, z, 0x1.fc4356498c2d9p-27);
  q = fused(q, z, -0x1.5f6d925a0bc7ap-23);
  q = fused(q, z, 0x1.b9e6509b9867dp-20);
  q = fused(q, z, -0x1.f4d2561aeafd4p-17);
  q = fused(q, z, 0x1.f9a326c233146p-14);
  q = fused(q, z, -0x1.c02db3feeb579p-11);
  q = fused(q, z, 0x1.565bcd0e6502dp-8);
  q = fused(q, z, -0x1.b82ce312889bap-6);
  q = fused(q, z, 0x1.ce2f21a042bdep-4);
  q = fused(q, z, -0x1.812746b0379e7p-2);
  q = fused(q, z, 0x1.06eba8214db69p-3);
  return fused(x, q, x);
}
TS_INLINE double erf_far_f64(double x) { return __builtin_copysign(1.0 - erfc_f64(__builtin_fabs(x)), x); }
TS_INLINE double erf_f64(double x) {
  const double near = erf_near_f64(x), far = erf_far_f64(x);
  return __builtin_fabs(x) < 1.0 ? near : far;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ERFC_F64_H
