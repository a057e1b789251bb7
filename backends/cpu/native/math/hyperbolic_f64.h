// Hyperbolic functions, their inverses and the inverse of erf in float64, branch-free for the compiler to vectorise.
#ifndef TESSERACK_CPU_HYPERBOLIC_F64_H
#define TESSERACK_CPU_HYPERBOLIC_F64_H

#include "erfc_f64.h"
#include "trig_f32.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr double kExpLimitF64 = 700.0; // beyond it exp may be infinite where its half is not

TS_INLINE double half_exp(double a) {
  const double h = exp_f64(0.5 * a);
  return 0.5 * h * h;
}
TS_INLINE double sinh_f64(double x) {
  const double a = __builtin_fabs(x), e = expm1_f64(a);
  const double y = 0.5 * (e + e / (e + 1.0));
  return a < 0x1p-28 ? x : __builtin_copysign(a > kExpLimitF64 ? half_exp(a) : y, x);
}
TS_INLINE double cosh_f64(double x) {
  const double a = __builtin_fabs(x), z = exp_f64(a);
  const double y = 0.5 * z + 0.5 / z;
  return a > kExpLimitF64 ? half_exp(a) : y;
}
TS_INLINE double atanh_f64(double x) {
  const double a = __builtin_fabs(x), y = 0.5 * log1p_f64(2.0 * a / (1.0 - a));
  return __builtin_copysign(a == 1.0 ? __builtin_inf() : y, x);
}
// Where squares would overflow, log(2 a).
TS_INLINE double asinh_f64(double x) {
  const double a = __builtin_fabs(x), z = a * a, y = log1p_f64(a + z / (1.0 + __builtin_sqrt(1.0 + z)));
  return __builtin_copysign(a > 0x1p500 ? log_f64(a) + 0x1.62e42fefa39efp-1 : y, x);
}
TS_INLINE double acosh_f64(double x) {
  const double a = x - 1.0, y = log1p_f64(a + __builtin_sqrt(a * (a + 2.0)));
  return x < 1.0 ? __builtin_nan("") : x > 0x1p500 ? log_f64(x) + 0x1.62e42fefa39efp-1 : y;
}

// After Wichura, "The percentage points of the normal distribution" (AS 241): quotients of polynomials, of
// 0.180625 - (x/2)^2 up to 0.85 and of r = sqrt(-log((1 - |x|) / 2)) beyond, up to r = 5.
constexpr double kErfinvNear = 0.85, kSqrtHalf = 0x1.6a09e667f3bcdp-1;
constexpr double kErfinvNearOver[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                                      4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                      1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr double kErfinvNearUnder[] = {
    5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
    5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0};
constexpr double kErfinvFarOver[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                                     1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                     4.63033784615654529590e+0, 1.42343711074968357734e+0};
constexpr double kErfinvFarUnder[] = {
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0};
TS_INLINE double erfinv_quotient(const double (&over)[8], const double (&under)[8], double r) {
  double p = over[0], q = under[0];
#pragma GCC unroll 8
  for (int k = 1; k < 8; ++k) p = fused(p, r, over[k]), q = fused(q, r, under[k]);
  return p / q;
}
TS_INLINE double erfinv_near_f64(double x) {
  const double q = 0.5 * x;
  return x * (0.5 * kSqrtHalf * erfinv_quotient(kErfinvNearOver, kErfinvNearUnder, 0.180625 - q * q));
}
TS_INLINE double erfinv_root_f64(double x) { return __builtin_sqrt(-log_f64(0.5 * (1.0 - __builtin_fabs(x)))); }
TS_INLINE double erfinv_far_f64(double x) {
  const double y = erfinv_quotient(kErfinvFarOver, kErfinvFarUnder, erfinv_root_f64(x) - 1.6);
  return __builtin_copysign(kSqrtHalf * y, x);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_HYPERBOLIC_F64_H
