// Order: sort, argsort, msort, topk, kthvalue, median.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/reduce/reduce_arrange.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kSortCode = "sorts along the last dim of a geometry in which that is the dim asked for";

using Pair = std::tuple<Tensor, Tensor>;
const KernelId kSort("sort"), kTopk("topk");

// With dim last. A 0-d tensor counts as one element of one dimension.
Tensor dim_last(const Tensor& t, int64_t d) {
  return t.ndim() ? raw_transpose(t, d, t.ndim() - 1) : raw_view(t, Dims{1});
}

void check_orderable(const Tensor& t, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_complex(t.dtype()), op, ": complex numbers have no order, got ",
                t.dtype());
}

// Selections, which PyTorch does not make of bool tensors either.
void check_selectable(const Tensor& t, const char* op) {
  check_orderable(t, op);
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_bool(t.dtype()), op, ": not implemented for bool; try .to(uint8)");
}

Pair sort_rule(const Tensor& self, int64_t dim, bool, std::optional<bool>) {
  check_orderable(self, "sort");
  wrap_dim(dim, self.ndim(), "sort");
  return {outline_like(self, self.dtype()), outline_like(self, DType::Int64)};
}
void sort(const Tensor& values, const Tensor& positions, const Tensor& self, int64_t dim, bool descending,
          std::optional<bool>) {
  int64_t d = wrap_dim(dim, self.ndim(), "sort");
  bool as_bytes = is_bool(self.dtype());
  Tensor in = as_bytes ? copy_as(self, DType::UInt8, MemoryFormat::Contiguous) : self;
  Tensor out = as_bytes ? empty_tensor(self.sizes(), DType::UInt8, self.device()) : values;
  Tensor to = dim_last(out, d), at = dim_last(positions, d), from = dim_last(in, d);
  Launch(kSort, self.device()).out(to).out(at).in(from).param(descending).run_required();
  if (as_bytes) raw_copy(values, out);
}

Tensor argsort_rule(const Tensor& self, int64_t dim, bool, bool) {
  check_orderable(self, "argsort");
  wrap_dim(dim, self.ndim(), "argsort");
  return outline_like(self, DType::Int64);
}
void argsort(const Tensor& positions, const Tensor& self, int64_t dim, bool descending, bool stable) {
  sort(empty_like_tensor(self, self.dtype()), positions, self, dim, descending, stable);
}

// The gradient of a selection along dim goes back to where the elements came from.
void selection_gradient(GradContext& c, int dim_argument) {
  Tensor zeros = ops::zeros(c.sizes(0), c.grad().dtype(), c.grad().device());
  c.set(0, ops::scatter_add(zeros, c.value<int64_t>(dim_argument), c.result(1), c.grad(0)));
}

Pair topk_rule(const Tensor& self, int64_t k, int64_t dim, bool, bool) {
  check_orderable(self, "topk");
  TS_CHECK(!is_bool(self.dtype()), "topk does not support bool dtypes; try .to(uint8)");
  int64_t d = wrap_dim(dim, self.ndim(), "topk");
  int64_t size = self.ndim() ? self.sizes()[d] : 1;
  TS_CHECK(k >= 0 && k <= size, "topk: selected index k out of range, got k = ", k, " for dimension ", d, " of size ",
           size);
  Dims sizes(self.sizes());
  if (self.ndim()) sizes[d] = k;
  return {outline(sizes, self.dtype(), self.device()), outline(sizes, DType::Int64, self.device())};
}

