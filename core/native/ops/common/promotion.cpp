#include "ops/common/promotion.h"

namespace ts {
namespace {

int category(DType t) {
  if (t == DType::Undefined) return -1;
  return is_complex(t) ? 3 : is_floating(t) ? 2 : is_bool(t) ? 0 : 1;
}

// A complex number beside floating ones leaves them their precision.
DType combine(DType higher, DType lower) {
  if (is_floating(higher) && is_complex(lower)) {
    TS_CHECK(!is_storage_dtype(higher) || is_complex(higher), "result_type: there is no complex dtype of two ", higher,
             "; try .to(float32)");
    return complex_type(higher);
  }
  return category(higher) >= category(lower) ? higher : promote_types(higher, lower);
}

} // namespace

DType ResultType::get() const { return combine(dim_, combine(zero_dim_, number_)); }

DType result_type(std::span<const Value> operands) {
  ResultType r;
  for (const Value& v : operands) r.add(v);
  return r.get();
}

DType result_type(TensorList tensors) {
  ResultType r;
  for (const Tensor& t : tensors) r.add(*t.impl());
  return r.get();
}

bool can_cast(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && is_integral(to, true)) return false;
  return is_bool(from) || !is_bool(to);
}

} // namespace ts
