// Integer division: by one number with products alone, by many through float64 where it is exact.
#ifndef TESSERACK_CPU_OPS_DIVISION_H
#define TESSERACK_CPU_OPS_DIVISION_H

#include "op_loops.h"

#include <bit>
#include <limits>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// The quotient towards zero or downwards, or what is left by it.
enum class Division { Trunc, Floor, FloorRest, TruncRest };

// What is asked for, of the quotient q towards zero.
template <Division D, typename T> inline T divided(T a, T b, T q) {
  const T rest = static_cast<T>(a - q * b);
  if constexpr (D == Division::Trunc) return q;
  if constexpr (D == Division::TruncRest) return rest;
  bool below = false; // of different signs: the quotient downwards is one less
  if constexpr (std::is_signed_v<T>) below = (rest != T(0)) & ((rest ^ b) < T(0));
  if constexpr (D == Division::Floor) return static_cast<T>(q - static_cast<T>(below));
  return static_cast<T>(rest + (below ? b : T(0)));
}

// Granlund and Montgomery's division by an invariant number: a product and two shifts, for every dividend.
template <typename T> class Divisor {
  using U = std::make_unsigned_t<T>;
  __extension__ typedef unsigned __int128 Wide128;
  using Wide = std::conditional_t<sizeof(T) == 4, uint64_t, Wide128>;
  static constexpr int kBits = 8 * sizeof(T);

public:
  explicit Divisor(T b) : sign_(static_cast<U>(b < T(0) ? ~U(0) : U(0))) {
    const U d = (static_cast<U>(b) ^ sign_) - sign_;
    const int log = d == 1 ? 0 : kBits - std::countl_zero(static_cast<U>(d - 1));
    multiplier_ = static_cast<U>((((Wide(1) << log) - d) << kBits) / d + 1);
    first_ = log < 1 ? log : 1;
    second_ = log < 1 ? 0 : log - 1;
  }

  T quotient(T a) const {
    U sign = 0;
    if constexpr (std::is_signed_v<T>) sign = static_cast<U>(a >> (kBits - 1));
    const U n = (static_cast<U>(a) ^ sign) - sign;
    const U high = static_cast<U>((Wide(multiplier_) * n) >> kBits);
    const U q = (high + ((n - high) >> first_)) >> second_;
    const U turned = sign ^ sign_;
    return static_cast<T>((q ^ turned) - turned);
  }

private:
  U sign_, multiplier_;
  int first_, second_;
};

template <typename T, Division D> int divide_by_one(T* out, const T* a, const T* b, const T*, int64_t n) {
  const T b0 = *b;
  if (b0 == T(0)) return 1;
  if (n < 8) { // setting up costs a division of twice the width
    if (std::is_signed_v<T> && b0 == T(-1))
      for (int64_t i = 0; i < n; ++i) out[i] = divided<D>(a[i], b0, static_cast<T>(-a[i]));
    else
      for (int64_t i = 0; i < n; ++i) out[i] = divided<D>(a[i], b0, static_cast<T>(a[i] / b0));
    return 0;
  }
  const Divisor<T> divisor(b0);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = divided<D>(a[i], b0, divisor.quotient(a[i]));
  return 0;
}

// Of the lowest number by -1, which does not fit: itself.
template <typename T> inline T truncated_quotient(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    const bool overflows = (a == std::numeric_limits<T>::min()) & (b == T(-1));
    b = overflows ? T(1) : b;
  }
  // Exact: a quotient of 32 bits is further from the next whole number than float64 rounds.
  if constexpr (sizeof(T) == 4) return static_cast<T>(static_cast<double>(a) / static_cast<double>(b));
  return static_cast<T>(a / b);
}

// Looks at every divisor before dividing.
template <typename T, Division D, int Mask> int divide_by_many(T* out, const T* a, const T* b, const T*, int64_t n) {
  const T a0 = *a;
  int zero = 0;
  for (int64_t i = 0; i < n; ++i) zero |= b[i] == T(0);
  if (zero != 0) return 1;
#if defined(__AVX512DQ__)
  if constexpr (std::is_same_v<T, int64_t>) { // likewise, if float64 holds both
    constexpr int64_t limit = int64_t{1} << 52;
    uint64_t beyond = 0;
    for (int64_t i = 0; i < n; ++i)
      beyond |= static_cast<uint64_t>((Mask & 1 ? a0 : a[i]) + limit) | static_cast<uint64_t>(b[i] + limit);
    if (beyond < uint64_t{1} << 53) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        const T x = Mask & 1 ? a0 : a[i], y = b[i];
        out[i] = divided<D>(x, y, static_cast<T>(static_cast<double>(x) / static_cast<double>(y)));
      }
      return 0;
    }
  }
#endif
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T x = Mask & 1 ? a0 : a[i], y = b[i];
    out[i] = divided<D>(x, y, truncated_quotient(x, y));
  }
  return 0;
}

template <typename T, Division D> constexpr void set_division(OpTable<T>& table, int op) {
  table.fn[op][0] = &divide_by_many<T, D, 0>;
  table.fn[op][1] = &divide_by_many<T, D, 1>;
  table.fn[op][2] = &divide_by_one<T, D>;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_OPS_DIVISION_H
