// Scaled dot product attention (Vaswani et al., arXiv:1706.03762).
#include "ops/nn/attention.h"
#include "autograd/traced.h"
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include <cmath>
#include <limits>

namespace ts {
namespace {

const KernelId kAttention("scaled_dot_product_attention");
const Op attention_softmax_op("softmax"), attention_dropout_op("dropout"), any_dims("any.dims"), whole_op("_attention");

// The lower triangle: query i sees keys up to i.
Tensor causal_mask(int64_t queries, int64_t keys, Device device) {
  Tensor rows = ops::arange(0, queries, 1, DType::Int64, device),
         columns = ops::arange(0, keys, 1, DType::Int64, device);
  return ops::le(columns, ops::unsqueeze(rows, int64_t{1}));
}

// Heads of keys and values shared by groups of query heads (grouped-query attention).
Tensor repeat_heads(const Tensor& t, int64_t heads) {
  int64_t have = t.size(-3);
  if (have == heads) return t;
  TS_CHECK(
      have > 0 && heads % have == 0,
      "scaled_dot_product_attention: Number of heads in key and value must divide the number of heads in query, got ",
      have, " and ", heads);
  Dims split(t.sizes()), joined(t.sizes());
  size_t at = split.size() - 3;
  split.insert(split.begin() + at + 1, heads / have);
  joined[at] = heads;
  return ops::reshape(ops::expand(ops::unsqueeze(t, static_cast<int64_t>(at) + 1), split), joined);
}

bool same_batches(const Tensor& q, const Tensor& k, const Tensor& v) {
  auto batch = [](const Tensor& t) { return t.sizes().first(t.sizes().size() - 2); };
  return same(batch(q), batch(k)) && same(batch(q), batch(v));
}

// --- the whole as one operator, for backends with a kernel of that name
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                    double scale) {
  return ops::matmul(attention_weights(attention_scores(q, k, mask, is_causal, scale)), v);
}
Tensor whole_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool, double) {
  check_attention_operands(q, k, v);
  if (mask.defined()) check_attention_mask(mask, q.dtype());
  return attention_outline(q, v);
}
bool has_kernel(Device device) { return !device.is_meta() && backend_of(device).kernel(kAttention, device.index); }

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout_p,
                 bool is_causal, std::optional<double> given_scale, bool enable_gqa) {
  const char* op = "scaled_dot_product_attention";
  check_attention_operands(query, key, value);
  TS_CHECK(!is_causal || !mask.defined(), op, ": Explicit attn_mask should not be set when is_causal=True");
  TS_CHECK(dropout_p >= 0 && dropout_p <= 1, op, ": expected dropout_p between 0 and 1, got ", dropout_p);
  if (mask.defined()) check_attention_mask(mask, query.dtype());
  bool heads = enable_gqa && query.ndim() >= 3 && key.ndim() >= 3 && value.ndim() >= 3;
  Tensor k = heads ? repeat_heads(key, query.size(-3)) : key, v = heads ? repeat_heads(value, query.size(-3)) : value;
  double scale = given_scale.value_or(1 / std::sqrt(static_cast<double>(query.sizes().back())));
  if (same_batches(query, k, v) && query.numel() != 0 && k.numel() != 0 && v.numel() != 0) {
    if (dropout_p == 0) {
      if (has_kernel(query.device())) return whole_op(query, k, v, mask, is_causal, scale);
      if (Tensor out = attention_by_blocks(query, k, v, mask, is_causal, scale); out.defined()) return out;
    }
    if (Tensor out = attention_by_rows(query, k, v, mask, is_causal, scale, dropout_p); out.defined()) return out;
  }
  Tensor weights = attention_weights(attention_scores(query, k, mask, is_causal, scale));
  if (dropout_p > 0) return ops::matmul(attention_dropout_op(weights, dropout_p, true), v);
  Tensor result = ops::matmul(weights, v), wanted = attention_outline(query, v);
  bool heads_inside = wanted.ndim() == 4 && wanted.strides()[1] < wanted.strides()[2];
  if (!heads_inside || !same(result.sizes(), wanted.sizes())) return result;
  return ops::transpose(ops::contiguous(ops::transpose(result, int64_t{1}, int64_t{2}), MemoryFormat::Contiguous),
                        int64_t{1}, int64_t{2});
}

} // namespace

