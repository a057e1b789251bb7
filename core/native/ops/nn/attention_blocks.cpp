// Attention by a kernel that never holds the matrix of scores, and its gradients (Dao et al., arXiv:2205.14135). What
// the forward pass keeps for them is the logarithm of each query's sum of weights.
#include "autograd/meta.h"
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/traced.h"
#include "ops/nn/attention.h"
#include "ops/nn/norm_parts.h"
#include "tensor/geometry.h"
#include <limits>

namespace ts {
namespace {

const KernelId kForward("attention_blocks"), kBackward("attention_blocks_backward");
const Op forward_op("attention_blocks"), backward_op("attention_blocks_backward");
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Dims batch_of(const Tensor& t) { return Dims(t.sizes().first(t.sizes().size() - 2)); }
Dims with(Dims batch, int64_t rows, int64_t cols) {
  batch.push_back(rows);
  batch.push_back(cols);
  return batch;
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal) {
  check_attention_operands(q, k, v);
  TS_CHECK(same(batch_of(q), batch_of(k)) && same(batch_of(q), batch_of(v)),
           "attention_blocks: expected query, key and value of the same batch sizes, got ", q.sizes(), ", ", k.sizes(),
           " and ", v.sizes());
  TS_CHECK(!is_causal || !mask.defined(), "attention_blocks: expected a mask or is_causal, got both");
  if (mask.defined()) check_attention_mask(mask, q.dtype());
}

// A mask as the kernels read it: of the scores' sizes, by zero strides.
Tensor fitted(const Tensor& mask, const Tensor& q, const Tensor& k) {
  if (!mask.defined()) return mask;
  return raw_expand(mask, with(batch_of(q), q.size(-2), k.size(-2)), "attention_blocks");
}

bool has_elements(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.numel() != 0 && k.numel() != 0 && v.numel() != 0;
}
Dims statistics_sizes(const Tensor& q) {
  Dims rows = batch_of(q);
  rows.push_back(q.size(-2));
  return rows;
}

Two attention_blocks_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                          double) {
  check(q, k, v, mask, is_causal);
  return {attention_outline(q, v), outline(statistics_sizes(q), accumulate_type(q.dtype()), q.device())};
}
void attention_blocks(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& mask, bool is_causal, double scale) {
  if (has_elements(q, k, v)) {
    Tensor m = fitted(mask, q, k);
    Launch launch(kForward, q.device());
    launch.out(out).out(lse).in(q).in(k).in(v).in(m).param(is_causal).param(scale);
    if (launch.work(q.numel() * k.size(-2)).run()) return;
  }
  AttentionScores s = attention_scores(widened(q), widened(k), mask, is_causal, scale);
  int64_t last[] = {-1};
  Tensor sums = ops::logsumexp(s.scores, IntSpan(last), false);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  raw_copy(lse, ops::masked_fill(sums, ops::eq(sums, -infinity), infinity));
  raw_copy(out, ops::matmul(attention_weights(s), widened(v)));
}

// By operators, which can be differentiated again.
Three traced_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                      const Tensor& mask, const Tensor&, const Tensor&, bool is_causal, double scale) {
  Tensor g = widened(grad), q = widened(query), k = widened(key), v = widened(value);
  auto turned = [](const Tensor& t) { return ops::transpose(t, int64_t{-2}, int64_t{-1}); };
  Tensor weights = attention_weights(attention_scores(q, k, mask, is_causal, scale));
  Tensor d_weights = ops::matmul(g, turned(v));
  int64_t last[] = {-1};
  Tensor centre = ops::sum_dim(ops::mul(weights, d_weights), IntSpan(last), true);
  Tensor slopes = ops::mul(ops::mul(weights, ops::sub(d_weights, centre)), scale);
  return {as_dtype(ops::matmul(slopes, k), query.dtype()), as_dtype(ops::matmul(turned(slopes), q), key.dtype()),
          as_dtype(ops::matmul(turned(weights), g), value.dtype())};
}

