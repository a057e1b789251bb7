// Elements as they lie in memory: a C++ type per real dtype, conversions between any two of them without undefined
// behaviour, and the switch from a dtype code to a type. Included by backend.hpp.
#ifndef TESSERACK_ELEMENTS_HPP
#define TESSERACK_ELEMENTS_HPP

#include <tesserack/backend.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {

struct Bool {
  uint8_t bits;
};
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// The dtype code of a type of this header.
template <typename T> constexpr int32_t dtype_of();
template <> constexpr int32_t dtype_of<Bool>() { return TS_BOOL; }
template <> constexpr int32_t dtype_of<uint8_t>() { return TS_UINT8; }
template <> constexpr int32_t dtype_of<uint16_t>() { return TS_UINT16; }
template <> constexpr int32_t dtype_of<uint32_t>() { return TS_UINT32; }
template <> constexpr int32_t dtype_of<uint64_t>() { return TS_UINT64; }
template <> constexpr int32_t dtype_of<int8_t>() { return TS_INT8; }
template <> constexpr int32_t dtype_of<int16_t>() { return TS_INT16; }
template <> constexpr int32_t dtype_of<int32_t>() { return TS_INT32; }
template <> constexpr int32_t dtype_of<int64_t>() { return TS_INT64; }
template <> constexpr int32_t dtype_of<Half>() { return TS_FLOAT16; }
template <> constexpr int32_t dtype_of<BFloat16>() { return TS_BFLOAT16; }
template <> constexpr int32_t dtype_of<float>() { return TS_FLOAT32; }
template <> constexpr int32_t dtype_of<double>() { return TS_FLOAT64; }

// --- conversions: branch-free, so that loops over them vectorise ---------------------------------------------------

inline float half_to_float(Half h) {
  const uint32_t magnitude = h.bits & 0x7fffu, sign = (h.bits & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) + (224u << 23);
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t bits = magnitude >= 0x7c00u ? special : magnitude >= 0x400u ? normal : subnormal;
  return std::bit_cast<float>(bits | sign);
}

inline Half float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 leaves a unit in the last place of 2^-24, the smallest half: the addition rounds for us.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  return Half{static_cast<uint16_t>((magnitude >= 0x47800000u ? special : finite) | sign)};
}

