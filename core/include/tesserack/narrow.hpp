// Numbers of eight bits and fewer: to and from float32, by the rules of the OCP formats (float8 e4m3fn, e5m2, e8m0fnu,
// float6, float4, int4) and of those without a negative zero (fnuz). Rounding is to nearest even. What is too large
// becomes infinity in e5m2, NaN in e8m0fnu and the fnuz formats, as in PyTorch, and the largest number in all others;
// NaN becomes zero where there is none.
#ifndef TESSERACK_NARROW_HPP
#define TESSERACK_NARROW_HPP

#include <tesserack/abi.h>

#include <array>
#include <bit>
#include <cstdint>

#ifndef TESSERACK_VARIANT
#define TESSERACK_VARIANT generic
#define TESSERACK_VARIANT_LEVEL 0
#endif

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {

// Which codes are no finite numbers: none; all ones; the highest exponent; that of -0.
enum class Special { None, Ones, Exponent, MinusZero };

struct NarrowFormat {
  int bits, mantissa, bias;
  Special special;
  bool integer = false, has_sign = true;
  constexpr int top() const { return (1 << (bits - 1 - mantissa)) - 1; } // the highest exponent
};
// Of a packed dtype: that of its values. e8m0fnu has a way of its own, below.
constexpr NarrowFormat narrow_format(int32_t dtype) {
  switch (dtype) {
  case TS_FLOAT8_E4M3FN: return {8, 3, 7, Special::Ones};
  case TS_FLOAT8_E5M2: return {8, 2, 15, Special::Exponent};
  case TS_FLOAT8_E4M3FNUZ: return {8, 3, 8, Special::MinusZero};
  case TS_FLOAT6_E2M3FN: return {6, 3, 1, Special::None};
  case TS_FLOAT6_E3M2FN: return {6, 2, 3, Special::None};
  case TS_FLOAT4_E2M1FN:
  case TS_FLOAT4_E2M1FN_X2: return {4, 1, 1, Special::None};
  case TS_INT4:
  case TS_INT4_X2: return {4, 0, 0, Special::None, true};
  case TS_UINT4:
  case TS_UINT4_X2: return {4, 0, 0, Special::None, true, false};
  default: return {8, 2, 16, Special::MinusZero};
  }
}

// e8m0fnu: an exponent and nothing else.
constexpr float exponent_to_float(uint8_t bits) {
  return std::bit_cast<float>(bits == 0xff ? 0x7f800001u : bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
}
constexpr uint8_t float_to_exponent(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), exponent = bits >> 23 & 0xff, rest = bits & 0x7fffff;
  if (exponent == 0xff) return 0xff;
  // A tie goes up, but for that below the smallest exponent.
  const bool up = rest > 0x400000 || (rest == 0x400000 && exponent > 0);
  return static_cast<uint8_t>(exponent + up);
}

constexpr float narrow_to_float(int32_t dtype, uint8_t byte) {
  if (dtype == TS_FLOAT8_E8M0FNU) return exponent_to_float(byte);
  const NarrowFormat f = narrow_format(dtype);
  const uint32_t sign_bit = 1u << (f.bits - 1), code = byte & (2 * sign_bit - 1), magnitude = code & (sign_bit - 1);
  if (f.integer)
    return static_cast<float>(code) - (f.has_sign && code & sign_bit ? static_cast<float>(2 * sign_bit) : 0);
  const uint32_t sign = code & sign_bit ? 0x80000000u : 0, at_23 = magnitude << (23 - f.mantissa);
  if (f.special == Special::MinusZero && code == sign_bit) return std::bit_cast<float>(0x7f800001u);
  const uint32_t infinity = static_cast<uint32_t>(f.top()) << f.mantissa;
  if (f.special == Special::Exponent && magnitude >= infinity) // a NaN is a quiet one
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude > infinity ? 0x400000u | (at_23 & 0x7fffffu) : 0));
  if (f.special == Special::Ones && magnitude == sign_bit - 1) return std::bit_cast<float>(sign | 0x7ff00000u);
  const uint32_t scale = static_cast<uint32_t>(127 - f.bias) << 23;
  if (magnitude >> f.mantissa) return std::bit_cast<float>(sign | (at_23 + scale));
  // Subnormal: its digits behind a leading one, which is then taken away.
  const float one = std::bit_cast<float>(scale + (1u << 23));
  const float value = std::bit_cast<float>((at_23 + scale + (1u << 23))) - one;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

constexpr uint8_t float_to_integer(const NarrowFormat& f, float x) {
  const int count = 1 << f.bits, least = f.has_sign ? -count / 2 : 0, most = least + count - 1;
  if (x != x) return 0;
  if (x <= static_cast<float>(least)) return static_cast<uint8_t>(least & (count - 1));
  if (x >= static_cast<float>(most)) return static_cast<uint8_t>(most);
  // Next to 1.5 * 2^23 the last digit counts ones: adding it rounds for us.
  const uint32_t rounded = std::bit_cast<uint32_t>(x + 12582912.0f) - 0x4b400000u;
  return static_cast<uint8_t>(rounded & static_cast<uint32_t>(count - 1));
}

constexpr uint8_t float_to_narrow(int32_t dtype, float x) {
  if (dtype == TS_FLOAT8_E8M0FNU) return float_to_exponent(x);
  const NarrowFormat f = narrow_format(dtype);
  if (f.integer) return float_to_integer(f, x);
  const uint32_t sign_bit = 1u << (f.bits - 1), ones = sign_bit - 1;
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu, sign = bits >> 31 ? sign_bit : 0;
  const int shift = 23 - f.mantissa;
  // The first power of two above all numbers of the format; between them, rounding gives the code after the last one.
  const int top = f.special == Special::Exponent ? f.top() : f.top() + 1;
  const uint32_t limit = static_cast<uint32_t>(top - f.bias + 127) << 23;
  const uint32_t infinity = static_cast<uint32_t>(f.top()) << f.mantissa;
  const uint32_t last = f.special == Special::Exponent ? infinity : f.special == Special::Ones ? ones - 1 : ones;
  const uint32_t most = f.special == Special::MinusZero ? sign_bit : last | sign;
  if (magnitude > 0x7f800000u)
    return static_cast<uint8_t>(f.special == Special::None ? 0 : f.special == Special::MinusZero ? most : ones | sign);
  if (magnitude >= limit) return static_cast<uint8_t>(most);
  uint32_t code = 0;
  if (magnitude < static_cast<uint32_t>(128 - f.bias) << 23) {
    // Adding a number whose unit in the last place is the smallest of the format rounds for us.
    const uint32_t large = static_cast<uint32_t>(128 - f.bias + shift) << 23;
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(large)) - large;
  } else {
    const uint32_t half = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1u);
    code = (magnitude - (static_cast<uint32_t>(127 - f.bias) << 23) + half) >> shift;
  }
  if (code > last) return static_cast<uint8_t>(most);
  return static_cast<uint8_t>(f.special == Special::MinusZero && code == 0 ? 0 : code | sign);
}

using NarrowTable = std::array<float, 256>;
constexpr NarrowTable narrow_table(int32_t dtype) {
  NarrowTable table{};
  for (int k = 0; k < 256; ++k) table[static_cast<size_t>(k)] = narrow_to_float(dtype, static_cast<uint8_t>(k));
  return table;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_NARROW_HPP
