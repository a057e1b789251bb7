// Attention by a kernel that never holds the matrix of scores, and its gradients (Dao et al., arXiv:2205.14135). What
// the forward pass keeps for them is the logarithm of each query's sum of weights.
#include "autograd/meta.h"
#include "autograd/traced.h"
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/nn/attention.h"
#include "ops/nn/norm_parts.h"
#include "runtime/computed_dtypes.h"
#include "tensor/geometry.h"
#include <limits>

namespace ts {
namespace {

const KernelId kForward("attention_blocks");
const Op attention_blocks_forward_op("attention_blocks"), attention_blocks_backward_op("attention_blocks_backward");
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Dims batch_of(const Tensor& t) { return Dims(t.sizes().first(t.sizes().size() - 2)); }
Dims with(Dims batch, int64_t rows, int64_t cols) {
  batch.push_back(rows);
  batch.push_back(cols);
  return batch;
}

Dims scores_sizes(const Tensor& q, const Tensor& k) { return with(batch_of(q), q.size(-2), k.size(-2)); }

void attention_blocks_check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal) {
  check_attention_operands(q, k, v);
  TS_CHECK(same(batch_of(q), batch_of(k)) && same(batch_of(q), batch_of(v)),
           "attention_blocks: expected query, key and value of the same batch sizes, got ", q.sizes(), ", ", k.sizes(),
           " and ", v.sizes());
  TS_CHECK(!is_causal || !mask.defined(), "attention_blocks: expected a mask or is_causal, got both");
  if (!mask.defined()) return;
  check_attention_mask(mask, q.dtype());
  TS_CHECK(same(mask.sizes(), scores_sizes(q, k)), "attention_blocks: expected a mask of the scores' shape ",
           IntSpan(scores_sizes(q, k)), ", got ", mask.sizes(), "; try mask.expand()");
}

Dims attention_blocks_statistics_sizes(const Tensor& q) {
  Dims rows = batch_of(q);
  rows.push_back(q.size(-2));
  return rows;
}

Two attention_blocks_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                          double) {
  attention_blocks_check(q, k, v, mask, is_causal);
  return {attention_outline(q, v), outline(attention_blocks_statistics_sizes(q), accumulate_type(q), q.device())};
}
Two attention_blocks_parts(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                           double scale) {
  AttentionScores s = attention_scores(widened(q), widened(k), mask, is_causal, scale);
  int64_t last[] = {-1};
  Tensor sums = ops::logsumexp(s.scores, IntSpan(last), false);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return {ops::matmul(attention_weights(s), widened(v)), ops::masked_fill(sums, ops::eq(sums, -infinity), infinity)};
}

// As the kernels have it: the keys may be a part of those that result and logsumexp are of.
Three attention_blocks_backward_parts(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                                      const Tensor& mask, const Tensor& result, const Tensor& logsumexp, bool is_causal,
                                      double scale) {
  Tensor g = widened(grad), q = widened(query), k = widened(key), v = widened(value);
  auto turned = [](const Tensor& t) { return ops::transpose(t, int64_t{-2}, int64_t{-1}); };
  AttentionScores s = attention_scores(q, k, mask, is_causal, scale);
  Tensor weights = ops::exp(ops::sub(s.scores, ops::unsqueeze(logsumexp, int64_t{-1})));
  int64_t last[] = {-1};
  Tensor centre = ops::sum_dim(ops::mul(g, widened(result)), IntSpan(last), true);
  Tensor slopes = ops::mul(ops::mul(weights, ops::sub(ops::matmul(g, turned(v)), centre)), scale);
  return {as_dtype(ops::matmul(slopes, k), query.dtype()), as_dtype(ops::matmul(turned(slopes), q), key.dtype()),
          as_dtype(ops::matmul(turned(weights), g), value.dtype())};
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
  attention_blocks_check(q, k, v, mask, is_causal);
  Dims result = with(batch_of(q), q.size(-2), v.sizes().back()), rows = attention_blocks_statistics_sizes(q);
  TS_CHECK(same(grad.sizes(), result) && same(out.sizes(), result) && grad.dtype() == q.dtype() &&
               out.dtype() == q.dtype(),
           "attention_blocks_backward: expected grad and result of shape ", IntSpan(result), " in ", q.dtype(),
           ", got ", grad.sizes(), " in ", grad.dtype(), " and ", out.sizes(), " in ", out.dtype());
  TS_CHECK(same(lse.sizes(), rows) && lse.dtype() == accumulate_type(q),
           "attention_blocks_backward: expected logsumexp of shape ", IntSpan(rows), " in ", accumulate_type(q),
           ", got ", lse.sizes(), " in ", lse.dtype());
  auto like = [](const Tensor& t) { return outline(t.sizes(), t.dtype(), t.device()); };
  return {like(q), like(k), like(v)};
}
void attention_gradient(GradContext& c) {
  TS_CHECK(!c.has_grad(1), "attention_blocks: logsumexp has no gradient; compute it from the scores instead");
  auto [dq, dk, dv] = attention_blocks_backward_op.multi<3>(c.grad(), c.arg(0), c.arg(1), c.arg(2), c.arg(3),
                                                            c.result(0), c.result(1), c.value(4), c.value(5));
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
  // Kernels read a mask of the scores' sizes, by zero strides.
  Tensor m = mask.defined() ? ops::expand(mask, scores_sizes(q, k)) : mask;
  return attention_blocks_forward_op.multi<2>(q, k, v, m, is_causal, scale)[0];
}

TS_OPERATORS(attention_blocks) {
  def("attention_blocks(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale) -> "
      "(Tensor, Tensor)")
      .node_name("ScaledDotProductFlashAttentionForCpuBackward0")
      .rule<attention_blocks_rule>()
      .kernel("attention_blocks", "query key value attn_mask: any", "is_causal, scale")
      .work("query", "key", -2)
      .decompose<attention_blocks_parts>()
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
      .kernel("attention_blocks_backward", "grad query key value attn_mask result: any; logsumexp: contiguous",
              "is_causal, scale")
      .work("query", "key", -2)
      .decompose<attention_blocks_backward_parts>()
      .saves("grad query key value attn_mask result logsumexp")
      .gradient(traced_gradient<traced_backward>)
      .hidden()
      .doc(
          "Gradients of attention_blocks' first result by query, key and value; where result and logsumexp are of more "
          "keys than these, this part of them.");
}

} // namespace ts
