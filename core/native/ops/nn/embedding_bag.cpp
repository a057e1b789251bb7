// Sums, means and maxima of bags of rows of a table.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "runtime/backend.h"
#include "runtime/computed_dtypes.h"
#include <cstring>
#include <limits>

namespace ts {
namespace {

const char* const kEmbeddingBagName = "embedding_bag";

void embedding_bag_check_arguments(const Tensor& input, const Tensor& offsets, const char* mode,
                                   const Tensor& weights) {
  auto integral = [](const Tensor& t) { return t.dtype() == DType::Int64 || t.dtype() == DType::Int32; };
  TS_CHECK(integral(input), kEmbeddingBagName, ": expected int64 or int32 indices, got ", input.dtype());
  bool one_row_each = input.ndim() == 2;
  TS_CHECK_VALUE(one_row_each || input.ndim() == 1, kEmbeddingBagName,
                 ": input has to be 1D or 2D Tensor, but got Tensor of ", "dimension ", input.ndim());
  TS_CHECK_VALUE(!one_row_each || !offsets.defined(), kEmbeddingBagName,
                 ": if input is 2D, then offsets has to be None, as input "
                 "is treated as a mini-batch of fixed length sequences");
  TS_CHECK_VALUE(one_row_each || (offsets.defined() && offsets.ndim() == 1 && integral(offsets)), kEmbeddingBagName,
                 ": expected offsets to be a 1D Tensor of int64 or int32 beside a 1D input");
  TS_CHECK_VALUE(!std::strcmp(mode, "sum") || !std::strcmp(mode, "mean") || !std::strcmp(mode, "max"),
                 kEmbeddingBagName, ": mode has to be one of sum, mean or max, got ", mode);
  if (!weights.defined()) return;
  TS_CHECK_KIND(ErrorKind::NotImplemented, !std::strcmp(mode, "sum"), kEmbeddingBagName,
                ": per_sample_weights was not None, but mode is not 'sum' (got ", mode, ")");
  TS_CHECK_VALUE(same(weights.sizes(), input.sizes()), kEmbeddingBagName,
                 ": expected per_sample_weights of the same shape as the input, ", input.sizes(), ", got ",
                 weights.sizes());
}

int64_t host_offset(const Tensor& offsets, int64_t k) { return host_number(ops::select(offsets, int64_t{0}, k)); }

// Where the rows of bags end among n: at the last offset, if that is no bag's start.
int64_t checked_end(const Tensor& offsets, int64_t n, bool include_last_offset) {
  TS_CHECK(n == 0 || offsets.numel() > 0, kEmbeddingBagName, ": expected offsets of at least one bag, got none");
  if (offsets.device().is_meta() || offsets.numel() == 0) return n;
  const int64_t first = host_offset(offsets, 0), last = host_offset(offsets, offsets.numel() - 1);
  TS_CHECK(first == 0, kEmbeddingBagName,
           ": offsets[0] has to be 0, i.e. the first sequence in the mini-batch has to start from position 0. "
           "However, got ",
           first);
  TS_CHECK(last >= 0 && last <= n, kEmbeddingBagName, ": offsets[-1] can not be greater than input's length ", n,
           ", but got ", last);
  if (const int64_t more = offsets.numel() - 1; more > 1) {
    auto from = [&](int64_t k) { return ops::narrow(offsets, int64_t{0}, k, more); };
    TS_CHECK(!host_number(ops::any(ops::lt(from(1), from(0)))), kEmbeddingBagName,
             ": expected offsets that do not decrease, as each bag ends where the next one starts");
  }
  return include_last_offset ? last : n;
}

// The bag of each of n positions, the last one that starts at or before it: how many have started, less one.
Tensor bags_of(const Tensor& starts, int64_t n) {
  const Device device = starts.device();
  Tensor none = ops::zeros(Dims{n + 1}, DType::Int64, device);
  Tensor started = ops::index_add(none, int64_t{0}, starts, ops::ones(starts.sizes(), DType::Int64, device));
  return ops::sub(ops::cumsum(ops::narrow(started, int64_t{0}, int64_t{0}, n), int64_t{0}), Scalar(1));
}

// How many of `count` rows are in each bag, as a column.
Tensor counts_of(const Tensor& starts, int64_t count) {
  Tensor begins = ops::sort.multi<2>(starts, int64_t{0})[0];
  Tensor end = ops::full(Dims{1}, Scalar(count), DType::Int64, starts.device());
  const std::vector<Tensor> ends{ops::slice(begins, int64_t{0}, int64_t{1}, starts.numel(), int64_t{1}), end};
  return ops::unsqueeze(ops::sub(ops::cat(ends, int64_t{0}), begins), int64_t{-1});
}

// The same of those that are kept, which have ones.
Tensor kept_counts(const Tensor& kept, const Tensor& bags, int64_t n) {
  Tensor zeros = ops::zeros(Dims{n}, DType::Int64, bags.device());
  return ops::unsqueeze(ops::index_add(zeros, int64_t{0}, bags, kept), int64_t{-1});
}

// --- sums of bags whose rows all count -------------------------------------------------------------------------------

const Op sums_op("_bag_sums"), table_gradient_op("_bag_sums_backward");

Tensor as_column(const Tensor& t) { return ops::unsqueeze(t, int64_t{-1}); }

Tensor bag_sums_rule(const Tensor& weight, const Tensor& indices, const Tensor& starts, const Tensor& scale) {
  const bool fits = weight.ndim() == 2 && indices.ndim() == 1 && starts.ndim() == 1 &&
                    indices.dtype() == DType::Int64 && starts.dtype() == DType::Int64;
  TS_CHECK(
      fits && (!scale.defined() || (same(scale.sizes(), indices.sizes()) && scale.dtype() == weight.dtype())),
      kEmbeddingBagName,
      ": expected a table (num, dim), one-dimensional int64 indices and starts of bags, and per_sample_weights of the ",
      "table's dtype ", weight.dtype(), ", got ", weight.sizes(), ", ", indices.sizes(), ", ", starts.sizes());
  return outline(Dims{starts.numel(), weight.size(1)}, weight.dtype(), weight.device());
}
Tensor bag_sums(const Tensor& weight, const Tensor& indices, const Tensor& starts, const Tensor& scale) {
  static const Op embedding("embedding");
  Tensor bags = bags_of(starts, indices.numel());
  Tensor rows = embedding(indices, weight);
  if (scale.defined()) rows = ops::mul(rows, as_column(scale));
  Tensor zeros = ops::zeros(Dims{starts.numel(), weight.size(1)}, weight.dtype(), weight.device());
  return ops::index_add(zeros, int64_t{0}, bags, rows);
}

Tensor table_gradient_rule(const Tensor& grad, const Tensor& indices, const Tensor& starts, const Tensor& scale,
                           int64_t rows) {
  Tensor sums = bag_sums_rule(grad, indices, starts, scale);
  TS_CHECK(same(sums.sizes(), grad.sizes()) && rows >= 0, kEmbeddingBagName,
           ": expected a gradient of a row for each of ", starts.numel(), " bags, got ", grad.sizes());
  return outline(Dims{rows, grad.size(1)}, grad.dtype(), grad.device());
}
Tensor table_gradient(const Tensor& grad, const Tensor& indices, const Tensor& starts, const Tensor& scale,
                      int64_t rows) {
  static const Op embedding_backward("embedding_backward");
  Tensor each = ops::index_select(grad, int64_t{0}, bags_of(starts, indices.numel()));
  if (scale.defined()) each = ops::mul(each, as_column(scale));
  return embedding_backward(each, indices, rows, int64_t{-1});
}

// Of each position, the product of its row of the table with its bag's of the sums.
Tensor scale_gradient(const Tensor& table, const Tensor& indices, const Tensor& starts, const Tensor& sums) {
  int64_t across[] = {1};
  Tensor bags = bags_of(starts, indices.numel());
  Tensor rows = ops::index_select(table, int64_t{0}, indices), of_bags = ops::index_select(sums, int64_t{0}, bags);
  return ops::sum_dim(ops::mul(rows, of_bags), IntSpan(across));
}

// Each is the transpose of the other.
void bag_sums_gradient(GradContext& c) {
  Tensor indices = c.arg(1), starts = c.arg(2), scale = c.arg(3);
  if (c.needs(0)) c.set(0, table_gradient_op(c.grad(), indices, starts, scale, c.sizes(0)[0]));
  if (scale.defined() && c.needs(3)) c.set(3, scale_gradient(c.arg(0), indices, starts, c.grad()));
}
void table_gradient_gradient(GradContext& c) {
  Tensor indices = c.arg(1), starts = c.arg(2), scale = c.arg(3);
  if (c.needs(0)) c.set(0, sums_op(c.grad(), indices, starts, scale));
  if (scale.defined() && c.needs(3)) c.set(3, scale_gradient(c.grad(), indices, starts, c.arg(0)));
}

// --- maxima ----------------------------------------------------------------------------------------------------------

using Two = std::tuple<Tensor, Tensor>;
const Op maxima_op("_bag_maxima");

Two bag_maxima_rule(const Tensor& weight, const Tensor& indices, const Tensor& starts) {
  Tensor values = bag_sums_rule(weight, indices, starts, Tensor());
  return {values, outline(values.sizes(), DType::Int64, weight.device())};
}
// By the sorted order of each bag's rows: the first of those that equal the maximum.
Two bag_maxima(const Tensor& weight, const Tensor& indices, const Tensor& starts) {
  static const Op embedding("embedding"), index_reduce("index_reduce");
  const Dims sizes{starts.numel(), weight.size(1)};
  const int64_t count = indices.numel();
  Tensor bags = bags_of(starts, count);
  Tensor zeros = ops::zeros(sizes, weight.dtype(), weight.device()), rows = embedding(indices, weight);
  Tensor values = index_reduce(zeros, int64_t{0}, bags, rows, "amax", false);
  Tensor most = ops::index_select(values, int64_t{0}, bags);
  Tensor equals = ops::logical_or(ops::eq(rows, most), ops::logical_and(ops::ne(rows, rows), ops::ne(most, most)));
  Tensor place = as_column(ops::arange(int64_t{0}, count, int64_t{1}, DType::Int64, weight.device()));
  Tensor places = ops::where(equals, place, ops::full_like(place, Scalar(count)));
  Tensor none = ops::full_like(ops::zeros(sizes, DType::Int64, weight.device()), Scalar(count));
  Tensor first = index_reduce(none, int64_t{0}, bags, places, "amin", true);
  Tensor named = ops::cat(
      std::vector<Tensor>{indices, ops::full_like(ops::zeros(Dims{1}, DType::Int64, weight.device()), Scalar(-1))},
      int64_t{0});
  return {values, ops::reshape(ops::index_select(named, int64_t{0}, ops::reshape(first, Dims{-1})), sizes)};
}
void bag_maxima_gradient(GradContext& c) {
  Tensor where = c.result(1), grad = ops::masked_fill(c.grad(), ops::lt(where, 0), 0.0);
  Tensor zeros = ops::zeros(c.sizes(0), grad.dtype(), grad.device());
  c.set(0, ops::scatter_add(zeros, int64_t{0}, ops::clamp(where, Scalar(0)), grad));
}

// Without the rows in memory; undefined where they have to be: padding, means of halves.
Tensor reduce_at_once(const Tensor& at, const Tensor& weight, const Tensor& starts, const Tensor& scale,
                      const char* mode) {
  const bool mean = !std::strcmp(mode, "mean"), wide = accumulate_type(weight) == weight.dtype();
  if (!std::strcmp(mode, "max")) return std::get<0>(maxima_op.multi<2>(weight, at, starts));
  if ((mean && !wide) || (scale.defined() && scale.dtype() != weight.dtype())) return {};
  Tensor sums = sums_op(weight, at, starts, scale.defined() ? ops::reshape(scale, Dims{-1}) : Tensor());
  return mean ? ops::div(sums, ops::clamp(counts_of(starts, at.numel()), Scalar(1))) : sums;
}

// `kept` is 1 for rows that count and 0 for padding; undefined where all do.
Tensor reduce_bags(const Tensor& all_rows, const Tensor& kept, const Tensor& starts, const char* mode) {
  static const Op index_reduce("index_reduce");
  const int64_t n = starts.numel();
  Tensor bags = bags_of(starts, all_rows.size(0));
  bool maximum = !std::strcmp(mode, "max");
  Tensor rows = all_rows, padding = kept.defined() ? ops::unsqueeze(ops::eq(kept, 0), int64_t{-1}) : Tensor();
  if (kept.defined()) rows = ops::masked_fill(rows, padding, maximum ? -std::numeric_limits<double>::infinity() : 0.0);
  // Of halves, the sum of a bag may be too large although its mean is not.
  if (!std::strcmp(mode, "mean")) rows = ops::to_dtype(rows, accumulate_type(rows));
  Tensor zeros = ops::zeros(Dims{n, rows.size(1)}, rows.dtype(), rows.device());
  if (maximum) {
    Tensor most = index_reduce(zeros, int64_t{0}, bags, rows, "amax", false);
    return kept.defined() ? ops::masked_fill(most, ops::eq(kept_counts(kept, bags, n), 0), 0.0) : most;
  }
  Tensor sums = ops::index_add(zeros, int64_t{0}, bags, rows);
  if (!std::strcmp(mode, "sum")) return sums;
  Tensor counts = kept.defined() ? kept_counts(kept, bags, n) : counts_of(starts, all_rows.size(0));
  Tensor means = ops::div(sums, ops::clamp(counts, Scalar(1)));
  return ops::to_dtype(means, all_rows.dtype());
}

// The same where every bag has as many rows, all of which count.
Tensor reduce_equal_bags(const Tensor& rows, IntSpan bags, const char* mode) {
  Tensor each = ops::reshape(rows, Dims{bags[0], bags[1], rows.size(1)});
  int64_t of_bag[] = {1};
  if (!std::strcmp(mode, "max")) return ops::amax(each, IntSpan(of_bag));
  return !std::strcmp(mode, "sum") ? ops::sum_dim(each, IntSpan(of_bag)) : ops::mean_dim(each, IntSpan(of_bag));
}

// Of bags that are the rows of a matrix.
Tensor row_starts(const Tensor& input) {
  Tensor rows = ops::arange(int64_t{0}, input.size(0), int64_t{1}, DType::Int64, input.device());
  return ops::mul(rows, Scalar(input.size(1)));
}

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets, const char* mode,
                     const Tensor& sample_weights, bool include_last_offset, std::optional<int64_t> padding_idx) {
  static const Op embedding("embedding");
  embedding_bag_check_arguments(input, offsets, mode, sample_weights);
  TS_CHECK(!sample_weights.defined() || sample_weights.dtype() == weight.dtype(), kEmbeddingBagName,
           ": expected per_sample_weights to have the same type as weight, ", weight.dtype(), ", got ",
           sample_weights.dtype());
  TS_CHECK(weight.ndim() == 2, kEmbeddingBagName, ": 'weight' must be 2-D, got shape ", weight.sizes());
  int64_t n = offsets.defined() ? offsets.numel() - include_last_offset : input.size(0), table = weight.size(0);
  TS_CHECK(n >= 0, kEmbeddingBagName, ": include_last_offset needs at least one offset");
  Tensor at = ops::reshape(ops::to_dtype(input, DType::Int64), Dims{-1}), kept, scale = sample_weights, starts;
  if (offsets.defined()) {
    const int64_t end = checked_end(offsets, at.numel(), include_last_offset);
    if (end < at.numel() && scale.defined()) scale = ops::narrow(scale, int64_t{0}, int64_t{0}, end);
    at = ops::slice(at, int64_t{0}, int64_t{0}, end, int64_t{1});
    starts = ops::to_dtype(ops::slice(offsets, int64_t{0}, int64_t{0}, n, int64_t{1}), DType::Int64);
  } else {
    starts = row_starts(input);
  }
  const bool equal = !offsets.defined() && !padding_idx && input.numel() > 0;
  if (padding_idx) {
    TS_CHECK(*padding_idx >= -table && *padding_idx < table, kEmbeddingBagName,
             ": padding_idx must be within the number of embeddings, ", table, ", got ", *padding_idx);
    int64_t skip = *padding_idx < 0 ? *padding_idx + table : *padding_idx;
    kept = ops::to_dtype(ops::ne(at, Scalar(skip)), DType::Int64);
  }
  if (!kept.defined())
    if (Tensor sums = reduce_at_once(at, weight, starts, scale, mode); sums.defined()) return sums;
  Tensor rows = embedding(at, weight);
  if (scale.defined()) rows = ops::mul(rows, ops::reshape(scale, Dims{-1, 1}));
  if (equal) return reduce_equal_bags(rows, input.sizes(), mode);
  return reduce_bags(rows, kept, starts, mode);
}

} // namespace