inline float bfloat16_to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline BFloat16 float_to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return BFloat16{static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

// Truncation; NaN and values outside I become the lowest I, as the processor's own conversion does.
template <typename I, typename F> inline I float_to_int(F x) {
  constexpr F low = static_cast<F>(std::numeric_limits<I>::min()); // a power of two: exact
  const bool inside = x >= low && x < -low;
  return inside ? static_cast<I>(inside ? x : F(0)) : std::numeric_limits<I>::min();
}

template <typename D, typename F> inline D float_to_any_int(F x) {
  if constexpr (std::is_same_v<D, uint64_t>) {
    constexpr F half = F(0x1p63);
    const bool high = x >= half;
    const int64_t part = float_to_int<int64_t>(high ? x - half : x);
    return static_cast<uint64_t>(part) + (high ? uint64_t{1} << 63 : 0);
  } else if constexpr (sizeof(D) == 8 || std::is_same_v<D, uint32_t>) {
    return static_cast<D>(float_to_int<int64_t>(x));
  } else {
    return static_cast<D>(float_to_int<int32_t>(x));
  }
}

// One element as another type, by the rules of copy_cast: rounding to nearest even, truncation, wrap-around.
template <typename D, typename S> inline D convert(S x) {
  if constexpr (std::is_same_v<D, S>) {
    return x;
  } else if constexpr (std::is_same_v<S, Bool>) {
    return convert<D>(static_cast<int32_t>(x.bits != 0));
  } else if constexpr (std::is_same_v<S, Half>) {
    return convert<D>(half_to_float(x));
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    return convert<D>(bfloat16_to_float(x));
  } else if constexpr (std::is_same_v<D, Bool>) {
    return Bool{static_cast<uint8_t>(x != S(0))};
  } else if constexpr (std::is_same_v<D, Half>) {
    return float_to_half(static_cast<float>(x));
  } else if constexpr (std::is_same_v<D, BFloat16>) {
    return float_to_bfloat16(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>) {
    return float_to_any_int<D>(x);
  } else {
    return static_cast<D>(x);
  }
}

// Constant k of a program as a register's value: of integers, all 64 bits of it.
template <typename T> inline T program_constant(const ts_program* program, int k) {
  if constexpr (std::is_integral_v<T>)
    if (program->struct_size > offsetof(ts_program, integers) && program->integers != nullptr)
      return static_cast<T>(program->integers[k]);
  return convert<T>(program->constants[k]);
}

// Rounded to a number that float16 or bfloat16 holds, once: what a float would round on the way keeps its trace in the
// float's last bit.
template <typename S, typename F> inline F rounded_through(F x) {
  float near = static_cast<float>(x);
  if constexpr (sizeof(F) > sizeof(float)) {
    const F back = static_cast<F>(near);
    const uint32_t bits = std::bit_cast<uint32_t>(near);
    const bool outward = (back < F(0) ? -back : back) > (x < F(0) ? -x : x);
    if (back != x && x == x) near = std::bit_cast<float>((bits - (outward ? 1u : 0u)) | 1u);
  }
  return static_cast<F>(convert<float>(convert<S>(near)));
}

// --- from a dtype code to a type -----------------------------------------------------------------------------------

// Calls f.template operator()<S>() with the type of a real dtype:
//   with_storage(call.out(0).dtype(), [&]<typename T>() { ... });
template <typename F> inline auto with_storage(int32_t dtype, F&& f) {
  switch (dtype) {
  case TS_BOOL: return f.template operator()<Bool>();
  case TS_UINT8: return f.template operator()<uint8_t>();
  case TS_UINT16: return f.template operator()<uint16_t>();
  case TS_UINT32: return f.template operator()<uint32_t>();
  case TS_UINT64: return f.template operator()<uint64_t>();
  case TS_INT8: return f.template operator()<int8_t>();
  case TS_INT16: return f.template operator()<int16_t>();
  case TS_INT32: return f.template operator()<int32_t>();
  case TS_INT64: return f.template operator()<int64_t>();
  case TS_FLOAT16: return f.template operator()<Half>();
  case TS_BFLOAT16: return f.template operator()<BFloat16>();
  case TS_FLOAT32: return f.template operator()<float>();
  case TS_FLOAT64: return f.template operator()<double>();
  default: fail(TS_ERROR, "expected a real dtype, got %s", dtype_name(dtype));
  }
}

// The compute type that holds every value of `dtype`: float32, float64, int32, int64 or uint64.
inline int32_t natural_compute(int32_t dtype) {
  switch (dtype) {
  case TS_FLOAT64: return TS_FLOAT64;
  case TS_FLOAT16:
  case TS_BFLOAT16:
  case TS_FLOAT32: return TS_FLOAT32;
  case TS_UINT64: return TS_UINT64;
  case TS_INT64:
  case TS_UINT32: return TS_INT64;
  default: return TS_INT32;
  }
}

// Calls f.template operator()<T>() with one of the five compute types.
template <typename F> inline auto with_compute(int32_t dtype, F&& f) {
  switch (dtype) {
  case TS_FLOAT32: return f.template operator()<float>();
  case TS_FLOAT64: return f.template operator()<double>();
  case TS_INT32: return f.template operator()<int32_t>();
  case TS_INT64: return f.template operator()<int64_t>();
  case TS_UINT64: return f.template operator()<uint64_t>();
  default:
    fail(TS_ERROR, "expected a compute dtype of float32, float64, int32, int64 or uint64, got %s", dtype_name(dtype));
  }
}

// What instruction `op` of a pointwise program does, for messages: "add".
constexpr const char* instruction_name(int op) {
#define TS_NAMED(code, name, operands) #name,
  constexpr const char* names[] = {TS_EACH_INSTRUCTION(TS_NAMED)};
#undef TS_NAMED
  static_assert(sizeof names / sizeof *names == TS_NUM_INSTRUCTIONS, "TS_EACH_INSTRUCTION lacks some");
  return op >= 0 && op < TS_NUM_INSTRUCTIONS ? names[op] : "unknown";
}

// How many operands it has; 0: it is none.
constexpr int instruction_arity(int op) {
#define TS_COUNTED(code, name, operands) operands,
  constexpr unsigned char arities[] = {TS_EACH_INSTRUCTION(TS_COUNTED)};
#undef TS_COUNTED
  return op >= 0 && op < TS_NUM_INSTRUCTIONS ? arities[op] : 0;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_ELEMENTS_HPP
