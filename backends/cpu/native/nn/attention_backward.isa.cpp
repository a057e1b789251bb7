// The gradients of attention by blocks: weights are computed again from the logarithm of their sum (Dao et al.,
// arXiv:2205.14135, algorithm 4).
#include "attention.h"
#include "math/exp_sum.h"
#include "threads.h"

#include <utility>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using namespace attention;

constexpr int64_t kQueries = 126, kKeys = 256;
// Rows of scores, which are read by columns as well: no power of two, by which a column would fall into few sets of the
// cache.
constexpr int64_t kScoreRow = kKeys + 16;
constexpr int64_t kEnough = 8; // units of work that keep threads busy: fewer heads are cut

struct Backward {
  Rows grad, query, key, value, out;
  RowReader<float> logsumexp;
  Mask mask;
  float scale;
  Rows d_query, d_key, d_value;
  int64_t parts; // of the keys of each head, by sizes alone: sums must not depend on the number of threads

  int64_t width() const { return query.cols(); }
  int64_t wide() const { return value.cols(); }
  int64_t scratch_size() const {
    return kQueries * (2 * width() + 3 * wide() + 2 * kScoreRow) + kKeys * (2 * width() + 2 * wide() + 1);
  }
  int64_t part_begin(int64_t part) const { return ceil_div(key.rows(), kKeys) * part / parts * kKeys; }

  struct Space {
    float *query, *d_query, *grad, *out, *spare, *weights, *slopes, *key, *d_key, *value, *d_value, *row;
    Space(const Backward& b, float* at) {
      const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
      query = take(kQueries * b.width());
      d_query = take(kQueries * b.width());
      grad = take(kQueries * b.wide());
      out = take(kQueries * b.wide());
      spare = take(kQueries * b.wide());
      weights = take(kQueries * kScoreRow);
      slopes = take(kQueries * kScoreRow);
      key = take(kKeys * b.width());
      d_key = take(kKeys * b.width());
      value = take(kKeys * b.wide());
      d_value = take(kKeys * b.wide());
      row = take(kKeys);
    }
  };

  // Adds what queries [i, i + rows) and keys [k, k + count) give.
  void add_block(int64_t head, int64_t i, int64_t rows, int64_t k, int64_t count, const Block& keys,
                 const Block& values, const float* delta, float* d_queries, const Space& s) const {
    const Block q = query.read_scaled(query.head(head), i, rows, scale, s.query);
    const Block g = grad.read(grad.head(head), i, rows, s.grad);
    const char* const mask_head = mask.head(head);
    multiply(q, keys.transposed(), rows, count, width(), s.weights, kScoreRow, false);
    for (int64_t r = 0; r < rows; ++r) {
      float* const row = s.weights + r * kScoreRow;
      const int64_t visible = mask.visible(i + r, k, count);
      mask.apply(mask_head, i + r, k, visible, row, s.row);
      float log_sum;
      exp_and_sum(row, *logsumexp.read(head * query.rows() + i + r, 1, 1, &log_sum), visible, row, Soon<float>{});
      std::fill(row + visible, row + count, 0.0f);
    }
    const Block weights{s.weights, kScoreRow, 1}, slopes{s.slopes, kScoreRow, 1};
    multiply(weights.transposed(), g, count, wide(), rows, s.d_value, wide(), true);
    multiply(g, values.transposed(), rows, count, wide(), s.slopes, kScoreRow, false);
    for (int64_t r = 0; r < rows; ++r) {
      float* const slope = s.slopes + r * kScoreRow;
      const float *weight = s.weights + r * kScoreRow, centre = delta[i + r];
      for (int64_t c = 0; c < count; ++c) slope[c] = weight[c] * (slope[c] - centre);
    }
    multiply(slopes.transposed(), q, count, width(), rows, s.d_key, width(), true);
    multiply(slopes, keys, rows, width(), count, d_queries + i * width(), width(), true);
  }

  // delta[i] = grad[i] . out[i]
  void dot_rows(int64_t head, float* delta, const Space& s) const {
    for (int64_t i = 0; i < query.rows(); i += kQueries) {
      const int64_t rows = std::min(kQueries, query.rows() - i);
      const Block g = grad.read(grad.head(head), i, rows, s.grad), y = out.read(out.head(head), i, rows, s.out);
      for (int64_t r = 0; r < rows; ++r)
        delta[i + r] = static_cast<float>(dot(g.data + r * g.row, y.data + r * y.row, wide()));
    }
  }

