// Rows of a table by index.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "runtime/computed_dtypes.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const Op embedding_backward_op("embedding_backward"), lookup_op("embedding");

void check_indices(const Tensor& indices, const char* op) {
  TS_CHECK(indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32, op,
           ": Expected tensor for argument #1 'indices' to have one of the "
           "following scalar types: Long, Int; but got ",
           indices.dtype(), " instead");
}
int64_t wrap_padding(std::optional<int64_t> padding_idx, int64_t rows, const char* op) {
  if (!padding_idx) return -1;
  TS_CHECK(*padding_idx >= -rows && *padding_idx < rows, op, ": Padding_idx must be within num_embeddings ", rows,
           ", got ", *padding_idx);
  return *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
}
void check_bounds(const Tensor& indices, int64_t rows, const char* op) {
  Tensor outside = ops::logical_or(ops::lt(indices, 0), ops::ge(indices, rows));
  TS_CHECK_INDEX(!raw_truth(ops::any(outside)), op, ": index out of range in self; expected values from 0 to ",
                 rows - 1);
}
Tensor flat(const Tensor& t) {
  int64_t n = t.numel();
  return alias(t, IntSpan(&n, 1), Dims{1}, t->byte_offset);
}

Tensor embedding_rule(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx) {
  check_indices(indices, "embedding");
  TS_CHECK(weight.ndim() == 2, "embedding: 'weight' must be 2-D, got shape ", weight.sizes());
  wrap_padding(padding_idx, weight.size(0), "embedding");
  Dims sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  return outline(sizes, weight.dtype(), weight.device());
}
void embedding(const Tensor& out, const Tensor& indices, const Tensor& weight, std::optional<int64_t>) {
  check_bounds(indices, weight.size(0), "embedding");
  if (weight.numel() == 0) return;
  Tensor rows = ops::index_select(weight, int64_t{0}, flat(raw_contiguous(indices)));
  raw_copy(out, reshaped(raw_contiguous(rows), out.sizes()));
}

Tensor embedding_backward_rule(const Tensor& grad, const Tensor& indices, int64_t num_weights, int64_t) {
  const char* op = "embedding_backward";
  check_indices(indices, op);
  Dims want(indices.sizes());
  TS_CHECK(grad.ndim() == indices.ndim() + 1 && same(grad.sizes().first(want.size()), want), op, ": grad of shape ",
           grad.sizes(), " does not fit indices of shape ", indices.sizes());
  TS_CHECK(num_weights >= 0, op, ": expected num_weights that is not negative, got ", num_weights);
  return outline(Dims{num_weights, grad.sizes().back()}, grad.dtype(), grad.device());
}
void embedding_backward(const Tensor& out, const Tensor& grad, const Tensor& indices, int64_t num_weights,
                        int64_t padding_idx) {
  if (indices.numel() == 0) return raw_fill(out, 0.0);
  Tensor g = raw_contiguous(grad), at = raw_contiguous(indices);
  check_bounds(at, num_weights, "embedding_backward");
  DType wide = accumulate_type(grad);
  int64_t rows_sizes[] = {at.numel(), grad.sizes().back()};
  Tensor rows = raw_cast(alias(g, rows_sizes, contiguous_strides(rows_sizes), g->byte_offset), wide);
  Tensor where_to = flat(at);
  if (padding_idx >= 0) rows = ops::masked_fill(rows, ops::unsqueeze(ops::eq(where_to, padding_idx), int64_t{1}), 0.0);
  Tensor zeros = filled(out.sizes(), 0.0, wide, grad.device());
  raw_copy(out, ops::index_add(zeros, int64_t{0}, where_to, rows));
}

void embedding_gradient(GradContext& c) {
  int64_t rows = c.sizes(1)[0];
  c.set(1, embedding_backward_op(c.grad(), c.arg(0), rows,
                                 wrap_padding(c.value<std::optional<int64_t>>(2), rows, "embedding")));
}
// Summing rows is the transpose of looking them up; the padding row was left out.
void embedding_backward_gradient(GradContext& c) {
  Tensor rows = lookup_op(c.arg(1), c.grad());
  int64_t padding_idx = c.value<int64_t>(3);
  if (padding_idx >= 0) rows = ops::masked_fill(rows, ops::unsqueeze(ops::eq(c.arg(1), padding_idx), int64_t{-1}), 0.0);
  c.set(0, rows);
}

} // namespace

TS_OPERATORS(embedding) {
  def("embedding(Tensor input, Tensor weight, int? padding_idx=None) -> Tensor")
      .facts("stored")
      .rule<embedding_rule>()
      .kernel("embedding", "weight input: contiguous")
      .decompose<embedding>()
      .saves("input")
      .gradient(embedding_gradient)
      .in("nn.functional")
      .function_only()
      .doc("Rows of weight (num, dim) at the integer input (*): (*, dim). The row padding_idx gets no gradient. "
           "IndexError for an index outside.");
  def("embedding_backward(Tensor grad, Tensor indices, int num_weights, int padding_idx) -> Tensor")
      .rule<embedding_backward_rule>()
      .kernel("embedding_backward", "grad indices: contiguous", "num_weights, padding_idx")
      .decompose<embedding_backward>()
      .saves("indices")
      .gradient(embedding_backward_gradient)
      .hidden()
      .doc("Gradient of embedding by its table: rows of grad added up by index; padding_idx -1 is none.");
}

} // namespace ts
