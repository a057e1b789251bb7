// pow in float64, branch-free so that the compiler vectorises a loop over it: the logarithm as a sum of two numbers, of
// which the error stays below 2^-64 of it, and exp of its product with the exponent. Less than 1 ulp in all.
#ifndef TESSERACK_CPU_POW_F64_H
#define TESSERACK_CPU_POW_F64_H

#include "horner.h"

#include <cmath>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

#if defined(__FMA__)

struct Pair64 {
  double high, low;
};

// a + b where a is the larger in magnitude, or zero
TS_INLINE Pair64 sum_of(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// log(1 + f) + exponent * ln 2, by 2 atanh(s) of s = f / (2 + f): what the cube of s adds is rounded twice as finely,
// what comes after it is a 2^-12th of the whole.
TS_INLINE Pair64 log_pair(const Split& a) {
  const double f = a.f, d = 2.0 + f, d_low = f - (d - 2.0), r = 1.0 / d;
  const double s = f * r, s_low = r * (fused(-s, d, f) - s * d_low);
  const double z = s * s, z_low = fused(s, s, -z) + 2.0 * s * s_low;
  const double q = horner(z, 2.0 / 25, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                          2.0 / 7, 2.0 / 5);
  const double cube = s * z, cube_low = fused(s, z, -cube) + (s * z_low + s_low * z);
  constexpr double third = 2.0 / 3, third_low = 0x1.5555555555555p-55; // together 2/3 to 2^-107
  const double t = cube * third, t_low = fused(cube, third, -t) + (cube * third_low + cube_low * third);
  const Pair64 tail = sum_of(2.0 * s, t);
  const double low = tail.low + (2.0 * s_low + (t_low + cube * z * q));
  const Pair64 all = sum_of(a.exponent * kLn2High, tail.high);
  return sum_of(all.high, all.low + (low + a.exponent * kLn2Low));
}

// exp(x + low)
TS_INLINE double exp_of_sum(double x, double low) {
  const double t = fused(x, kLog2E, kRound), n = t - kRound;
  const double high = fused(n, -kLn2High, x), rest = fused(n, -kLn2Low, low);
  const double r = high + rest, lost = rest - (r - high);
  const uint64_t i = bits_of(t) - bits_of(kRound) + 4096, half = i >> 1;
  const double first = float_of((half + 1023 - 2048) << 52), second = float_of((i - half + 1023 - 2048) << 52);
  return (expm1_reduced(r) + lost + 1.0) * first * second;
}

TS_INLINE double pow_f64(double x, double y) {
  const double ax = __builtin_fabs(x), inf = __builtin_inf();
  const bool tiny = ax < 0x1p-1022;
  Split a = split_f64(tiny ? ax * 0x1p54 : ax);
  a.exponent -= tiny ? 54.0 : 0.0;
  const Pair64 log = log_pair(a);
  double t = y * log.high;
  const bool far = __builtin_fabs(t) > 800.0;
  const double low = far ? 0.0 : fused(y, log.high, -t) + y * log.low;
  t = t < -800.0 ? -800.0 : t;
  t = t > 800.0 ? 800.0 : t;
  double power = exp_of_sum(t, low);
  power = ax == 0.0 ? (y < 0.0 ? inf : 0.0) : power;
  power = ax == inf ? (y < 0.0 ? 0.0 : inf) : power;
  const double half = y * 0.5;
  const bool whole = __builtin_rint(y) == y, odd = whole & (__builtin_rint(half) != half);
  power = (std::bit_cast<int64_t>(x) < 0) & odd ? -power : power;
  power = (x < 0.0) & !whole & (ax < inf) ? __builtin_nan("") : power;
  power = (x != x) | (y != y) ? x + y : power;
  return (y == 0.0) | (x == 1.0) | ((x == -1.0) & (__builtin_fabs(y) == inf)) ? 1.0 : power;
}

#else

TS_INLINE double pow_f64(double x, double y) { return std::pow(x, y); }

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_POW_F64_H
