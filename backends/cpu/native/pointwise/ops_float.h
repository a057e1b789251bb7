// Instructions of the two floating compute types that share one text.
#ifndef TESSERACK_CPU_OPS_FLOAT_H
#define TESSERACK_CPU_OPS_FLOAT_H

#include "math/special.h"
#include "op_loops.h"

#include <cmath>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Remainder with the sign of b, as Python's %.
template <typename T> inline T python_mod(T a, T b) {
  const T r = std::fmod(a, b);
  return r != T(0) && ((b < T(0)) != (r < T(0))) ? r + b : r;
}

// Python's //: the quotient that goes with python_mod, exact where a - mod is.
template <typename T> inline T python_floordiv(T a, T b) {
  if (b == T(0)) return a / b;
  const T r = std::fmod(a, b);
  T quotient = (a - r) / b;
  if (r != T(0) && ((b < T(0)) != (r < T(0)))) quotient -= T(1);
  if (quotient == T(0)) return std::copysign(T(0), a / b);
  const T floored = std::floor(quotient);
  return quotient - floored > T(0.5) ? floored + T(1) : floored;
}

// Remainders and quotients where Exact says that Fast is; a tile with anything else goes through the C library.
template <typename T, auto Exact, auto Fast, auto Slow, int Mask>
int division_loop(T* out, const T* a, const T* b, const T*, int64_t n) {
  const T a0 = *a, b0 = *b;
  int inexact = 0;
  for (int64_t i = 0; i < n; ++i) inexact |= !Exact(Mask & 1 ? a0 : a[i], Mask & 2 ? b0 : b[i]);
  if (inexact == 0) return binary_loop<T, Fast, Mask>(out, a, b, nullptr, n);
  for (int64_t i = 0; i < n; ++i) out[i] = Slow(Mask & 1 ? a0 : a[i], Mask & 2 ? b0 : b[i]);
  return 0;
}
template <typename T, auto Exact, auto Fast, auto Slow> constexpr void set_division_loops(OpTable<T>& t, int op) {
  t.fn[op][0] = &division_loop<T, Exact, Fast, Slow, 0>;
  t.fn[op][1] = &division_loop<T, Exact, Fast, Slow, 1>;
  t.fn[op][2] = &division_loop<T, Exact, Fast, Slow, 2>;
}

template <typename T> constexpr void set_float(OpTable<T>& t) {
  set_common(t);
  set_unary<T, [](T a) { return std::fabs(a); }>(t, TS_I_ABS);
  set_unary<T, [](T a) { return T(1) / a; }>(t, TS_I_RECIP);
  set_unary<T, [](T a) { return std::sqrt(a); }>(t, TS_I_SQRT);
  set_unary<T, [](T a) { return T(1) / std::sqrt(a); }>(t, TS_I_RSQRT);
  set_unary<T, [](T a) { return std::floor(a); }>(t, TS_I_FLOOR);
  set_unary<T, [](T a) { return std::ceil(a); }>(t, TS_I_CEIL);
  set_unary<T, [](T a) { return std::trunc(a); }>(t, TS_I_TRUNC);
  set_unary<T, [](T a) { return std::rint(a); }>(t, TS_I_ROUND);
  set_unary<T, [](T a) { return std::tan(a); }>(t, TS_I_TAN);
  set_unary<T, [](T a) { return std::asin(a); }>(t, TS_I_ASIN);
  set_unary<T, [](T a) { return std::acos(a); }>(t, TS_I_ACOS);
  set_unary<T, [](T a) { return std::atan(a); }>(t, TS_I_ATAN);
  set_unary<T, [](T a) { return std::sinh(a); }>(t, TS_I_SINH);
  set_unary<T, [](T a) { return std::cosh(a); }>(t, TS_I_COSH);
  set_unary<T, [](T a) { return std::asinh(a); }>(t, TS_I_ASINH);
  set_unary<T, [](T a) { return std::acosh(a); }>(t, TS_I_ACOSH);
  set_unary<T, [](T a) { return std::atanh(a); }>(t, TS_I_ATANH);
  set_unary<T, [](T a) { return std::erfc(a); }>(t, TS_I_ERFC);
  set_unary<T, [](T a) { return static_cast<T>(erfinv(a)); }>(t, TS_I_ERFINV);
  set_unary<T, [](T a) { return static_cast<T>(log_gamma(a)); }>(t, TS_I_LGAMMA);
  set_unary<T, [](T a) { return static_cast<T>(digamma(a)); }>(t, TS_I_DIGAMMA);
  set_binary<T, [](T a, T b) { return a / b; }>(t, TS_I_DIV);
  set_binary<T, [](T a, T b) { return python_floordiv(a, b); }>(t, TS_I_FLOORDIV);
  set_binary<T, [](T a, T b) { return python_mod(a, b); }>(t, TS_I_MOD);
  set_binary<T, [](T a, T b) { return std::fmod(a, b); }>(t, TS_I_FMOD);
  set_binary<T, [](T a, T b) { return std::atan2(a, b); }>(t, TS_I_ATAN2);
  set_binary<T, [](T a, T b) { return std::hypot(a, b); }>(t, TS_I_HYPOT);
  set_binary<T, [](T a, T b) { return std::copysign(a, b); }>(t, TS_I_COPYSIGN);
  set_unary<T, [](T a) { return backend::rounded_through<backend::Half>(a); }>(t, TS_I_ROUND_FLOAT16);
  set_unary<T, [](T a) { return backend::rounded_through<backend::BFloat16>(a); }>(t, TS_I_ROUND_BFLOAT16);
  set_ternary<T, [](T a, T b, T c) { return fused(a, b, c); }>(t, TS_I_FMA);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_OPS_FLOAT_H
