// Element types. Values are those of abi.h.
#pragma once
#include "tesserack/abi.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ts {

enum class DType : int8_t {
  Bool = TS_BOOL,
  UInt8 = TS_UINT8,
  UInt16 = TS_UINT16,
  UInt32 = TS_UINT32,
  UInt64 = TS_UINT64,
  Int8 = TS_INT8,
  Int16 = TS_INT16,
  Int32 = TS_INT32,
  Int64 = TS_INT64,
  Float16 = TS_FLOAT16,
  BFloat16 = TS_BFLOAT16,
  Float32 = TS_FLOAT32,
  Float64 = TS_FLOAT64,
  Complex64 = TS_COMPLEX64,
  Complex128 = TS_COMPLEX128,
  Complex32 = TS_COMPLEX32,
  Float8E4M3FN = TS_FLOAT8_E4M3FN,
  Float8E5M2 = TS_FLOAT8_E5M2,
  Float8E4M3FNUZ = TS_FLOAT8_E4M3FNUZ,
  Float8E5M2FNUZ = TS_FLOAT8_E5M2FNUZ,
  Float8E8M0FNU = TS_FLOAT8_E8M0FNU,
  Float4E2M1FNX2 = TS_FLOAT4_E2M1FN_X2,
  Float6E2M3FN = TS_FLOAT6_E2M3FN,
  Float6E3M2FN = TS_FLOAT6_E3M2FN,
  Float4E2M1FN = TS_FLOAT4_E2M1FN,
  Int4 = TS_INT4,
  UInt4 = TS_UINT4,
  Int4X2 = TS_INT4_X2,
  UInt4X2 = TS_UINT4_X2,
  Undefined = -1
};
inline constexpr int kNumDTypes = TS_NUM_DTYPES;

namespace detail {
#define TS_DTYPE_SIZE(code, name, bytes, values, kind) bytes,
inline constexpr int8_t kItemSize[kNumDTypes] = {TS_EACH_DTYPE(TS_DTYPE_SIZE)};
#undef TS_DTYPE_SIZE
#define TS_DTYPE_VALUES(code, name, bytes, values, kind) values,
inline constexpr int8_t kValues[kNumDTypes] = {TS_EACH_DTYPE(TS_DTYPE_VALUES)};
#undef TS_DTYPE_VALUES
#define TS_DTYPE_KIND(code, name, bytes, values, kind) kind,
inline constexpr char kKind[kNumDTypes] = {TS_EACH_DTYPE(TS_DTYPE_KIND)};
#undef TS_DTYPE_KIND
} // namespace detail
inline constexpr int64_t item_size(DType t) { return detail::kItemSize[static_cast<int>(t)]; }
// Of which pointwise programs compute elements as they stand: neither by parts, as complex ones, nor not at all.
inline constexpr bool is_plain(DType t) { return t < DType::Complex64; }
// Storage above all: most operators refuse it, see ops/common/storage_dtypes.cpp.
inline constexpr bool is_storage_dtype(DType t) { return t > DType::Complex128; }
// Values in an element; of more than one, elements are moved, never converted.
inline constexpr int64_t values_in(DType t) { return detail::kValues[static_cast<int>(t)]; }
inline constexpr bool is_packed(DType t) { return values_in(t) > 1; }
// A value of a few bits to a byte, computed with in float32 where at all.
inline constexpr bool is_narrow(DType t) { return t >= DType::Float8E4M3FN && !is_packed(t); }
inline constexpr bool is_complex(DType t) { return t >= DType::Complex64 && t <= DType::Complex32; }
inline constexpr bool is_floating(DType t) {
  return (t >= DType::Float16 && t <= DType::Float64) ||
         (is_storage_dtype(t) && detail::kKind[static_cast<int>(t)] == 'f');
}
// An integer of a few bits, for storage: none of those that is_integral knows.
inline constexpr bool is_narrow_integer(DType t) {
  return is_storage_dtype(t) && detail::kKind[static_cast<int>(t)] != 'f' && !is_complex(t);
}
inline constexpr bool is_bool(DType t) { return t == DType::Bool; }
inline constexpr bool is_integral(DType t, bool include_bool) {
  return (t >= DType::UInt8 && t <= DType::Int64) || (include_bool && t == DType::Bool);
}
inline constexpr bool is_unsigned(DType t) { return t >= DType::Bool && t <= DType::UInt64; }
// Whether it has negative values.
inline constexpr bool has_sign(DType t) {
  const char kind = detail::kKind[static_cast<int>(t)];
  return kind != 'b' && kind != 'u' && t != DType::Float8E8M0FNU;
}
// The dtype of a complex one's parts; any other itself.
inline constexpr DType real_type(DType t) {
  return t == DType::Complex64    ? DType::Float32
         : t == DType::Complex128 ? DType::Float64
         : t == DType::Complex32  ? DType::Float16
                                  : t;
}
inline constexpr DType complex_type(DType t) {
  return t == DType::Float64 || t == DType::Complex128  ? DType::Complex128
         : t == DType::Float16 || t == DType::Complex32 ? DType::Complex32
                                                        : DType::Complex64;
}
// Only floating and complex tensors take part in differentiation.
inline constexpr bool is_differentiable(DType t) { return t >= DType::Float16 && !is_narrow_integer(t); }
inline constexpr bool is_half(DType t) { return t == DType::Float16 || t == DType::BFloat16; }

std::string_view name(DType t);               // "float32"
DType dtype_from_name(std::string_view text); // Undefined if unknown
void append_to(std::string& out, DType t);    // as a part of a message

// The smallest dtype both convert to, as PyTorch's promote_types.
DType promote_types(DType a, DType b);
// The type registers of a pointwise program hold for operands of dtype t.
inline constexpr DType compute_type(DType t) {
  switch (t) {
  case DType::Float64: return DType::Float64;
  case DType::Float16:
  case DType::BFloat16:
  case DType::Float32: return DType::Float32;
  case DType::UInt64: return DType::UInt64;
  case DType::Int64:
  case DType::UInt32: return DType::Int64;
  case DType::Complex64:
  case DType::Complex128:
  case DType::Complex32: return t;
  default: return is_narrow(t) ? DType::Float32 : DType::Int32;
  }
}
// Accumulation type of matmul and floating reductions: float32 for half types.
inline constexpr DType accumulate_type(DType t) { return is_half(t) ? DType::Float32 : t; }

DType default_dtype();           // of factories given Python floats; float32
void set_default_dtype(DType t); // ValueError unless floating

} // namespace ts
