// The scalar instructions, each as a loop over a tile. Integers wrap (the build has -fwrapv) and never trap.
#ifndef TESSERACK_HOST_INSTRUCTIONS_HPP
#define TESSERACK_HOST_INSTRUCTIONS_HPP

#include <tesserack/backend.hpp>
#include <tesserack/host/special.hpp>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

template <typename T, typename F> void map1(T* out, const T* a, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i]);
}
template <typename T, typename F> void map2(T* out, const T* a, const T* b, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}
template <typename T, typename F> void map3(T* out, const T* a, const T* b, const T* c, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i], c[i]);
}

// What reads the same for every type; false for other instructions.
template <typename T> bool run_common(int op, T* out, const T* a, const T* b, const T* c, int64_t n) {
  switch (op) {
  case TS_I_COPY: return map1(out, a, n, [](T x) { return x; }), true;
  case TS_I_NEG: return map1(out, a, n, [](T x) { return T(-x); }), true;
  case TS_I_SIGN: return map1(out, a, n, [](T x) { return T((T(0) < x) - (x < T(0))); }), true;
  case TS_I_NOT: return map1(out, a, n, [](T x) { return T(x == T(0)); }), true;
  case TS_I_ADD: return map2(out, a, b, n, [](T x, T y) { return T(x + y); }), true;
  case TS_I_SUB: return map2(out, a, b, n, [](T x, T y) { return T(x - y); }), true;
  case TS_I_MUL: return map2(out, a, b, n, [](T x, T y) { return T(x * y); }), true;
  case TS_I_MAX: return map2(out, a, b, n, [](T x, T y) { return x >= y || x != x ? x : y; }), true;
  case TS_I_MIN: return map2(out, a, b, n, [](T x, T y) { return x <= y || x != x ? x : y; }), true;
  case TS_I_EQ: return map2(out, a, b, n, [](T x, T y) { return T(x == y); }), true;
  case TS_I_NE: return map2(out, a, b, n, [](T x, T y) { return T(x != y); }), true;
  case TS_I_LT: return map2(out, a, b, n, [](T x, T y) { return T(x < y); }), true;
  case TS_I_LE: return map2(out, a, b, n, [](T x, T y) { return T(x <= y); }), true;
  case TS_I_GT: return map2(out, a, b, n, [](T x, T y) { return T(x > y); }), true;
  case TS_I_GE: return map2(out, a, b, n, [](T x, T y) { return T(x >= y); }), true;
  case TS_I_SELECT: return map3(out, a, b, c, n, [](T x, T y, T z) { return x != T(0) ? y : z; }), true;
  case TS_I_FMA: return map3(out, a, b, c, n, [](T x, T y, T z) { return T(x * y + z); }), true;
  default: return false;
  }
}

