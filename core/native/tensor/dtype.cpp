#include "tensor/dtype.h"
#include "tensor/error.h"
#include <algorithm>
#include <atomic>
#include <iterator>

namespace ts {
namespace {

#define TS_DTYPE_NAME(code, name, bytes, values, kind) #name,
constexpr std::string_view kNames[kNumDTypes] = {TS_EACH_DTYPE(TS_DTYPE_NAME)};
#undef TS_DTYPE_NAME
#define TS_DTYPE_CODE(code, name, bytes, values, kind) TS_##code,
constexpr int kCodes[] = {TS_EACH_DTYPE(TS_DTYPE_CODE)};
#undef TS_DTYPE_CODE
static_assert(std::size(kCodes) == kNumDTypes && std::ranges::is_sorted(kCodes) && kCodes[0] == 0 &&
                  kCodes[kNumDTypes - 1] == kNumDTypes - 1,
              "the table names every dtype, in the order of the codes");
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

// Integers leave the other's precision as it is.
DType promote_complex(DType a, DType b) {
  if (is_integral(a, true) || is_integral(b, true)) return complex_type(is_integral(a, true) ? b : a);
  return complex_type(promote_floats(a, b));
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
  TS_CHECK(!is_packed(a) && !is_packed(b), "promote_types: elements of ", is_packed(a) ? a : b,
           " hold several values; try .view(uint8)");
  TS_CHECK(!is_narrow(a) && !is_narrow(b),
           "promote_types: Promotion for Float8 Types and smaller ones is not supported, attempted to promote ", a,
           " and ", b, "; try .to() one dtype");
  if (is_complex(a) || is_complex(b)) return promote_complex(real_type(a), real_type(b));
  if (is_floating(a) && is_floating(b)) return promote_floats(a, b);
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  return promote_integers(a, b);
}

DType default_dtype() { return g_default.load(std::memory_order_relaxed); }

void set_default_dtype(DType t) {
  TS_CHECK_TYPE(is_floating(t) && !is_storage_dtype(t),
                "set_default_dtype: expected a floating dtype, not of 8 bits, got ", t);
  g_default.store(t, std::memory_order_relaxed);
}

} // namespace ts
