// Instructions of the tile machine over bytes, 16-bit integers and bools; narrow.h says which programs run on them.
#include "op_loops.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

template <typename T> constexpr OpTable<T> make_table() {
  OpTable<T> t{};
  set_common(t);
  set_unary<T, [](T a) { return a < T(0) ? static_cast<T>(-a) : a; }>(t, TS_I_ABS);
  set_unary<T, [](T a) { return static_cast<T>(~a); }>(t, TS_I_BITNOT);
  set_binary<T, [](T a, T b) { return static_cast<T>(a & b); }>(t, TS_I_AND);
  set_binary<T, [](T a, T b) { return static_cast<T>(a | b); }>(t, TS_I_OR);
  set_binary<T, [](T a, T b) { return static_cast<T>(a ^ b); }>(t, TS_I_XOR);
  set_ternary<T, [](T a, T b, T c) { return static_cast<T>(a * b + c); }>(t, TS_I_FMA);
  return t;
}

// Whatever a byte holds counts as 1 unless it is 0.
template <auto F> constexpr void set_truth(OpTable<Bool>& t, int op) {
  set_binary<Bool, [](Bool a, Bool b) { return Bool{static_cast<uint8_t>(F(a.bits != 0, b.bits != 0))}; }>(t, op);
}
constexpr OpTable<Bool> make_bool_table() {
  OpTable<Bool> t{};
  set_unary<Bool, [](Bool a) { return Bool{static_cast<uint8_t>(a.bits != 0)}; }>(t, TS_I_COPY);
  set_unary<Bool, [](Bool a) { return Bool{static_cast<uint8_t>(a.bits == 0)}; }>(t, TS_I_NOT);
  for (int op : {TS_I_AND, TS_I_MUL, TS_I_MIN}) set_truth<[](bool a, bool b) { return a & b; }>(t, op);
  for (int op : {TS_I_OR, TS_I_MAX}) set_truth<[](bool a, bool b) { return a | b; }>(t, op);
  for (int op : {TS_I_XOR, TS_I_NE}) set_truth<[](bool a, bool b) { return a != b; }>(t, op);
  set_truth<[](bool a, bool b) { return a == b; }>(t, TS_I_EQ);
  return t;
}

constinit const OpTable<uint8_t> table_u8 = make_table<uint8_t>();
constinit const OpTable<int8_t> table_i8 = make_table<int8_t>();
constinit const OpTable<int16_t> table_i16 = make_table<int16_t>();
constinit const OpTable<Bool> table_bool = make_bool_table();

} // namespace

template <> const OpTable<uint8_t>& op_table<uint8_t>() { return table_u8; }
template <> const OpTable<int8_t>& op_table<int8_t>() { return table_i8; }
template <> const OpTable<int16_t>& op_table<int16_t>() { return table_i16; }
template <> const OpTable<Bool>& op_table<Bool>() { return table_bool; }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
