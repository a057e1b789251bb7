// Attention by operators over blocks of queries: what has no kernel by blocks (float64, dropout, a learned mask) need
// not hold the matrix of scores either. The gradients compute each block's weights again (Rabe & Staats,
// arXiv:2112.05682), and draw again what dropout drew, from a place in the Philox stream that the forward pass kept.
#include "autograd/gradient.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/declare.h"
#include "ops/nn/attention.h"
#include "ops/nn/norm_parts.h"
#include "ops/random/random_bits.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <vector>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kAttentionRowsCode = "walks over blocks of queries";

const Op rows_op("attention_rows"), rows_backward_op("attention_rows_backward"), attention_rows_softmax_op("softmax"),
    apply_dropout("_dropout_apply");
using Two = std::tuple<Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr int64_t kHeld = 1 << 22; // scores that may be held at once
constexpr int64_t kLastDim = -1, kRowDim = -2;

Tensor attention_rows_turned(const Tensor& t) { return ops::transpose(t, kRowDim, kLastDim); }
Tensor rows_between(const Tensor& t, int64_t begin, int64_t end) {
  return begin == 0 && end == t.size(-2) ? t : ops::narrow(t, kRowDim, begin, end - begin);
}

// Where dropout draws (Place) is kept for the backward pass as int64 on the device.
// Queries [begin, end) and the keys they see.
class Rows {
public:
  Rows(const Tensor& q, const Tensor& k, const Tensor& mask, bool is_causal, double scale, double dropout_p)
      : q_(q), k_(k), mask_(mask), causal_(is_causal), scale_(scale), p_(dropout_p) {
    int64_t batch = std::max<int64_t>(1, q.numel() / std::max<int64_t>(1, q.size(-2) * q.sizes().back()));
    words_ = (batch * k.size(-2) + 3) / 4 * 4;
    step_ = std::clamp<int64_t>(kHeld / std::max<int64_t>(1, words_), 1, q.size(-2));
  }
  uint64_t dropout_words() const { return p_ > 0 ? static_cast<uint64_t>(words_ * q_.size(-2)) : 0; }
  int64_t step() const { return step_; }
  int64_t keys_of(int64_t end) const { return causal_ ? std::min(k_.size(-2), end) : k_.size(-2); }

  Tensor weights(int64_t begin, int64_t end) const {
    int64_t keys = keys_of(end);
    return attention_weights(
        attention_scores(rows_between(q_, begin, end), rows_between(k_, 0, keys), seen(begin, end), false, scale_));
  }
  Tensor mask_rows(int64_t begin, int64_t end) const {
    bool shared = !mask_.defined() || mask_.ndim() < 2 || mask_.size(-2) == 1;
    return shared ? mask_ : rows_between(mask_, begin, end);
  }
  // What dropout keeps of weights or of their gradients, scaled.
  Tensor dropped(const Tensor& t, int64_t begin, const Place& place) const {
    if (p_ <= 0) return t;
    Generator g;
    g.device = t.device();
    g.seed = place.seed;
    g.offset = place.offset + static_cast<uint64_t>(words_ * begin);
    Tensor kept = uniform_at_least(t.sizes(), p_, t.device(), g);
    return apply_dropout(t, kept, Scalar(p_ >= 1 ? 0.0 : 1 / (1 - p_)));
  }

private:
  Tensor seen(int64_t begin, int64_t end) const {
    if (!causal_) return mask_rows(begin, end);
    Tensor rows = ops::arange(begin, end, 1, DType::Int64, q_.device());
    return ops::le(ops::arange(0, keys_of(end), 1, DType::Int64, q_.device()), ops::unsqueeze(rows, int64_t{1}));
  }

  const Tensor &q_, &k_, &mask_;
  bool causal_;
  double scale_, p_;
  int64_t words_, step_; // random words per query; queries of a block
};

Two attention_rows_rule(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, bool is_causal,
                        double, double dropout_p) {
  check_attention_operands(query, key, value);
  TS_CHECK(!is_causal || !mask.defined(), "attention_rows: expected a mask or is_causal, got both");
  TS_CHECK(dropout_p >= 0 && dropout_p <= 1, "attention_rows: expected dropout_p between 0 and 1, got ", dropout_p);
  if (mask.defined()) check_attention_mask(mask, query.dtype());
  Dims sizes(query.sizes());
  sizes.back() = value.sizes().back();
  int64_t two[] = {2};
  return {outline(sizes, query.dtype(), query.device()), outline(two, DType::Int64, query.device())};
}
void attention_rows(const Tensor& out, const Tensor& kept, const Tensor& query, const Tensor& key, const Tensor& value,
                    const Tensor& mask, bool is_causal, double scale, double dropout_p) {
  Tensor q = widened(query), k = widened(key), v = widened(value);
  Rows rows(q, k, mask, is_causal, scale, dropout_p);
  const Place place = claim_place(q.device(), rows.dropout_words());
  copy_bytes_from_host(kept, &place, sizeof place);
  for (int64_t begin = 0; begin < q.size(-2); begin += rows.step()) {
    int64_t end = std::min(q.size(-2), begin + rows.step());
    Tensor weights = rows.dropped(rows.weights(begin, end), begin, place);
    Tensor part = ops::matmul(weights, rows_between(v, 0, rows.keys_of(end)));
    raw_copy(rows_between(out, begin, end), as_dtype(part, out.dtype()));
  }
}

