// Loops over one scalar function, and the instructions every compute type shares.
#ifndef TESSERACK_CPU_OP_LOOPS_H
#define TESSERACK_CPU_OP_LOOPS_H

#include "math/math_f32.h"
#include "ops.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

template <typename T, auto F> int unary_loop(T* out, const T* a, const T*, const T*, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F(a[i]);
  return 0;
}

template <typename T, auto F, int Mask> int binary_loop(T* out, const T* a, const T* b, const T*, int64_t n) {
  const T a0 = *a, b0 = *b;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F(Mask & 1 ? a0 : a[i], Mask & 2 ? b0 : b[i]);
  return 0;
}

template <typename T, auto F, int Mask> int ternary_loop(T* out, const T* a, const T* b, const T* c, int64_t n) {
  const T a0 = *a, b0 = *b, c0 = *c;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F(Mask & 1 ? a0 : a[i], Mask & 2 ? b0 : b[i], Mask & 4 ? c0 : c[i]);
  return 0;
}

template <typename T, auto F> constexpr void set_unary(OpTable<T>& table, int op) {
  table.fn[op][0] = &unary_loop<T, F>;
}
template <typename T, auto F> constexpr void set_binary(OpTable<T>& table, int op) {
  table.fn[op][0] = &binary_loop<T, F, 0>;
  table.fn[op][1] = &binary_loop<T, F, 1>;
  table.fn[op][2] = &binary_loop<T, F, 2>;
}
template <typename T, auto F> constexpr void set_ternary(OpTable<T>& table, int op) {
  table.fn[op][0] = &ternary_loop<T, F, 0>;
  table.fn[op][1] = &ternary_loop<T, F, 1>;
  table.fn[op][2] = &ternary_loop<T, F, 2>;
  table.fn[op][3] = &ternary_loop<T, F, 3>;
  table.fn[op][4] = &ternary_loop<T, F, 4>;
  table.fn[op][5] = &ternary_loop<T, F, 5>;
  table.fn[op][6] = &ternary_loop<T, F, 6>;
}

// Instructions whose text is the same for every type. Integers wrap (-fwrapv).
template <typename T> constexpr void set_common(OpTable<T>& t) {
  set_unary<T, [](T a) { return a; }>(t, TS_I_COPY);
  set_unary<T, [](T a) { return static_cast<T>(-a); }>(t, TS_I_NEG);
  set_unary<T, [](T a) { return static_cast<T>((T(0) < a) - (a < T(0))); }>(t, TS_I_SIGN);
  set_unary<T, [](T a) { return static_cast<T>(a == T(0)); }>(t, TS_I_NOT);
  set_binary<T, [](T a, T b) { return static_cast<T>(a + b); }>(t, TS_I_ADD);
  set_binary<T, [](T a, T b) { return static_cast<T>(a - b); }>(t, TS_I_SUB);
  set_binary<T, [](T a, T b) { return static_cast<T>(a * b); }>(t, TS_I_MUL);
  set_binary<T, [](T a, T b) { return (a >= b) | (a != a) ? a : b; }>(t, TS_I_MAX);
  set_binary<T, [](T a, T b) { return (a <= b) | (a != a) ? a : b; }>(t, TS_I_MIN);
  set_binary<T, [](T a, T b) { return static_cast<T>(a == b); }>(t, TS_I_EQ);
  set_binary<T, [](T a, T b) { return static_cast<T>(a != b); }>(t, TS_I_NE);
  set_binary<T, [](T a, T b) { return static_cast<T>(a < b); }>(t, TS_I_LT);
  set_binary<T, [](T a, T b) { return static_cast<T>(a <= b); }>(t, TS_I_LE);
  set_binary<T, [](T a, T b) { return static_cast<T>(a > b); }>(t, TS_I_GT);
  set_binary<T, [](T a, T b) { return static_cast<T>(a >= b); }>(t, TS_I_GE);
  set_ternary<T, [](T a, T b, T c) { return a != T(0) ? b : c; }>(t, TS_I_SELECT);
}

// What fusions.h makes of several, each rounded as they are.
template <typename T> constexpr void set_fused(OpTable<T>& t) {
  set_ternary<T, [](T a, T b, T c) { return b < a ? a : a * c; }>(t, kLeakyRelu);
  set_ternary<T, [](T a, T b, T c) { return a + c * (b - a); }>(t, kLerp);
  set_ternary<T, [](T a, T b, T c) {
    const T near_a = a + c * (b - a), near_b = b - (b - a) * (T(1) - c);
    return (c < T(0) ? -c : c) < T(0.5) ? near_a : near_b;
  }>(t, kLerpToNearer);
  // As max and min are written, but for the order of the comparisons: GCC 12 makes no vectors of those one in the
  // other.
  set_ternary<T, [](T a, T b, T c) {
    const T low = (a < b) | (b != b) ? b : a;
    return (c < low) | (c != c) ? c : low;
  }>(t, kClamp);
  set_ternary<T, [](T a, T b, T c) { return a + b * c; }>(t, kAddProduct);
  set_ternary<T, [](T a, T b, T c) { return a - b * c; }>(t, kSubProduct);
  set_ternary<T, [](T a, T b, T c) { return a * (b + c); }>(t, kMulSum);
  set_ternary<T, [](T a, T b, T c) { return a * (b - c); }>(t, kMulDifference);
  set_ternary<T, [](T a, T b, T c) { return a * (b * c); }>(t, kMulProduct);
  set_ternary<T, [](T a, T b, T c) { return b < a ? a : c; }>(t, kSelfIfAbove);
  set_ternary<T, [](T a, T b, T c) { return a <= b ? b : c; }>(t, kLimitIfAtMost);
  set_ternary<T, [](T a, T b, T c) { return static_cast<T>((a < b) | (a > c)); }>(t, kBeyond);
  set_ternary<T, [](T a, T b, T c) { return static_cast<T>((a <= b) | (a >= c)); }>(t, kOutside);
  set_ternary<T, [](T a, T b, T c) { return a + b / c; }>(t, kAddQuotient);
  set_ternary<T, [](T a, T b, T c) { return a != a ? b : c; }>(t, kNumberOr);
  set_ternary<T, [](T a, T b, T c) { return a * (b - c * a); }>(t, kHuber);
  set_ternary<T, [](T a, T b, T c) { return static_cast<T>(a < b) * c; }>(t, kIfLess);
  set_ternary<T, [](T a, T b, T c) {
    const T low = a <= -c ? -c : a;
    const T within = c <= low ? c : low;
    return a != a ? b : within;
  }>(t, kNumberWithin);
  set_ternary<T, [](T a, T b, T c) {
    constexpr T limit = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : T(0);
    const T lower = a == -limit ? c : a;
    return a == limit ? b : lower;
  }>(t, kReplaceInf);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_OP_LOOPS_H