Tensor attention_outline(const Tensor& q, const Tensor& v) {
  if (q.ndim() == 4 && q.sizes().back() == v.sizes().back()) return outline_like(q, q.dtype());
  Dims sizes(q.sizes());
  sizes.back() = v.sizes().back();
  return outline(sizes, q.dtype(), q.device());
}

void check_attention_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  const char* op = "scaled_dot_product_attention";
  TS_CHECK(q.ndim() >= 2 && k.ndim() >= 2 && v.ndim() >= 2, op,
           ": Expected query, key, and value to all be at least 2 dimensional, but got ", q.sizes(), ", ", k.sizes(),
           " and ", v.sizes());
  TS_CHECK(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op,
           ": Expected query, key, and value to have the same floating dtype, but got ", q.dtype(), ", ", k.dtype(),
           " and ", v.dtype());
  TS_CHECK(q.sizes().back() == k.sizes().back(), op, ": expected query and key of one last size, got ", q.sizes(),
           " and ", k.sizes());
  TS_CHECK(k.size(-2) == v.size(-2), op, ": expected as many keys as values, got ", k.sizes(), " and ", v.sizes());
}

void check_attention_mask(const Tensor& mask, DType query) {
  TS_CHECK(
      mask.dtype() == DType::Bool || mask.dtype() == query || mask.dtype() == DType::Float32,
      "scaled_dot_product_attention: Expected attn_mask dtype to be bool or float or to match query dtype, but got "
      "attn_mask.dtype: ",
      mask.dtype(), " and  query.dtype: ", query, " instead.");
}

AttentionScores attention_scores(const Tensor& q, const Tensor& k, const Tensor& mask, bool is_causal, double scale) {
  // Half of the scale on each side keeps products of half types in range.
  double root = std::sqrt(std::abs(scale));
  Tensor scores =
      ops::matmul(ops::mul(q, scale < 0 ? -root : root), ops::transpose(ops::mul(k, root), int64_t{-2}, int64_t{-1}));
  Tensor allowed = is_causal                                       ? causal_mask(q.size(-2), k.size(-2), q.device())
                   : mask.defined() && mask.dtype() == DType::Bool ? mask
                                                                   : Tensor();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (allowed.defined()) return {ops::masked_fill(scores, ops::logical_not(allowed), -infinity), allowed};
  if (!mask.defined()) return {scores, allowed};
  if (mask.ndim() == 0) return {ops::add(scores, as_dtype(mask, scores.dtype())), allowed};
  // Rows that are all -inf see nothing. Their softmax is taken without them, as it and its gradient would be NaN.
  int64_t last[] = {-1};
  allowed = any_dims(ops::ne(mask, -infinity), IntSpan(last), true);
  Tensor added = ops::masked_fill(mask, ops::logical_not(allowed), 0.0);
  return {ops::add(scores, as_dtype(added, scores.dtype())), allowed};
}

Tensor attention_weights(const AttentionScores& s) {
  Tensor weights = attention_softmax_op(s.scores, int64_t{-1});
  if (!s.allowed.defined()) return weights;
  int64_t last[] = {-1};
  return ops::masked_fill(weights, ops::logical_not(any_dims(s.allowed, IntSpan(last), true)), 0.0);
}

TS_OPERATORS(attention) {
  def("_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale) -> Tensor")
      .rule<whole_rule>()
      .kernel("scaled_dot_product_attention", "query key value attn_mask: contiguous", "is_causal, scale")
      .decompose<attention_of>()
      .saves("query key value attn_mask")
      .gradient(traced_gradient<attention_of>)
      .node_name("ScaledDotProductAttentionBackward0")
      .hidden()
      .doc("scaled_dot_product_attention without dropout, by a backend's kernel for all of it.");
  def("scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float "
      "dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor")
      .facts("kernel:scaled_dot_product_attention kernel:attention_blocks")
      .facts("autocast:lower")
      .body<attention>()
      .random()
      .in("nn.functional")
      .function_only()
      .doc("softmax(query @ key^T * scale + mask) @ value over (..., L, E), (..., S, E), (..., S, V). attn_mask: bool "
           "(True may be seen) or added; scale defaults to 1 / sqrt(E).");
}

} // namespace ts