void topk(const Tensor& values, const Tensor& positions, const Tensor& self, int64_t k, int64_t dim, bool largest,
          bool sorted) {
  if (self.ndim() == 0 && k == 0) return;
  int64_t d = wrap_dim(dim, self.ndim(), "topk");
  bool last = self.ndim() == 0 || d == self.ndim() - 1;
  if (last && !is_bool(self.dtype())) {
    int64_t one = 1;
    IntSpan sizes = self.ndim() ? values.sizes() : IntSpan(&one, 1);
    Dims strides = contiguous_strides(sizes);
    Tensor from = raw_contiguous(dim_last(self, d));
    if (Launch(kTopk, self.device())
            .out(values, sizes, strides)
            .out(positions, sizes, strides)
            .in(from)
            .param(k)
            .param(from.ndim() - 1)
            .param(largest)
            .param(sorted)
            .run())
      return;
  }
  if (!last && !is_bool(self.dtype())) {
    // The kernel wants rows: along another dim it works on a transposed copy.
    Tensor to = dim_last(values, d), at = dim_last(positions, d), from = raw_contiguous(dim_last(self, d));
    Tensor found = empty_tensor(to.sizes(), to.dtype(), to.device()),
           where = empty_tensor(at.sizes(), at.dtype(), at.device());
    Launch launch(kTopk, self.device());
    launch.out(found).out(where).in(from).param(k).param(from.ndim() - 1).param(largest).param(sorted);
    if (launch.run()) {
      raw_copy(to, found);
      raw_copy(at, where);
      return;
    }
  }
  Tensor all = empty_like_tensor(self, self.dtype()), order = empty_like_tensor(self, DType::Int64);
  sort(all, order, self, d, largest, true);
  raw_copy(values, self.ndim() ? raw_narrow(all, d, 0, k) : all);
  raw_copy(positions, self.ndim() ? raw_narrow(order, d, 0, k) : order);
}

Tensor msort(const Tensor& self) { return ops::sort.multi<2>(self, 0)[0]; }

// --- elements of one rank
// Ranks that follow from the size, from how many are NaN, or from how many are equal.
constexpr int64_t kMiddle = -1, kMiddleOfNumbers = -2, kMode = -3;
const Op rank_positions_op("_rank_positions");

Tensor rank_positions_rule(const Tensor& self, int64_t rank) {
  const char* op = "_rank_positions";
  check_orderable(self, op);
  TS_CHECK(self.ndim() > 0 && rank >= kMode && rank < self.sizes().back(), op,
           ": expected a rank within the last dimension of sizes ", self.sizes(), ", got ", rank);
  Dims sizes(self.sizes());
  sizes.back() = 1;
  return outline(sizes, DType::Int64, self.device());
}

// In order, the place of each element in its run of equals; the first greatest ends the smallest most frequent run.
Tensor mode_positions(const Tensor& values, const Tensor& order) {
  static const Op cummax("cummax");
  int64_t d = values.ndim() - 1, size = values.sizes()[d];
  Tensor starts = ops::ne(ops::narrow(values, d, int64_t{1}, size - 1), ops::narrow(values, d, int64_t{0}, size - 1));
  Tensor place = counting(size, values.device());
  Tensor begin = ops::mul(ops::narrow(place, 0, int64_t{1}, size - 1), starts);
  Dims first(values.sizes());
  first[static_cast<size_t>(d)] = 1;
  const Tensor parts[] = {ops::zeros(first, DType::Int64, values.device()), begin};
  Tensor length = ops::sub(place, cummax.multi<2>(ops::cat(TensorList(parts), d), d)[0]);
  return ops::gather(order, d, ops::argmax(length, d, true));
}

// By a whole sort, where there is no kernel. NaN sorts last: with n of them the first is at size - n, and the rest's
// middle at (size - n - 1) / 2.
Tensor rank_positions(const Tensor& self, int64_t rank) {
  int64_t d = self.ndim() - 1, size = self.sizes()[d];
  auto [values, order] = ops::sort.multi<2>(self, d);
  if (rank == kMode) return mode_positions(values, order);
  if (rank >= 0 || !is_floating(self.dtype()))
    return ops::narrow(order, d, rank >= 0 ? rank : (size - 1) / 2, int64_t{1});
  static const Op halve("_lower_middle");
  Tensor nans = ops::sum_dim(ops::isnan(self), IntSpan(&d, 1), true);
  Tensor rest = ops::sub(filled({}, Scalar(size), DType::Int64, self.device()), nans), middle = halve(rest);
  Tensor at = rank == kMiddleOfNumbers ? middle : ops::where(ops::gt(nans, Scalar(0)), rest, middle);
  return ops::gather(order, d, at);
}

