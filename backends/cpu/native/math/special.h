// Scalar special functions in float64 that neither the C library nor the vector maths provide.
#ifndef TESSERACK_CPU_SPECIAL_H
#define TESSERACK_CPU_SPECIAL_H

#include "storage.h"

#include <cmath>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// psi(x): recurrence up to 10, then the asymptotic series (Abramowitz & Stegun 6.3.18); reflection below 0.
inline double digamma(double x) {
  if (x == 0.0) return std::copysign(HUGE_VAL, -x);
  double result = 0.0;
  if (x < 0.0) {
    const double whole = std::trunc(x);
    if (whole == x) return __builtin_nan("");
    result = -M_PI / std::tan(M_PI * (x - whole));
    x = 1.0 - x;
  }
  while (x < 10.0) {
    result -= 1.0 / x;
    x += 1.0;
  }
  const double z = 1.0 / (x * x);
  const double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return result + std::log(x) - 0.5 / x - (x < 1e17 ? series : 0.0);
}

// Inverse error function: Winitzki's closed form, then three Halley steps on erf (centre) or erfc (tails).
inline double erfinv(double x) {
  const double a = std::fabs(x);
  if (!(a < 1.0)) return a == 1.0 ? std::copysign(HUGE_VAL, x) : __builtin_nan("");
  if (a == 0.0) return x;
  const double tail = 1.0 - a; // exact for a >= 1/2
  const double l = std::log1p(-a * a);
  const double k = 2.0 / (M_PI * 0.147) + 0.5 * l;
  double w = std::sqrt(std::sqrt(k * k - l / 0.147) - k);
  for (int step = 0; step < 3; ++step) {
    const double error = a < 0.5 ? std::erf(w) - a : tail - std::erfc(w);
    const double newton = error * std::exp(w * w) * (0.5 * std::sqrt(M_PI));
    w -= newton / (1.0 + w * newton);
  }
  return std::copysign(w, x);
}

// lgamma without the global signgam, which threads would race on.
inline double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_SPECIAL_H