template <typename T> bool run_floating(int op, T* out, const T* a, const T* b, int64_t n) {
  switch (op) {
  case TS_I_ABS: return map1(out, a, n, [](T x) { return std::fabs(x); }), true;
  case TS_I_RECIP: return map1(out, a, n, [](T x) { return 1 / x; }), true;
  case TS_I_SQRT: return map1(out, a, n, [](T x) { return std::sqrt(x); }), true;
  case TS_I_RSQRT: return map1(out, a, n, [](T x) { return 1 / std::sqrt(x); }), true;
  case TS_I_EXP: return map1(out, a, n, [](T x) { return std::exp(x); }), true;
  case TS_I_EXP2: return map1(out, a, n, [](T x) { return std::exp2(x); }), true;
  case TS_I_EXPM1: return map1(out, a, n, [](T x) { return std::expm1(x); }), true;
  case TS_I_LOG: return map1(out, a, n, [](T x) { return std::log(x); }), true;
  case TS_I_LOG2: return map1(out, a, n, [](T x) { return std::log2(x); }), true;
  case TS_I_LOG10: return map1(out, a, n, [](T x) { return std::log10(x); }), true;
  case TS_I_LOG1P: return map1(out, a, n, [](T x) { return std::log1p(x); }), true;
  case TS_I_SIN: return map1(out, a, n, [](T x) { return std::sin(x); }), true;
  case TS_I_COS: return map1(out, a, n, [](T x) { return std::cos(x); }), true;
  case TS_I_TAN: return map1(out, a, n, [](T x) { return std::tan(x); }), true;
  case TS_I_ASIN: return map1(out, a, n, [](T x) { return std::asin(x); }), true;
  case TS_I_ACOS: return map1(out, a, n, [](T x) { return std::acos(x); }), true;
  case TS_I_ATAN: return map1(out, a, n, [](T x) { return std::atan(x); }), true;
  case TS_I_SINH: return map1(out, a, n, [](T x) { return std::sinh(x); }), true;
  case TS_I_COSH: return map1(out, a, n, [](T x) { return std::cosh(x); }), true;
  case TS_I_TANH: return map1(out, a, n, [](T x) { return std::tanh(x); }), true;
  case TS_I_ASINH: return map1(out, a, n, [](T x) { return std::asinh(x); }), true;
  case TS_I_ACOSH: return map1(out, a, n, [](T x) { return std::acosh(x); }), true;
  case TS_I_ATANH: return map1(out, a, n, [](T x) { return std::atanh(x); }), true;
  case TS_I_ERF: return map1(out, a, n, [](T x) { return std::erf(x); }), true;
  case TS_I_ERFC: return map1(out, a, n, [](T x) { return std::erfc(x); }), true;
  case TS_I_ERFINV: return map1(out, a, n, [](T x) { return T(erfinv(x)); }), true;
  case TS_I_LGAMMA: return map1(out, a, n, [](T x) { return T(log_gamma(x)); }), true;
  case TS_I_DIGAMMA: return map1(out, a, n, [](T x) { return T(digamma(x)); }), true;
  case TS_I_SIGMOID: return map1(out, a, n, [](T x) { return 1 / (1 + std::exp(-x)); }), true;
  case TS_I_FLOOR: return map1(out, a, n, [](T x) { return std::floor(x); }), true;
  case TS_I_CEIL: return map1(out, a, n, [](T x) { return std::ceil(x); }), true;
  case TS_I_TRUNC: return map1(out, a, n, [](T x) { return std::trunc(x); }), true;
  case TS_I_ROUND: return map1(out, a, n, [](T x) { return std::nearbyint(x); }), true; // half to even
  case TS_I_DIV: return map2(out, a, b, n, [](T x, T y) { return x / y; }), true;
  case TS_I_FLOORDIV: return map2(out, a, b, n, [](T x, T y) { return float_floordiv(x, y); }), true;
  case TS_I_MOD: return map2(out, a, b, n, [](T x, T y) { return float_mod(x, y); }), true;
  case TS_I_FMOD: return map2(out, a, b, n, [](T x, T y) { return std::fmod(x, y); }), true;
  case TS_I_POW: return map2(out, a, b, n, [](T x, T y) { return std::pow(x, y); }), true;
  case TS_I_ATAN2: return map2(out, a, b, n, [](T x, T y) { return std::atan2(x, y); }), true;
  case TS_I_HYPOT: return map2(out, a, b, n, [](T x, T y) { return std::hypot(x, y); }), true;
  case TS_I_COPYSIGN: return map2(out, a, b, n, [](T x, T y) { return std::copysign(x, y); }), true;
  default: return false;
  }
}

template <typename T> void need_divisors(const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (b[i] == 0) fail(TS_ERROR, "ZeroDivisionError: integer division or modulo by zero");
}

template <typename T> bool run_division(int op, T* out, const T* a, const T* b, int64_t n) {
  if (op < TS_I_DIV || op > TS_I_FMOD) return false;
  need_divisors(b, n);
  switch (op) {
  case TS_I_DIV: return map2(out, a, b, n, [](T x, T y) { return quotient(x, y); }), true;
  case TS_I_FLOORDIV: return map2(out, a, b, n, [](T x, T y) { return int_floordiv(x, y); }), true;
  case TS_I_MOD: return map2(out, a, b, n, [](T x, T y) { return int_mod(x, y); }), true;
  default: return map2(out, a, b, n, [](T x, T y) { return remainder_of(x, y); }), true;
  }
}

template <typename T> bool run_integer(int op, T* out, const T* a, const T* b, int64_t n) {
  switch (op) {
  case TS_I_ABS: return map1(out, a, n, [](T x) { return x < 0 ? T(-x) : x; }), true;
  case TS_I_FLOOR:
  case TS_I_CEIL:
  case TS_I_TRUNC:
  case TS_I_ROUND: return map1(out, a, n, [](T x) { return x; }), true;
  case TS_I_BITNOT: return map1(out, a, n, [](T x) { return T(~x); }), true;
  case TS_I_POW: return map2(out, a, b, n, [](T x, T y) { return int_pow(x, y); }), true;
  case TS_I_AND: return map2(out, a, b, n, [](T x, T y) { return T(x & y); }), true;
  case TS_I_OR: return map2(out, a, b, n, [](T x, T y) { return T(x | y); }), true;
  case TS_I_XOR: return map2(out, a, b, n, [](T x, T y) { return T(x ^ y); }), true;
  case TS_I_SHL: return map2(out, a, b, n, [](T x, T y) { return shift_left(x, y); }), true;
  case TS_I_SHR: return map2(out, a, b, n, [](T x, T y) { return shift_right(x, y); }), true;
  default: return run_division(op, out, a, b, n);
  }
}

// One instruction over n elements. An unknown one, from a newer core, is an error and never a wrong number.
template <typename T> void run_instruction(int op, T* out, const T* a, const T* b, const T* c, int64_t n) {
  if (run_common(op, out, a, b, c, n)) return;
  bool known;
  if constexpr (std::is_floating_point_v<T>)
    known = run_floating(op, out, a, b, n);
  else
    known = run_integer(op, out, a, b, n);
  if (!known) fail(TS_ERROR, "pointwise: no instruction '%s' (%d) for this type", instruction_name(op), op);
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_INSTRUCTIONS_HPP
