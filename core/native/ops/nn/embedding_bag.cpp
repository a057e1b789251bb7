// Sums, means and maxima of bags of rows of a table.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "runtime/backend.h"
#include <cstring>
#include <limits>

namespace ts {
namespace {

const char* const kName = "embedding_bag";

void check_arguments(const Tensor& input, const Tensor& offsets, const char* mode, const Tensor& weights) {
  auto integral = [](const Tensor& t) { return t.dtype() == DType::Int64 || t.dtype() == DType::Int32; };
  TS_CHECK(integral(input), kName, ": expected int64 or int32 indices, got ", input.dtype());
  bool one_row_each = input.ndim() == 2;
  TS_CHECK_VALUE(one_row_each || input.ndim() == 1, kName, ": input has to be 1D or 2D Tensor, but got Tensor of ",
                 "dimension ", input.ndim());
  TS_CHECK_VALUE(!one_row_each || !offsets.defined(), kName,
                 ": if input is 2D, then offsets has to be None, as input "
                 "is treated as a mini-batch of fixed length sequences");
  TS_CHECK_VALUE(one_row_each || (offsets.defined() && offsets.ndim() == 1 && integral(offsets)), kName,
                 ": expected offsets to be a 1D Tensor of int64 or int32 beside a 1D input");
  TS_CHECK_VALUE(!std::strcmp(mode, "sum") || !std::strcmp(mode, "mean") || !std::strcmp(mode, "max"), kName,
                 ": mode has to be one of sum, mean or max, got ", mode);
  if (!weights.defined()) return;
  TS_CHECK_KIND(ErrorKind::NotImplemented, !std::strcmp(mode, "sum"), kName,
                ": per_sample_weights was not None, but mode is not 'sum' (got ", mode, ")");
  TS_CHECK_VALUE(same(weights.sizes(), input.sizes()), kName, ": expected per_sample_weights of the shape of input, ",
                 input.sizes(), ", got ", weights.sizes());
}

int64_t host_offset(const Tensor& offsets, int64_t k) { return host_number(ops::select(offsets, int64_t{0}, k)); }

// Where the rows of bags end among n: at the last offset, if that is no bag's start.
int64_t checked_end(const Tensor& offsets, int64_t n, bool include_last_offset) {
  TS_CHECK(n == 0 || offsets.numel() > 0, kName, ": expected offsets of at least one bag, got none");
  if (offsets.device().is_meta() || offsets.numel() == 0) return n;
  const int64_t first = host_offset(offsets, 0), last = host_offset(offsets, offsets.numel() - 1);
  TS_CHECK(first == 0, kName,
           ": offsets[0] has to be 0, i.e. the first sequence in the mini-batch has to start from position 0. "
           "However, got ",
           first);
  TS_CHECK(last >= 0 && last <= n, kName, ": offsets[-1] can not be greater than input's length ", n, ", but got ",
           last);
  return include_last_offset ? last : n;
}

// The bag of each of n positions: the last one that starts at or before it.
Tensor bags_of(const Tensor& starts, int64_t n) {
  static const Op search("searchsorted.Tensor");
  return ops::sub(search(ops::to_dtype(starts, DType::Int64),
                         ops::arange(int64_t{0}, n, int64_t{1}, DType::Int64, starts.device()), false, true),
                  Scalar(1));
}

// How many rows each bag keeps, as a column.
Tensor counts_of(const Tensor& kept, const Tensor& bags, int64_t n) {
  Tensor zeros = ops::zeros(Dims{n}, DType::Int64, bags.device());
  Tensor ones = kept.defined() ? kept : ops::ones(bags.sizes(), DType::Int64, bags.device());
  return ops::unsqueeze(ops::index_add(zeros, int64_t{0}, bags, ones), int64_t{-1});
}

// `kept` is 1 for rows that count and 0 for padding; undefined where all do.
Tensor reduce_bags(const Tensor& all_rows, const Tensor& kept, const Tensor& bags, int64_t n, const char* mode) {
  static const Op index_reduce("index_reduce");
  bool maximum = !std::strcmp(mode, "max");
  Tensor rows = all_rows, padding = kept.defined() ? ops::unsqueeze(ops::eq(kept, 0), int64_t{-1}) : Tensor();
  if (kept.defined()) rows = ops::masked_fill(rows, padding, maximum ? -std::numeric_limits<double>::infinity() : 0.0);
  // Of halves, the sum of a bag may be too large although its mean is not.
  if (!std::strcmp(mode, "mean")) rows = ops::to_dtype(rows, accumulate_type(rows.dtype()));
  Tensor zeros = ops::zeros(Dims{n, rows.size(1)}, rows.dtype(), rows.device());
  if (maximum) {
    Tensor most = index_reduce(zeros, int64_t{0}, bags, rows, "amax", false);
    return kept.defined() ? ops::masked_fill(most, ops::eq(counts_of(kept, bags, n), 0), 0.0) : most;
  }
  Tensor sums = ops::index_add(zeros, int64_t{0}, bags, rows);
  if (!std::strcmp(mode, "sum")) return sums;
  Tensor means = ops::div(sums, ops::clamp(counts_of(kept, bags, n), Scalar(1)));
  return ops::to_dtype(means, all_rows.dtype());
}

// The same where every bag has as many rows, all of which count.
Tensor reduce_equal_bags(const Tensor& rows, IntSpan bags, const char* mode) {
  Tensor each = ops::reshape(rows, Dims{bags[0], bags[1], rows.size(1)});
  int64_t of_bag[] = {1};
  if (!std::strcmp(mode, "max")) return ops::amax(each, IntSpan(of_bag));
  return !std::strcmp(mode, "sum") ? ops::sum_dim(each, IntSpan(of_bag)) : ops::mean_dim(each, IntSpan(of_bag));
}

Tensor bags_of_rows(const Tensor& input) {
  int64_t sizes[] = {input.size(0), input.size(1)};
  Tensor column =
      ops::unsqueeze(ops::arange(int64_t{0}, sizes[0], int64_t{1}, DType::Int64, input.device()), int64_t{1});
  return ops::reshape(ops::expand(column, IntSpan(sizes)), Dims{-1});
}

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets, const char* mode,
                     const Tensor& sample_weights, bool include_last_offset, std::optional<int64_t> padding_idx) {
  static const Op embedding("embedding");
  check_arguments(input, offsets, mode, sample_weights);
  TS_CHECK(weight.ndim() == 2, kName, ": 'weight' must be 2-D, got shape ", weight.sizes());
  int64_t n = offsets.defined() ? offsets.numel() - include_last_offset : input.size(0), table = weight.size(0);
  TS_CHECK(n >= 0, kName, ": include_last_offset needs at least one offset");
  Tensor at = ops::reshape(ops::to_dtype(input, DType::Int64), Dims{-1}), kept, scale = sample_weights,
         starts = offsets;
  if (offsets.defined()) {
    const int64_t end = checked_end(offsets, at.numel(), include_last_offset);
    if (end < at.numel() && scale.defined()) scale = ops::narrow(scale, int64_t{0}, int64_t{0}, end);
    at = ops::slice(at, int64_t{0}, int64_t{0}, end, int64_t{1});
    starts = ops::slice(offsets, int64_t{0}, int64_t{0}, n, int64_t{1});
  }
  const bool equal = !offsets.defined() && !padding_idx && input.numel() > 0;
  if (padding_idx) {
    TS_CHECK(*padding_idx >= -table && *padding_idx < table, kName,
             ": padding_idx must be within the number of embeddings, ", table, ", got ", *padding_idx);
    int64_t skip = *padding_idx < 0 ? *padding_idx + table : *padding_idx;
    kept = ops::to_dtype(ops::ne(at, Scalar(skip)), DType::Int64);
  }
  Tensor rows = embedding(at, weight);
  if (scale.defined()) rows = ops::mul(rows, ops::reshape(scale, Dims{-1, 1}));
  if (equal) return reduce_equal_bags(rows, input.sizes(), mode);
  return reduce_bags(rows, kept, offsets.defined() ? bags_of(starts, at.numel()) : bags_of_rows(input), n, mode);
}

} // namespace

TS_OPERATORS(embedding_bag) {
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
