// scatter_reduce, index_reduce and scatter with a reduction, with all their gradients.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/index/gather_scatter.h"
#include "runtime/computed_dtypes.h"
#include <string_view>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kScatterReduceCode = "combines by the entry point scatter, counting for means";

enum class Reduction { Sum, Prod, Mean, Max, Min };

Reduction parse(const char* reduce, const char* op) {
  std::string_view r = reduce ? reduce : "";
  if (r == "sum" || r == "add") return Reduction::Sum;
  if (r == "prod" || r == "multiply") return Reduction::Prod;
  if (r == "mean") return Reduction::Mean;
  if (r == "amax") return Reduction::Max;
  if (r == "amin") return Reduction::Min;
  fail(ErrorKind::Runtime, op, ": reduce argument must be either sum, prod, mean, amax or amin, got ", r);
}

int opcode_of(Reduction r) {
  switch (r) {
  case Reduction::Prod: return TS_S_PROD;
  case Reduction::Max: return TS_S_MAX;
  case Reduction::Min: return TS_S_MIN;
  default: return TS_S_ADD;
  }
}

const Op fill_op("scatter.value"), primitive("_scatter_reduce"), round_down("_floor_divide_counts");

Tensor constant_at(const Tensor& index, DType t, int value) {
  return raw_expand(filled({}, Scalar(value), t, index.device()), index.sizes(), "scatter_reduce");
}

void check_operands(const Tensor& self, int64_t d, const Tensor& index, const Tensor& src) {
  const char* op = "scatter_reduce";
  if (index.numel()) check_index_dtype(index, op);
  check_same_device(self, index, op);
  check_same_device(self, src, op);
  check_same_dtype(self, src, op);
  if (index.numel() == 0) return;
  int64_t ndim = std::max<int64_t>(self.ndim(), 1);
  TS_CHECK(std::max<int64_t>(index.ndim(), 1) == ndim && std::max<int64_t>(src.ndim(), 1) == ndim, op,
           ": Index tensor must have the same number of dimensions as self and src, got ", index.sizes(), ", ",
           self.sizes(), " and ", src.sizes());
  const auto extent = [](const Tensor& t, int64_t k) { return t.ndim() ? t.sizes()[k] : 1; };
  for (int64_t k = 0; k < ndim; ++k) {
    const int64_t n = extent(index, k), room = extent(self, k), have = extent(src, k);
    TS_CHECK((k == d || n <= room) && n <= have, op, ": Expected index ", index.sizes(), " to be no larger than self ",
             self.sizes(), " apart from dimension ", d, " and to be no larger size than src ", src.sizes());
  }
  check_room(self, d, index.numel(), op);
}

// The public form narrows src to the index.
Tensor scatter_reduce_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, const char* reduce,
                           bool) {
  parse(reduce, "scatter_reduce");
  check_operands(self, wrap_dim(dim, self.ndim(), "scatter_reduce"), index, src);
  TS_CHECK(index.numel() == 0 || same(src.sizes(), index.sizes()), "_scatter_reduce: expected src of index's sizes ",
           index.sizes(), ", got ", src.sizes());
  return outline(self.sizes(), self.dtype(), self.device());
}
void scatter_reduce(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                    const char* reduce, bool include_self) {
  Reduction r = parse(reduce, "scatter_reduce");
  int64_t d = wrap_dim(dim, self.ndim(), "scatter_reduce");
  const DType wide = accumulate_type(self);
  if (r == Reduction::Mean && wide != self.dtype() && index.numel()) { // its sums may be more than halves hold
    Tensor means = empty_tensor(self.sizes(), wide, self.device());
    scatter_reduce(means, raw_cast(self, wide), d, index, raw_cast(src, wide), reduce, include_self);
    return raw_copy(out, means);
  }
  raw_copy(out, self);
  if (index.numel() == 0) return;
  if (!include_self) {
    // Start from a neutral element; for the extremes, from any element of src itself.
    if (r == Reduction::Max || r == Reduction::Min)
      scatter_into(out, d, index, src, TS_S_SET);
    else
      scatter_into(out, d, index, constant_at(index, self.dtype(), r == Reduction::Prod), TS_S_SET);
  }
  scatter_into(out, d, index, src, opcode_of(r));
  if (r != Reduction::Mean) return;
  bool whole = is_integral(self.dtype(), true);
  DType counts_dtype = whole ? DType::Int64 : is_complex(self.dtype()) ? real_type(self.dtype()) : self.dtype();
  Tensor counts = filled(self.sizes(), Scalar(include_self ? 1 : 0), counts_dtype, self.device());
  scatter_into(counts, d, index, constant_at(index, counts_dtype, 1), TS_S_ADD);
  counts = ops::clamp(counts, Scalar(1));
  raw_copy(out, whole ? round_down(out, counts) : ops::div(out, counts));
}

