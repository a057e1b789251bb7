// Result dtypes: tensors with dimensions decide, then 0-d tensors, then Python numbers; a later group counts only if
// its category (bool < integer < float < complex) is higher. As PyTorch's result_type.
#pragma once
#include "dispatch/value.h"

namespace ts {

class ResultType {
public:
  void add(const TensorImpl& t) {
    DType& slot = t.has(TensorImpl::kNumber) ? number_ : t.ndim == 0 ? zero_dim_ : dim_;
    slot = promote_types(slot, t.dtype);
  }
  void add(const Value& v) {
    if (v.tag == Tag::Tensor)
      add(*v.tensor);
    else if (v.is_number())
      number_ = promote_types(number_, v.as_scalar().dtype());
  }
  DType get() const;

private:
  DType dim_ = DType::Undefined, zero_dim_ = DType::Undefined, number_ = DType::Undefined;
};

DType result_type(std::span<const Value> operands);
DType result_type(TensorList tensors);
// Whether values of `from` may be stored into `to` without losing their category.
bool can_cast(DType from, DType to);
// Integers become the default float dtype.
inline DType to_floating(DType t) { return is_differentiable(t) ? t : default_dtype(); }

} // namespace ts