// Along any dim.
Tensor positions_of_rank(const Tensor& self, int64_t d, int64_t rank) {
  const int64_t last = self.ndim() - 1;
  if (d == last) return rank_positions_op(self, rank);
  Dims to_last(self.sizes().size()), back(to_last);
  for (int64_t k = 0; k <= last; ++k) {
    to_last[k] = k < d ? k : k == last ? d : k + 1;
    back[to_last[k]] = k;
  }
  return ops::permute(rank_positions_op(ops::permute(self, to_last), rank), back);
}

// The elements themselves, differentiable, and their positions.
Pair picked(const Tensor& self, int64_t d, const Tensor& positions, bool keepdim) {
  Tensor values = ops::gather(self, d, positions);
  if (keepdim) return {values, positions};
  return {ops::squeeze(values, IntSpan(&d, 1)), ops::squeeze(positions, IntSpan(&d, 1))};
}

// --- composites over sort
Pair kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  check_selectable(self, "kthvalue");
  int64_t d = wrap_dim(dim, self.ndim(), "kthvalue"), size = self.ndim() ? self.sizes()[d] : 1;
  TS_CHECK_INDEX(size > 0, "kthvalue: Expected reduction dim ", d, " to have non-zero size, got shape ", self.sizes());
  TS_CHECK(k >= 1 && k <= size, "kthvalue: selected number k out of range for dimension ", dim, ", got k = ", k,
           " for size ", size);
  if (self.ndim() == 0) {
    auto [value, position] = ops::sort.multi<2>(self, d);
    return {value, position};
  }
  return picked(self, d, positions_of_rank(self, d, k - 1), keepdim);
}

// The lower middle; NaN if there is any (or, ignoring them, the middle of the rest).
Pair median_dim(const Tensor& self, int64_t dim, bool keepdim, bool ignore_nan) {
  const char* op = ignore_nan ? "nanmedian" : "median";
  check_selectable(self, op);
  int64_t d = wrap_dim(dim, self.ndim(), op), size = self.ndim() ? self.sizes()[d] : 1;
  TS_CHECK_INDEX(size > 0, op, ": Expected reduction dim ", d, " to have non-zero size.");
  if (self.ndim() == 0) return {ops::clone(self), ops::zeros(IntSpan(), DType::Int64, self.device())};
  return picked(self, d, positions_of_rank(self, d, ignore_nan ? kMiddleOfNumbers : kMiddle), keepdim);
}

Pair mode(const Tensor& self, int64_t dim, bool keepdim) {
  check_orderable(self, "mode");
  int64_t d = wrap_dim(dim, self.ndim(), "mode"), size = self.ndim() ? self.sizes()[d] : 1;
  TS_CHECK_INDEX(size > 0, "mode: Expected reduction dim ", dim, " to have non-zero size.");
  if (self.ndim() == 0) return {ops::clone(self), ops::zeros(IntSpan(), DType::Int64, self.device())};
  Tensor ordered = is_bool(self.dtype()) ? ops::to_dtype(self, DType::UInt8) : self;
  return picked(self, d, positions_of_rank(ordered, d, kMode), keepdim);
}

