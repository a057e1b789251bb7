// Scalar functions that the C++ library lacks.
#ifndef TESSERACK_HOST_SPECIAL_HPP
#define TESSERACK_HOST_SPECIAL_HPP

#include <tesserack/backend.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

// --- integers: no trap, no undefined behaviour ---------------------------------------------------------------------

// The lowest number divided by -1 does not fit; it wraps to itself.
template <typename T> bool overflows(T a, T b) {
  if constexpr (std::is_signed_v<T>) return a == std::numeric_limits<T>::min() && b == T(-1);
  return false;
}
template <typename T> T quotient(T a, T b) { return overflows(a, b) ? a : a / b; }
template <typename T> T remainder_of(T a, T b) { return overflows(a, b) ? T(0) : a % b; }

// Whether truncation rounded up instead of down.
template <typename T> bool rounded_up(T remainder, T b) { return remainder != 0 && (remainder < 0) != (b < 0); }
template <typename T> T int_floordiv(T a, T b) { return quotient(a, b) - T(rounded_up(remainder_of(a, b), b)); }
template <typename T> T int_mod(T a, T b) {
  const T r = remainder_of(a, b);
  return rounded_up(r, b) ? r + b : r;
}

// By squaring; of negative exponents only powers of 1 and -1 are not 0.
template <typename T> T int_pow(T base, T exponent) {
  if (std::is_signed_v<T> && exponent < 0) {
    if (base == T(-1)) return exponent % 2 == 0 ? T(1) : T(-1);
    return base == T(1) ? T(1) : T(0);
  }
  T result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

// A count outside of [0, bits) shifts everything out.
template <typename T> T shift_left(T a, T count) {
  using U = std::make_unsigned_t<T>;
  return U(count) < sizeof(T) * 8 ? T(U(a) << U(count)) : T(0);
}
template <typename T> T shift_right(T a, T count) {
  using U = std::make_unsigned_t<T>;
  return U(count) < sizeof(T) * 8 ? T(a >> U(count)) : T(a < 0 ? -1 : 0);
}

// --- floats: Python's % and // -------------------------------------------------------------------------------------

template <typename T> T float_mod(T a, T b) {
  const T r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <typename T> T float_floordiv(T a, T b) {
  if (b == 0) return a / b;
  const T r = std::fmod(a, b);
  T whole = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) whole -= 1;
  if (whole == 0) return std::copysign(T(0), a / b);
  const T floored = std::floor(whole);
  return whole - floored > T(0.5) ? floored + 1 : floored;
}

// --- special functions, in float64 ---------------------------------------------------------------------------------

constexpr double kPi = 3.14159265358979323846;

// lgamma without the C library's global sign, which threads would race on.
inline double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

// Recurrence up to 10, then the asymptotic series (Abramowitz & Stegun 6.3.18); reflection below 0.
inline double digamma(double x) {
  if (x == 0) return std::copysign(HUGE_VAL, -x);
  double result = 0;
  if (x < 0) {
    const double whole = std::trunc(x);
    if (whole == x) return std::nan("");
    result = -kPi / std::tan(kPi * (x - whole));
    x = 1 - x;
  }
  for (; x < 10; ++x) result -= 1 / x;
  const double z = 1 / (x * x);
  const double tail = 1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12));
  const double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * tail)));
  return result + std::log(x) - 0.5 / x - (x < 1e17 ? series : 0);
}

// Winitzki's closed form, then three Halley steps on erf (centre) or erfc (tails).
inline double erfinv(double x) {
  const double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(HUGE_VAL, x) : std::nan("");
  if (a == 0) return x;
  const double l = std::log1p(-a * a), k = 2 / (kPi * 0.147) + l / 2;
  double w = std::sqrt(std::sqrt(k * k - l / 0.147) - k);
  for (int step = 0; step < 3; ++step) {
    const double error = a < 0.5 ? std::erf(w) - a : 1 - a - std::erfc(w);
    const double newton = error * std::exp(w * w) * std::sqrt(kPi) / 2;
    w -= newton / (1 + w * newton);
  }
  return std::copysign(w, x);
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_SPECIAL_HPP
