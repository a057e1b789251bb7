#include "ops/common/complex_parts.h"

namespace ts {

Tensor raw_parts(const Tensor& t) {
  Dims sizes(t.sizes()), strides(t.strides());
  for (int64_t& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  Tensor out = alias(t, sizes, strides, t->byte_offset);
  out->set_dtype(real_type(t.dtype()));
  return out;
}

Tensor raw_part(const Tensor& t, bool imaginary) {
  Dims strides(t.strides());
  for (int64_t& s : strides) s *= 2;
  DType real = real_type(t.dtype());
  Tensor out = alias(t, t.sizes(), strides, t->byte_offset + (imaginary ? item_size(real) : 0));
  out->set_dtype(real);
  return out;
}

Tensor raw_index_of_parts(const Tensor& index) {
  Dims sizes(index.sizes()), strides(index.strides());
  sizes.push_back(2);
  strides.push_back(0);
  return alias(index, sizes, strides, index->byte_offset);
}

Tensor of_parts(Tensor fresh) {
  Dims sizes(fresh.sizes().first(fresh.sizes().size() - 1));
  fresh->set_dtype(complex_type(fresh.dtype()));
  fresh->set_contiguous(sizes);
  return fresh;
}

} // namespace ts