Three attention_blocks_backward_rule(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& mask, const Tensor& out, const Tensor& lse, bool is_causal, double) {
  check(q, k, v, mask, is_causal);
  Dims result = with(batch_of(q), q.size(-2), v.sizes().back()), rows = statistics_sizes(q);
  TS_CHECK(same(grad.sizes(), result) && same(out.sizes(), result) && grad.dtype() == q.dtype() &&
               out.dtype() == q.dtype(),
           "attention_blocks_backward: expected grad and result of shape ", IntSpan(result), " in ", q.dtype(),
           ", got ", grad.sizes(), " in ", grad.dtype(), " and ", out.sizes(), " in ", out.dtype());
  TS_CHECK(same(lse.sizes(), rows) && lse.dtype() == accumulate_type(q.dtype()),
           "attention_blocks_backward: expected logsumexp of shape ", IntSpan(rows), " in ", accumulate_type(q.dtype()),
           ", got ", lse.sizes(), " in ", lse.dtype());
  auto like = [](const Tensor& t) { return outline(t.sizes(), t.dtype(), t.device()); };
  return {like(q), like(k), like(v)};
}
void attention_blocks_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& grad,
                               const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& out,
                               const Tensor& lse, bool is_causal, double scale) {
  if (has_elements(q, k, v)) {
    Tensor m = fitted(mask, q, k), sums = raw_contiguous(lse);
    Launch launch(kBackward, q.device());
    launch.out(dq).out(dk).out(dv).in(grad).in(q).in(k).in(v).in(m).in(out).in(sums);
    if (launch.param(is_causal).param(scale).work(q.numel() * k.size(-2)).run()) return;
  }
  auto [pq, pk, pv] = traced_backward(grad, q, k, v, mask, out, lse, is_causal, scale);
  raw_copy(dq, pq);
  raw_copy(dk, pk);
  raw_copy(dv, pv);
}

void attention_gradient(GradContext& c) {
  TS_CHECK(!c.has_grad(1), "attention_blocks: logsumexp has no gradient; compute it from the scores instead");
  auto [dq, dk, dv] = backward_op.multi<3>(c.grad(), c.arg(0), c.arg(1), c.arg(2), c.arg(3), c.result(0), c.result(1),
                                           c.value(4), c.value(5));
  c.set(0, dq);
  c.set(1, dk);
  c.set(2, dv);
}

} // namespace

Tensor attention_by_blocks(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                           double scale) {
  // A mask that is learned has a gradient as large as the scores.
  if (q.dtype() == DType::Float64 || q.device().is_meta() || requires_grad(mask)) return {};
  if (!backend_of(q.device()).kernel(kForward, q.device().index)) return {};
  return forward_op.multi<2>(q, k, v, mask, is_causal, scale)[0];
}

TS_OPERATORS(attention_blocks) {
  def("attention_blocks(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale) -> "
      "(Tensor, Tensor)")
      .node_name("ScaledDotProductFlashAttentionForCpuBackward0")
      .rule<attention_blocks_rule>()
      .compute<attention_blocks, 2>()
      .saves("query key value attn_mask result result1")
      .gradient(attention_gradient)
      .hidden()
      .doc(
          "scaled_dot_product_attention, and the logarithm of each query's sum of weights (float32 for half types; inf "
          "where a query sees no key).");
  def("attention_blocks_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor "
      "result, "
      "Tensor logsumexp, bool is_causal, float scale) -> (Tensor, Tensor, Tensor)")
      .rule<attention_blocks_backward_rule>()
      .compute<attention_blocks_backward, 3>()
      .saves("grad query key value attn_mask result logsumexp")
      .gradient(traced_gradient<traced_backward>)
      .hidden()
      .doc("Gradients of attention_blocks' first result by query, key and value.");
}

} // namespace ts
