// Integer instructions of the tile machine: everything wraps, nothing traps.
#include "op_loops.h"
#include "ops_division.h"

#include <limits>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

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
  set_division<T, Division::Trunc>(t, TS_I_DIV);
  set_division<T, Division::Floor>(t, TS_I_FLOORDIV);
  set_division<T, Division::FloorRest>(t, TS_I_MOD);
  set_division<T, Division::TruncRest>(t, TS_I_FMOD);
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