  // The keys of one part. d_queries (queries, width) and delta belong to the unit.
  void run(int64_t head, int64_t part, float* d_queries, float* delta, const Space& s) const {
    std::fill(d_queries, d_queries + query.rows() * width(), 0.0f);
    dot_rows(head, delta, s);
    const int64_t end = std::min(key.rows(), part_begin(part + 1));
    for (int64_t k = part_begin(part); k < end; k += kKeys) {
      const int64_t count = std::min(kKeys, end - k);
      const Block keys = key.read(key.head(head), k, count, s.key);
      const Block values = value.read(value.head(head), k, count, s.value);
      std::fill(s.d_key, s.d_key + count * width(), 0.0f);
      std::fill(s.d_value, s.d_value + count * wide(), 0.0f);
      for (int64_t i = 0; i < query.rows(); i += kQueries) {
        const int64_t rows = std::min(kQueries, query.rows() - i);
        const int64_t seen = mask.visible(i + rows - 1, k, count);
        if (seen > 0) add_block(head, i, rows, k, seen, keys, values, delta, d_queries, s);
      }
      d_key.write(d_key.head(head), k, count, s.d_key);
      d_value.write(d_value.head(head), k, count, s.d_value);
    }
  }

  // d_query = scale times the sum over the parts.
  void finish(int64_t head, float* d_queries) const {
    const int64_t n = query.rows() * width();
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = 0; i < n; ++i) d_queries[i] += d_queries[part * n + i];
    for (int64_t i = 0; i < n; ++i) d_queries[i] *= scale;
    d_query.write(d_query.head(head), 0, query.rows(), d_queries);
  }
};

// inputs: grad, query, key, value, mask?, result, logsumexp; params: is_causal, scale; outputs: d query, d key, d value
int backward(const backend::Call& call) {
  if (call.in(1).dtype() == TS_FLOAT64) return TS_DECLINED;
  const int64_t heads = heads_of(call.in(1)), key_blocks = ceil_div(call.in(2).size(call.in(2).ndim() - 2), kKeys);
  const Backward pass{Rows(call.in(0)),
                      Rows(call.in(1)),
                      Rows(call.in(2)),
                      Rows(call.in(3)),
                      Rows(call.in(5)),
                      RowReader<float>(call.in(6).raw()),
                      Mask(call, 4, call.param(0).as_bool()),
                      static_cast<float>(call.param(1).as_float()),
                      Rows(call.out(0)),
                      Rows(call.out(1)),
                      Rows(call.out(2)),
                      std::min(key_blocks, ceil_div(kEnough, heads))};
  const int64_t queries = pass.query.rows(), d_size = queries * pass.width();
  const int64_t work = queries * pass.key.rows() * (3 * pass.width() + 2 * pass.wide()) / pass.parts;
  const auto each_unit = [&](int64_t first, int64_t last, float* d_queries, bool shared) {
    const Buffer<float> scratch(pass.scratch_size()), delta(queries);
    const Backward::Space space(pass, scratch.get());
    for (int64_t unit = first; unit < last; ++unit) {
      float* const mine = shared ? d_queries + unit % pass.parts * d_size : d_queries;
      pass.run(unit / pass.parts, unit % pass.parts, mine, delta.get(), space);
      if (!shared) pass.finish(unit, mine);
    }
  };
  if (pass.parts == 1) {
    parallel_for(0, heads, 100'000 / work + 1, [&](int64_t first, int64_t last) {
      const Buffer<float> d_queries(d_size);
      each_unit(first, last, d_queries.get(), false);
    });
    return TS_OK;
  }
  const Buffer<float> d_queries(pass.parts * d_size);
  for (int64_t head = 0; head < heads; ++head) {
    parallel_for(head * pass.parts, (head + 1) * pass.parts, 100'000 / work + 1,
                 [&](int64_t first, int64_t last) { each_unit(first, last, d_queries.get(), true); });
    pass.finish(head, d_queries.get());
  }
  return TS_OK;
}

} // namespace

TS_KERNEL("attention_blocks_backward", backward);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