// Adds to the first rows of a sum.
void add_rows(const Tensor& sum, const Tensor& part) { ops::add_(rows_between(sum, 0, part.size(-2)), part); }

Four attention_rows_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                             const Tensor& mask, const Tensor& kept, bool is_causal, double scale, double dropout_p,
                             bool of_mask) {
  Tensor g = widened(grad), q = widened(query), k = widened(key), v = widened(value);
  Rows rows(q, k, mask, is_causal, scale, dropout_p);
  Place place{};
  if (dropout_p > 0)
    place = {static_cast<uint64_t>(host_number(ops::select(kept, int64_t{0}, int64_t{0}))),
             static_cast<uint64_t>(host_number(ops::select(kept, int64_t{0}, int64_t{1})))};
  Tensor dk = ops::zeros_like(k), dv = ops::zeros_like(v), d_mask;
  std::vector<Tensor> dq, d_mask_rows;
  int64_t last[] = {kLastDim};
  for (int64_t begin = 0; begin < q.size(-2); begin += rows.step()) {
    int64_t end = std::min(q.size(-2), begin + rows.step()), keys = rows.keys_of(end);
    Tensor weights = rows.weights(begin, end), g_rows = rows_between(g, begin, end);
    add_rows(dv, ops::matmul(attention_rows_turned(rows.dropped(weights, begin, place)), g_rows));
    Tensor d_weights = rows.dropped(ops::matmul(g_rows, attention_rows_turned(rows_between(v, 0, keys))), begin, place);
    Tensor centre = ops::sum_dim(ops::mul(weights, d_weights), IntSpan(last), true);
    Tensor slopes = ops::mul(weights, ops::sub(d_weights, centre));
    if (of_mask) {
      Tensor part = rows.mask_rows(begin, end);
      Tensor sum = ops::sum_to_size(slopes, part.sizes());
      bool by_rows = mask.ndim() >= 2 && mask.size(-2) != 1;
      if (by_rows)
        d_mask_rows.push_back(sum);
      else
        d_mask = d_mask.defined() ? ops::add(d_mask, sum) : sum;
    }
    slopes = ops::mul(slopes, scale);
    dq.push_back(ops::matmul(slopes, rows_between(k, 0, keys)));
    add_rows(dk, ops::matmul(attention_rows_turned(slopes), rows_between(q, begin, end)));
  }
  if (!d_mask_rows.empty()) d_mask = d_mask_rows.size() == 1 ? d_mask_rows[0] : ops::cat(d_mask_rows, kRowDim);
  Tensor dq_all = dq.size() == 1 ? dq[0] : ops::cat(dq, kRowDim);
  if (!d_mask.defined()) d_mask = ops::zeros_like(kept);
  return {as_dtype(dq_all, query.dtype()), as_dtype(dk, key.dtype()), as_dtype(dv, value.dtype()),
          of_mask ? as_dtype(d_mask, mask.dtype()) : d_mask};
}

void rows_gradient(GradContext& c) {
  bool of_mask = c.needs(3);
  auto [dq, dk, dv, d_mask] = rows_backward_op.multi<4>(c.grad(), c.arg(0), c.arg(1), c.arg(2), c.arg(3), c.result(1),
                                                        c.value(4), c.value(5), c.value(6), of_mask);
  c.set(0, dq);
  c.set(1, dk);
  c.set(2, dv);
  if (of_mask) c.set(3, d_mask);
}

} // namespace

Tensor attention_by_rows(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                         double scale, double dropout_p) {
  double scores =
      static_cast<double>(q.numel()) / static_cast<double>(q.sizes().back()) * static_cast<double>(k.size(-2));
  if (q.device().is_meta() || scores <= static_cast<double>(kHeld)) return {};
  return rows_op.multi<2>(q, k, v, mask, is_causal, scale, dropout_p)[0];
}

TS_OPERATORS(attention_rows) {
  def("attention_rows(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale, float "
      "dropout_p) -> (Tensor, Tensor)")
      .node_name("ScaledDotProductAttentionBackward0")
      .rule<attention_rows_rule>()
      .computation<attention_rows, 2>(kAttentionRowsCode)
      .random()
      .saves("query key value attn_mask result1")
      .gradient(rows_gradient)
      .hidden()
      .doc("scaled_dot_product_attention by blocks of queries, and where in the random stream dropout drew.");
  def("attention_rows_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor place, "
      "bool is_causal, float scale, float dropout_p, bool of_mask) -> (Tensor, Tensor, Tensor, Tensor)")
      .body<attention_rows_backward>()
      .reads_host()
      .hidden()
      .doc("Gradients of attention_rows' first result by query, key, value and, where asked, an added mask.");
}

} // namespace ts
