#include "ops/common/host_equal.h"
#include "runtime/recording_state.h"
#include "tensor/dtype.h"
#include "tensor/keys.h"
#include <algorithm>

namespace ts {
namespace {

constexpr int64_t kTogether = 256; // elements compared before anybody asks

// Elements differ as `differ` says. The first few alone: most tensors that differ do so there.
template <class T, class F> bool all_equal(const void* left, const void* right, int64_t n, F differ) {
  const T *a = static_cast<const T*>(left), *b = static_cast<const T*>(right);
  int64_t end = std::min<int64_t>(n, 16);
  for (int64_t i = 0; i < n; end = std::min(n, i + kTogether)) {
    int any = 0;
    for (; i < end; ++i) any |= differ(a[i], b[i]);
    if (any) return false;
  }
  return true;
}

template <class T> bool all_equal(const void* a, const void* b, int64_t n) {
  return all_equal<T>(a, b, n, [](T x, T y) { return static_cast<int>(x != y); });
}

// A float of 16 bits by its bits, `infinity` those of the infinite one: zeros are equal, NaN to nothing.
template <uint16_t infinity> bool halves_equal(const void* a, const void* b, int64_t n) {
  return all_equal<uint16_t>(a, b, n, [](uint16_t x, uint16_t y) {
    int zeros = ((x | y) & 0x7fff) == 0, number = (x & 0x7fff) <= infinity;
    return static_cast<int>(!(zeros | ((x == y) & number)));
  });
}

// NULL unless elements lie one after another in memory that the host reads without waiting.
const void* readable(const Tensor& t) {
  if (!t.is_contiguous() || (t->keys & pending_bits()) || !t->storage || !t->storage->host) return nullptr;
  if (backend_of(t.device()).is_async(t.device().index)) return nullptr;
  note_hidden_dependence();
  return static_cast<const char*>(t->storage->host) + t->byte_offset;
}

} // namespace

std::optional<bool> host_equal(const Tensor& self, const Tensor& other) {
  if (self.dtype() != other.dtype() || self.device() != other.device()) return {};
  const void *a = readable(self), *b = readable(other);
  if (!a || !b) return {};
  const int64_t n = self.numel();
  switch (self.dtype()) {
  case DType::Float64: return all_equal<double>(a, b, n);
  case DType::Float32: return all_equal<float>(a, b, n);
  case DType::Float16: return halves_equal<0x7c00>(a, b, n);
  case DType::BFloat16: return halves_equal<0x7f80>(a, b, n);
  case DType::Int64:
  case DType::UInt64: return all_equal<uint64_t>(a, b, n);
  case DType::Int32:
  case DType::UInt32: return all_equal<uint32_t>(a, b, n);
  case DType::Int16:
  case DType::UInt16: return all_equal<uint16_t>(a, b, n);
  case DType::Int8:
  case DType::UInt8: return all_equal<uint8_t>(a, b, n);
  case DType::Bool: return all_equal<uint8_t>(a, b, n, [](uint8_t x, uint8_t y) { return (x != 0) != (y != 0); });
  default: return {};
  }
}

} // namespace ts
