// What a sparse tensor is made of: dense tensors on the device, in place of memory. Such a tensor has no storage, its
// strides mean nothing, and its calls come to key::Sparse, where operators are written with those on the parts.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// Jagged: of tesserack.nested, never of the core's own tensors.
enum class Layout : uint8_t { Strided, SparseCoo, SparseCsr, SparseCsc, SparseBsr, SparseBsc, Jagged };
inline constexpr const char* kLayoutNames[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                               "sparse_bsr", "sparse_bsc", "jagged"};
inline const char* layout_name(Layout layout) { return kLayoutNames[static_cast<int>(layout)]; }

struct SparseParts final : PayloadBase {
  SparseParts() : PayloadBase(PayloadKind::Sparse) {}
  Layout layout = Layout::SparseCoo;
  bool coalesced = false; // coo: indices are unique and in order
  int64_t sparse_dim = 0;
  int64_t dense_dim = 0;
  // coo: indices and values; compressed: compressed indices, plain indices and values.
  Tensor parts[3];
  PayloadBase* copy() const override { return new SparseParts(*this); }
};

// NULL for a tensor that has none.
inline const SparseParts* sparse_parts(const Tensor& t) {
  const bool sparse = t->payload && t->payload->kind == PayloadKind::Sparse;
  return sparse ? static_cast<const SparseParts*>(t->payload) : nullptr;
}
inline Layout layout_of(const Tensor& t) {
  const SparseParts* parts = sparse_parts(t);
  return parts ? parts->layout : Layout::Strided;
}

// A tensor of those sizes over the parts, whose values have its dtype and device; no autograd state.
Tensor make_sparse(IntSpan sizes, SparseParts parts);
// The same in place, as sparse operators that write do: counts as a change of the tensor.
void set_sparse(const Tensor& t, IntSpan sizes, SparseParts parts);

} // namespace ts