struct Saved {
  Tensor grad, self, index, src, result;
  int64_t dim;
  bool include_self;
  Tensor at(const Tensor& t) const { return ops::gather(t, dim, index); }
};

// Where a factor is zero the product of the others is computed without it.
std::pair<Tensor, Tensor> prod_gradient(const Saved& s) {
  Tensor self_zero = ops::eq(s.self, Scalar(0));
  Tensor safe_self = ops::masked_fill(s.self, self_zero, Scalar(1));
  Tensor without_self = primitive(safe_self, s.dim, s.index, s.src, "prod", s.include_self);
  Tensor grad_self = ops::div(ops::mul(s.grad, without_self), safe_self);
  Tensor src_zero = ops::eq(s.src, Scalar(0));
  Tensor zeros_there =
      s.at(ops::scatter_add(ops::zeros_like(s.self), s.dim, s.index, ops::to_dtype(src_zero, s.self.dtype())));
  Tensor only_zero = ops::logical_and(src_zero, ops::eq(zeros_there, Scalar(1)));
  Tensor masked_src = ops::masked_fill(s.src, only_zero, Scalar(1));
  Tensor masked_result = primitive(s.self, s.dim, s.index, masked_src, "prod", s.include_self);
  Tensor others = ops::div(s.at(ops::mul(s.grad, s.result)), ops::masked_fill(s.src, src_zero, Scalar(1)));
  return {grad_self, ops::where(only_zero, s.at(ops::mul(s.grad, masked_result)), others)};
}

std::pair<Tensor, Tensor> mean_gradient(const Saved& s) {
  Tensor counts = ops::full(s.grad.sizes(), Scalar(s.include_self ? 1 : 0), DType::Int64, s.grad.device());
  Tensor ones = ops::full(s.index.sizes(), Scalar(1), DType::Int64, s.grad.device());
  counts = ops::clamp(ops::scatter_add(counts, s.dim, s.index, ones), Scalar(1));
  Tensor shared = ops::div(s.grad, counts);
  return {shared, s.at(shared)};
}

// Elements equal to the extreme share its gradient evenly.
std::pair<Tensor, Tensor> extreme_gradient(const Saved& s) {
  DType t = accumulate_type(s.grad); // of hits, halves would lose count
  Tensor self_hit = ops::to_dtype(ops::eq(s.self, s.result), t);
  if (!s.include_self) self_hit = fill_op(self_hit, s.dim, s.index, Scalar(0));
  Tensor src_hit = ops::to_dtype(ops::eq(s.src, s.at(s.result)), t);
  Tensor count = ops::scatter_add(self_hit, s.dim, s.index, src_hit);
  Tensor share = ops::div(s.grad, ops::clamp(count, Scalar(1)));
  auto as_grad = [&](const Tensor& g) { return ops::to_dtype(g, s.grad.dtype()); };
  return {as_grad(ops::mul(self_hit, share)), as_grad(ops::mul(src_hit, s.at(share)))};
}