template <bool ignore_nan> Pair median_along(const Tensor& self, int64_t dim, bool keepdim) {
  return median_dim(self, dim, keepdim, ignore_nan);
}
// The median of nothing: NaN, or what PyTorch makes of that as an integer.
Tensor nothing_between(const Tensor& self) {
  check_orderable(self, "median");
  if (is_floating(self.dtype())) return ops::mul(ops::sum(self), Scalar(std::nan("")));
  Scalar value(0);
  if (is_bool(self.dtype())) value = Scalar(true);
  if (self.dtype() == DType::Int32) value = Scalar(int64_t{INT32_MIN});
  if (self.dtype() == DType::Int64) value = Scalar(INT64_MIN);
  return ops::full(IntSpan(), value, self.dtype(), self.device());
}
Tensor middle_rule(const Tensor& self, bool ignore_nan) {
  check_selectable(self, ignore_nan ? "nanmedian" : "median");
  return outline(IntSpan(), self.dtype(), self.device());
}
void middle(const Tensor& out, const Tensor& self, bool ignore_nan) {
  raw_copy(out, std::get<0>(median_dim(ops::reshape(self, Dims{-1}), 0, false, ignore_nan)));
}
template <bool ignore_nan> Tensor median_all(const Tensor& self) {
  static const Op middle_of("_median");
  return self.numel() == 0 ? nothing_between(self) : middle_of(self, ignore_nan);
}

} // namespace

TS_OPERATORS(sort) {
  def("sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=False) -> (Tensor values, Tensor indices)")
      .rule<sort_rule>()
      .computation<sort, 2>(kSortCode)
      .saves("result1")
      .gradient([](GradContext& c) { selection_gradient(c, 1); })
      .out()
      .doc(
          "Elements in order along `dim`, and where they came from. Equal elements keep their order; NaN is greatest.");
  def("argsort(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> Tensor")
      .rule<argsort_rule>()
      .computation<argsort>(kSortCode)
      .not_differentiable()
      .doc("Positions that sort self along `dim`; equal elements keep their order.");
  def("msort(Tensor self) -> Tensor").body<msort>().out(kSameDtype).doc("self sorted along its first dimension.");
  def("topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)")
      .facts("kernel:topk")
      .rule<topk_rule>()
      .computation<topk, 2>(kSortCode)
      .saves("result1")
      .gradient([](GradContext& c) { selection_gradient(c, 2); })
      .out()
      .doc("The k largest (or smallest) elements along `dim`, and where they came from.");
  def("kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .facts("leaf")
      .body<kthvalue>()
      .out(kApart)
      .doc("The k-th smallest element along `dim`, counted from 1, and where it came from.");
  def("median(Tensor self) -> Tensor")
      .facts("leaf")
      .body<median_all<false>>()
      .doc("The lower of the middle elements of all; NaN if there is any.");
  def("_median(Tensor self, bool ignore_nan) -> Tensor")
      .rule<middle_rule>()
      .computation<middle>(kSortCode)
      .node_name("MedianBackward0")
      .saves("self result")
      .gradient(share_among_equals)
      .hidden()
      .doc("The median of all elements; equal ones share its gradient.");
  def("median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .body<median_along<false>>()
      .out()
      .doc("The lower of the middle elements along `dim`, and where it came from; NaN if there is any.");
  def("nanmedian(Tensor self) -> Tensor")
      .facts("leaf")
      .body<median_all<true>>()
      .doc("The lower of the middle elements that are not NaN.");
  def("nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .body<median_along<true>>()
      .out()
      .doc("The lower of the middle elements along `dim` that are not NaN, and where it came from.");
  def("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .facts("leaf")
      .body<mode>()
      .out()
      .doc("The most frequent element along `dim`, the smallest of several, and where it stands last.");
  def("_rank_positions(Tensor self, int rank) -> Tensor")
      .rule<rank_positions_rule>()
      .kernel("rank_positions", "self: contiguous", "rank")
      .decompose<rank_positions>()
      .not_differentiable()
      .hidden()
      .doc("Where along the last dim the element of a rank is, counted from 0; of rank -1 the median, -2 that of "
           "numbers, -3 the mode.");
  def("_lower_middle(Tensor self) -> Tensor")
      .pointwise("max(floordiv(self - 1, 2), 0)")
      .promote(Promote::Keep)
      .not_differentiable()
      .hidden()
      .doc("Rank of the lower middle of so many elements.");
}

} // namespace ts
