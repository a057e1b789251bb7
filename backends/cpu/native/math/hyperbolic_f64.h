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

// What float32 begins with is right to 2^-24; one step of Halley's method makes it 2^-70, less what erf is off. Near 1
// erfc tells what erf cannot.
constexpr double kErfinvLimitF64 = 3.2e-8; // of 1 - x^2: as far as the polynomials reach
TS_INLINE double erfinv_f64(double x) {
  const double a = __builtin_fabs(x), w = -log_short((1.0 - a) * (1.0 + a));
  const double centre = polynomial(kErfinvCentre, w - 2.5), tail = polynomial(kErfinvTail, __builtin_sqrt(w) - 3.25);
  const double y = a * (w < 5.0 ? centre : tail);
  const double off = a < 0.5 ? erf_f64(y) - a : (1.0 - a) - erfc_f64(y);
  const double u = off * 0x1.c5bf891b4ef6bp-1 * exp_f64(y * y);
  const double z = y - u / (1.0 + y * u);
  return x == 0.0 ? x : __builtin_copysign(z, x);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_HYPERBOLIC_F64_H