TS_OPERATORS(embedding_bag) {
  def("_bag_maxima(Tensor weight, Tensor indices, Tensor starts) -> (Tensor, Tensor)")
      .rule<bag_maxima_rule>()
      .kernel("bag_maxima", "weight indices starts: contiguous", "")
      .decompose<bag_maxima>()
      .saves("result1")
      .gradient(bag_maxima_gradient)
      .hidden()
      .doc("Maxima of rows of weight (num, dim) at indices in bags that begin at starts (n): (n, dim), zero of empty "
           "bags, and the first row that has each, -1 of those.");
  def("_bag_sums(Tensor weight, Tensor indices, Tensor starts, Tensor? scale) -> Tensor")
      .rule<bag_sums_rule>()
      .kernel("bag_sums", "weight indices starts scale: contiguous", "")
      .decompose<bag_sums>()
      .saves("weight indices starts scale")
      .gradient(bag_sums_gradient)
      .hidden()
      .doc("Sums of rows of weight (num, dim) at indices, times scale, in bags that begin at starts (n): (n, dim).");
  def("_bag_sums_backward(Tensor grad, Tensor indices, Tensor starts, Tensor? scale, int rows) -> Tensor")
      .rule<table_gradient_rule>()
      .kernel("bag_sums_backward", "grad indices starts scale: contiguous", "rows")
      .decompose<table_gradient>()
      .saves("grad indices starts scale")
      .gradient(table_gradient_gradient)
      .hidden()
      .doc("Gradient of _bag_sums by its table: rows of grad added up by index.");
  def("embedding_bag(Tensor input, Tensor weight, Tensor? offsets=None, str mode='mean', Tensor? "
      "per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> Tensor")
      .facts("stored:none")
      .body<embedding_bag>()
      .hidden()
      .function_only()
      .in("nn.functional")
      .doc(
          "Sums, means or maxima of bags of rows of weight (num, dim): (bags, dim). A 2-D input is one bag per row; of "
          "a 1-D one offsets says where each bag starts. Empty bags are zero; padding_idx is left out.");
}

} // namespace ts