void scatter_reduce_gradient(GradContext& c) {
  Reduction r = parse(c.value<const char*>(4), "scatter_reduce");
  Saved s{c.grad(), c.arg(0), c.arg(2), c.arg(3), c.result(), c.value<int64_t>(1), c.value<bool>(5)};
  std::pair<Tensor, Tensor> g;
  switch (r) {
  case Reduction::Sum: g = {s.grad, s.at(s.grad)}; break;
  case Reduction::Prod: g = prod_gradient(s); break;
  case Reduction::Mean: g = mean_gradient(s); break;
  default: g = extreme_gradient(s); break;
  }
  if (!s.include_self) g.first = fill_op(g.first, s.dim, s.index, Scalar(0));
  c.set(0, g.first);
  c.set(3, g.second);
}

Tensor scatter_reduce_two(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, const char* reduce,
                          bool include_self) {
  parse(reduce, "scatter_reduce");
  int64_t d = wrap_dim(dim, self.ndim(), "scatter_reduce");
  check_operands(self, d, index, src);
  if (index.numel() == 0) return ops::scatter_add(self, d, index, src); // self's values, and src in the graph
  Tensor from = src;
  for (int64_t k = 0; k < src.ndim(); ++k)
    if (int64_t n = index.ndim() ? index.sizes()[k] : 1; n != src.sizes()[k]) from = ops::narrow(from, k, 0, n);
  if (from.ndim() != index.ndim()) from = ops::reshape(from, index.sizes());
  return primitive(self, d, index, from, reduce, include_self);
}

// scatter(reduce="add" or "multiply"), the older spelling.
const char* older(const char* reduce) {
  std::string_view r = reduce ? reduce : "";
  TS_CHECK(r == "add" || r == "multiply", "scatter: reduce argument must be either add or multiply, got ", r);
  return r == "add" ? "sum" : "prod";
}
Tensor scatter_with(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, const char* reduce) {
  return scatter_reduce_two(self, dim, index, src, older(reduce), true);
}
Tensor scatter_value_with(const Tensor& self, int64_t dim, const Tensor& index, Scalar value, const char* reduce) {
  Tensor src = ops::full(index.sizes(), convert_scalar(value, self.dtype(), "scatter"), self.dtype(), self.device());
  return scatter_reduce_two(self, dim, index, src, older(reduce), true);
}

Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const char* reduce,
                    bool include_self) {
  std::string_view r = reduce ? reduce : "";
  TS_CHECK(r == "prod" || r == "mean" || r == "amax" || r == "amin",
           "index_reduce: reduce argument must be either prod, mean, amax or amin, got ", r);
  const int64_t d = check_slices(self, dim, index, source, "index_reduce");
  Dims shape(self.sizes().size(), 1);
  if (self.ndim()) shape[d] = index.numel();
  Tensor at = ops::expand(ops::reshape(index, shape), source.sizes());
  return scatter_reduce_two(self, d, at, source, reduce, include_self);
}

} // namespace

TS_OPERATORS(scatter_reduce) {
  def("_scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, bool include_self) -> Tensor")
      .rule<scatter_reduce_rule>()
      .computation<scatter_reduce>(kScatterReduceCode)
      .saves("self index src result")
      .gradient(scatter_reduce_gradient)
      .hidden()
      .doc("scatter_reduce with src of index's sizes.");
  def("scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> "
      "Tensor")
      .facts("leaf stored:none")
      .body<scatter_reduce_two>()
      .inplace()
      .out()
      .doc("self with the elements of src at index along `dim` reduced into it: sum, prod, mean, amax or amin.");
  def("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor")
      .body<scatter_with>()
      .inplace()
      .out(kSameDtype)
      .doc("scatter_reduce with reduce 'add' or 'multiply'.");
  def("scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor")
      .body<scatter_value_with>()
      .inplace()
      .out(kSameDtype)
      .doc("scatter_reduce of one value with reduce 'add' or 'multiply'.");
  def("index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> "
      "Tensor")
      .facts("leaf stored:none")
      .body<index_reduce>()
      .inplace()
      .out()
      .doc("self with slices of source reduced into it at index along `dim`: prod, mean, amax or amin.");
  def("_floor_divide_counts(Tensor self, Tensor counts) -> Tensor")
      .pointwise("floordiv(self, counts)")
      .promote(Promote::Arith)
      .not_differentiable()
      .hidden()
      .doc("Integer means, rounded down.");
}

} // namespace ts
