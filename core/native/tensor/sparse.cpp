#include "tensor/sparse.h"

namespace ts {
namespace {

const Tensor& values_of(const SparseParts& parts) {
  const Tensor& values = parts.layout == Layout::SparseCoo ? parts.parts[1] : parts.parts[2];
  TS_CHECK(values.defined(), "sparse: a part is missing");
  return values;
}

} // namespace

Tensor make_sparse(IntSpan sizes, SparseParts parts) {
  const Tensor& values = values_of(parts);
  Tensor t = Tensor::adopt(TensorImpl::make());
  t->dtype = values.dtype();
  t->device = values.device();
  t->keys = (values->keys & backend_bits()) | key_bit(key::Sparse);
  t->set_contiguous(sizes);
  t->own_version = new VersionCounter;
  t->payload = new SparseParts(std::move(parts));
  return t;
}

void set_sparse(const Tensor& t, IntSpan sizes, SparseParts parts) {
  TS_CHECK(t->payload, "sparse: expected a sparse tensor");
  const Tensor& values = values_of(parts);
  TS_CHECK(values.dtype() == t.dtype() && values.device() == t.device(),
           "sparse: expected values of the tensor's dtype and device, got ", values.dtype(), " for ", t.dtype());
  t->set_contiguous(sizes);
  delete std::exchange(t->payload, new SparseParts(std::move(parts)));
  t->bump_version();
}

} // namespace ts
