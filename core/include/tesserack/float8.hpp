// Floats of 8 bits: to and from float32, by the rules of the OCP formats (e4m3fn, e5m2, e8m0fnu) and of those without a
// negative zero (fnuz). Rounding is to nearest even; what is too large becomes
// infinity in e5m2, the largest number in e4m3fn, and NaN in the others: as in PyTorch.
#ifndef TESSERACK_FLOAT8_HPP
#define TESSERACK_FLOAT8_HPP

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

struct Float8Format {
  int mantissa, bias;
  bool infinite;                                                  // has infinities, and NaN beside them
  bool unsigned_zero;                                             // the code of -0 is the only NaN
  constexpr int top() const { return (1 << (7 - mantissa)) - 1; } // the highest exponent
};
constexpr Float8Format float8_format(int32_t dtype) {
  switch (dtype) {
  case TS_FLOAT8_E4M3FN: return {3, 7, false, false};
  case TS_FLOAT8_E5M2: return {2, 15, true, false};
  case TS_FLOAT8_E4M3FNUZ: return {3, 8, false, true};
  default: return {2, 16, false, true};
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

constexpr float float8_to_float(int32_t dtype, uint8_t bits) {
  if (dtype == TS_FLOAT8_E8M0FNU) return exponent_to_float(bits);
  const Float8Format f = float8_format(dtype);
  const uint32_t sign = uint32_t{bits & 0x80u} << 24, magnitude = bits & 0x7fu, at_23 = magnitude << (23 - f.mantissa);
  if (f.unsigned_zero && bits == 0x80) return std::bit_cast<float>(0x7f800001u);
  if (f.infinite && magnitude >= 0x7c) // a NaN is a quiet one
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude > 0x7c ? 0x400000u | (at_23 & 0x7fffffu) : 0));
  if (!f.infinite && !f.unsigned_zero && magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7ff00000u);
  const uint32_t scale = static_cast<uint32_t>(127 - f.bias) << 23;
  if (magnitude >> f.mantissa) return std::bit_cast<float>(sign | (at_23 + scale));
  // Subnormal: its digits behind a leading one, which is then taken away.
  const float one = std::bit_cast<float>(scale + (1u << 23));
  const float value = std::bit_cast<float>((at_23 + scale + (1u << 23))) - one;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

constexpr uint8_t float_to_float8(int32_t dtype, float x) {
  if (dtype == TS_FLOAT8_E8M0FNU) return float_to_exponent(x);
  const Float8Format f = float8_format(dtype);
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  const int shift = 23 - f.mantissa;
  // The first power of two above all numbers of the format; between them, rounding gives the code after the last one.
  const int top = f.infinite ? f.top() : f.top() + 1;
  const uint32_t limit = static_cast<uint32_t>(top - f.bias + 127) << 23;
  const uint32_t nan = f.unsigned_zero ? 0x80u : 0x7fu | sign;
  const uint32_t most = f.unsigned_zero ? 0x80u : (f.infinite ? 0x7cu : 0x7eu) | sign;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(nan);
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
  if (!f.unsigned_zero) return static_cast<uint8_t>(code > (most & 0x7f) ? most : code | sign);
  return static_cast<uint8_t>(code == 0 ? 0 : code > 0x7f ? 0x80u : code | sign);
}

using Float8Table = std::array<float, 256>;
constexpr Float8Table float8_table(int32_t dtype) {
  Float8Table table{};
  for (int k = 0; k < 256; ++k) table[static_cast<size_t>(k)] = float8_to_float(dtype, static_cast<uint8_t>(k));
  return table;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_FLOAT8_HPP
