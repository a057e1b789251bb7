// Integer instructions of the tile machine: everything wraps, nothing traps.
#include "op_loops.h"

#include <limits>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

template <typename T> inline bool overflows(T a, T b) {
  if constexpr (std::is_signed_v<T>) return a == std::numeric_limits<T>::min() && b == T(-1);
  return false;
}

template <typename T> inline T truncdiv(T a, T b) { return overflows(a, b) ? a : a / b; }
template <typename T> inline T truncmod(T a, T b) { return overflows(a, b) ? T(0) : a % b; }
template <typename T> inline T floordiv(T a, T b) {
  const T q = truncdiv(a, b), r = truncmod(a, b);
  return r != T(0) && ((r < T(0)) != (b < T(0))) ? q - T(1) : q;
}
template <typename T> inline T floormod(T a, T b) {
  const T r = truncmod(a, b);
  return r != T(0) && ((r < T(0)) != (b < T(0))) ? r + b : r;
}

// Looks at every divisor before dividing.
template <typename T, auto F, int Mask> int division_loop(T* out, const T* a, const T* b, const T*, int64_t n) {
  int zero = 0;
  const int64_t divisors = Mask & 2 ? 1 : n;
  for (int64_t i = 0; i < divisors; ++i) zero |= b[i] == T(0);
  if (zero != 0) return 1;
  return binary_loop<T, F, Mask>(out, a, b, nullptr, n);
}
template <typename T, auto F> constexpr void set_division(OpTable<T>& table, int op) {
  table.fn[op][0] = &division_loop<T, F, 0>;
  table.fn[op][1] = &division_loop<T, F, 1>;
  table.fn[op][2] = &division_loop<T, F, 2>;
}

// By squaring; a negative exponent leaves only 1 and -1 to the power anything but 0.
template <typename T> inline T power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < T(0)) {
      if (base == T(1)) return T(1);
      if (base == T(-1)) return exponent % 2 == 0 ? T(1) : T(-1);
      return T(0);
    }
  }
  T result = 1;
  while (exponent != T(0)) {
    if ((exponent & T(1)) != T(0)) result = static_cast<T>(result * base);
    base = static_cast<T>(base * base);
    exponent = exponent >> 1;
  }
  return result;
}

// A count outside [0, width) shifts everything out: 0, or the sign for a signed right shift.
template <typename T> inline T shift_left(T a, T b) {
  using U = std::make_unsigned_t<T>;
  constexpr U width = sizeof(T) * 8;
  const U count = static_cast<U>(b);
  return count < width ? static_cast<T>(static_cast<U>(a) << (count & (width - 1))) : T(0);
}
template <typename T> inline T shift_right(T a, T b) {
  using U = std::make_unsigned_t<T>;
  constexpr U width = sizeof(T) * 8;
  const U count = static_cast<U>(b);
  const T filled = a < T(0) ? T(-1) : T(0);
  return count < width ? static_cast<T>(a >> (count & (width - 1))) : filled;
}

template <typename T> constexpr OpTable<T> make_table() {
  OpTable<T> t{};
  set_common(t);
  for (int op : {TS_I_FLOOR, TS_I_CEIL, TS_I_TRUNC, TS_I_ROUND}) t.fn[op][0] = t.fn[TS_I_COPY][0];
  set_unary<T, [](T a) { return a < T(0) ? static_cast<T>(-a) : a; }>(t, TS_I_ABS);
  set_unary<T, [](T a) { return static_cast<T>(~a); }>(t, TS_I_BITNOT);
  set_division<T, [](T a, T b) { return truncdiv(a, b); }>(t, TS_I_DIV);
  set_division<T, [](T a, T b) { return floordiv(a, b); }>(t, TS_I_FLOORDIV);
  set_division<T, [](T a, T b) { return floormod(a, b); }>(t, TS_I_MOD);
  set_division<T, [](T a, T b) { return truncmod(a, b); }>(t, TS_I_FMOD);
  set_binary<T, [](T a, T b) { return power(a, b); }>(t, TS_I_POW);
  set_binary<T, [](T a, T b) { return static_cast<T>(a & b); }>(t, TS_I_AND);
  set_binary<T, [](T a, T b) { return static_cast<T>(a | b); }>(t, TS_I_OR);
  set_binary<T, [](T a, T b) { return static_cast<T>(a ^ b); }>(t, TS_I_XOR);
  set_binary<T, [](T a, T b) { return shift_left(a, b); }>(t, TS_I_SHL);
  set_binary<T, [](T a, T b) { return shift_right(a, b); }>(t, TS_I_SHR);
  set_ternary<T, [](T a, T b, T c) { return static_cast<T>(a * b + c); }>(t, TS_I_FMA);
  return t;
}

constinit const OpTable<int32_t> table_i32 = make_table<int32_t>();
constinit const OpTable<int64_t> table_i64 = make_table<int64_t>();
constinit const OpTable<uint64_t> table_u64 = make_table<uint64_t>();

} // namespace

template <> const OpTable<int32_t>& op_table<int32_t>() { return table_i32; }
template <> const OpTable<int64_t>& op_table<int64_t>() { return table_i64; }
template <> const OpTable<uint64_t>& op_table<uint64_t>() { return table_u64; }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
