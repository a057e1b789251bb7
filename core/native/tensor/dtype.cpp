#include "tensor/dtype.h"
#include "tensor/error.h"
#include <atomic>

namespace ts {
namespace {

constexpr std::string_view kNames[kNumDTypes] = {"bool",     "uint8",   "uint16",  "uint32",    "uint64",
                                                 "int8",     "int16",   "int32",   "int64",     "float16",
                                                 "bfloat16", "float32", "float64", "complex64", "complex128"};
std::atomic<DType> g_default{DType::Float32};

constexpr int bits(DType t) { return static_cast<int>(item_size(t)) * 8; }

DType promote_integers(DType a, DType b) {
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (is_unsigned(a) == is_unsigned(b)) return bits(a) >= bits(b) ? a : b;
  DType u = is_unsigned(a) ? a : b, s = is_unsigned(a) ? b : a;
  if (bits(s) > bits(u)) return s;
  // PyTorch defines signed-unsigned mixes for uint8 alone; the next wider signed type is the safe extension.
  switch (u) {
  case DType::UInt8: return DType::Int16;
  case DType::UInt16: return DType::Int32;
  case DType::UInt32: return DType::Int64;
  default: return DType::Float32;
  }
}

DType promote_floats(DType a, DType b) {
  if (a == b) return a;
  if (is_half(a) && is_half(b)) return DType::Float32;
  return bits(a) >= bits(b) ? a : b;
}

} // namespace

std::string_view name(DType t) { return t == DType::Undefined ? "undefined" : kNames[static_cast<int>(t)]; }

DType dtype_from_name(std::string_view text) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (kNames[i] == text) return static_cast<DType>(i);
  return DType::Undefined;
}

void append_to(std::string& out, DType t) { out += name(t); }

DType promote_types(DType a, DType b) {
  if (a == b || b == DType::Undefined) return a;
  if (a == DType::Undefined) return b;
  if (is_complex(a) || is_complex(b)) {
    bool wide = a == DType::Complex128 || b == DType::Complex128 || a == DType::Float64 || b == DType::Float64;
    return wide ? DType::Complex128 : DType::Complex64;
  }
  if (is_floating(a) && is_floating(b)) return promote_floats(a, b);
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  return promote_integers(a, b);
}

DType default_dtype() { return g_default.load(std::memory_order_relaxed); }

void set_default_dtype(DType t) {
  TS_CHECK_TYPE(is_floating(t), "set_default_dtype: expected a floating dtype, got ", t);
  g_default.store(t, std::memory_order_relaxed);
}

} // namespace ts
