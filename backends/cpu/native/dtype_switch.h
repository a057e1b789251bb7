// From a dtype code to a C++ type, and to and from the type a kernel accumulates in.
#ifndef TESSERACK_CPU_DTYPE_SWITCH_H
#define TESSERACK_CPU_DTYPE_SWITCH_H

#include "storage.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

using Float16 = Half;

template <class T> constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T> constexpr bool is_float = std::is_floating_point_v<T> || is_half<T>;

// The type a kernel accumulates in.
template <class T> using Accumulator = std::conditional_t<is_half<T>, float, T>;

template <class T> inline Accumulator<T> load(const T& value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return bfloat16_to_float(value);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return half_to_float(value);
  } else {
    return value;
  }
}
template <class T> inline T store(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return float_to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return float_to_half(value);
  } else {
    return value;
  }
}

template <class T> struct TypeTag { using type = T; };

// f(TypeTag<T>) for float16, bfloat16, float32 and float64.
template <class F> decltype(auto) switch_float(const char* op, int32_t dtype, F&& f) {
  switch (dtype) {
  case TS_FLOAT16: return f(TypeTag<Float16>{});
  case TS_BFLOAT16: return f(TypeTag<BFloat16>{});
  case TS_FLOAT32: return f(TypeTag<float>{});
  case TS_FLOAT64: return f(TypeTag<double>{});
  default: backend::fail(TS_ERROR, "%s: expected a floating dtype, got %s", op, backend::dtype_name(dtype));
  }
}

// f(TypeTag<T>) for every real dtype; bool comes as uint8_t.
template <class F> decltype(auto) switch_real(const char* op, int32_t dtype, F&& f) {
  switch (dtype) {
  case TS_BOOL:
  case TS_UINT8: return f(TypeTag<uint8_t>{});
  case TS_UINT16: return f(TypeTag<uint16_t>{});
  case TS_UINT32: return f(TypeTag<uint32_t>{});
  case TS_UINT64: return f(TypeTag<uint64_t>{});
  case TS_INT8: return f(TypeTag<int8_t>{});
  case TS_INT16: return f(TypeTag<int16_t>{});
  case TS_INT32: return f(TypeTag<int32_t>{});
  case TS_INT64: return f(TypeTag<int64_t>{});
  default: return switch_float(op, dtype, static_cast<F&&>(f));
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_DTYPE_SWITCH_H
