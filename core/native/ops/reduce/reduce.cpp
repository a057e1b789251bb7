// Sums, means, products and truth over dimensions.
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/pointwise/fused_programs.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kReduceCode = "reduces the dims in an arrangement that the entry point takes";

using OptionalDims = std::optional<IntSpan>;

DType sum_dtype(const Tensor& self, DType asked) {
  if (asked != DType::Undefined) return asked;
  return is_integral(self.dtype(), true) ? DType::Int64 : self.dtype();
}

// Sums and products.
void accumulate_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims) {
  if (casts_addends(out.dtype(), self.dtype())) return reduce_into(out, opcode, raw_cast(self, out.dtype()), dims);
  reduce_into(out, opcode, self, dims);
}

constexpr const char* name_of(int opcode) {
  return opcode == TS_R_SUM ? "sum" : opcode == TS_R_PROD ? "prod" : opcode == TS_R_ANY ? "any" : "all";
}

template <int Opcode> Tensor total_rule(const Tensor& self, DType dtype) {
  return reduce_outline(name_of(Opcode), Opcode, self, all_dims(self.ndim()), false, sum_dtype(self, dtype));
}
template <int Opcode> void total(const Tensor& out, const Tensor& self, DType) {
  accumulate_into(out, Opcode, self, all_dims(self.ndim()));
}
// D: one dim, or a list that may be missing.
template <int Opcode, class D> Tensor along_rule(const Tensor& self, D dim, bool keepdim, DType dtype) {
  const char* op = name_of(Opcode);
  return reduce_outline(op, Opcode, self, dim_set(dim, self.ndim(), op), keepdim, sum_dtype(self, dtype));
}
template <int Opcode, class D> void reduce_along(const Tensor& out, const Tensor& self, D dim, bool, DType) {
  accumulate_into(out, Opcode, self, dim_set(dim, self.ndim(), name_of(Opcode)));
}

void sum_gradient(GradContext& c) { c.set(0, expand_reduced(as_dtype(c.grad(), c.dtype(0)), c.sizes(0), 0, false)); }
void sum_dim_gradient(GradContext& c) {
  IntSpan sizes = c.sizes(0);
  DimSet dims = dim_set(c.value<OptionalDims>(1), static_cast<int64_t>(sizes.size()), "sum");
  c.set(0, expand_reduced(as_dtype(c.grad(), c.dtype(0)), sizes, dims, c.value<bool>(2)));
}

Tensor mean_outline(const Tensor& self, DimSet dims, bool keepdim, DType asked) {
  DType dtype = asked == DType::Undefined ? self.dtype() : asked;
  TS_CHECK(!is_integral(dtype, true),
           "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: ",
           dtype, "; give dtype= a floating one");
  return reduce_outline("mean", TS_R_SUM, self, dims, keepdim, dtype);
}
// Half types are summed and divided in float32: the sum alone may overflow.
void mean_into(const Tensor& out, const Tensor& self, DimSet dims) {
  DType wide = accumulate_type(out);
  Tensor total = wide == out.dtype() ? out : empty_tensor(out.sizes(), wide, out.device());
  accumulate_into(total, TS_R_SUM, self, dims);
  ops::div_(total, static_cast<double>(reduced_count(self.sizes(), dims)));
  if (!total.is(out)) raw_copy(out, total);
}

Tensor mean_rule(const Tensor& self, DType dtype) { return mean_outline(self, all_dims(self.ndim()), false, dtype); }
void mean(const Tensor& out, const Tensor& self, DType) { mean_into(out, self, all_dims(self.ndim())); }
Tensor mean_dim_rule(const Tensor& self, OptionalDims dim, bool keepdim, DType dtype) {
  return mean_outline(self, dim_set(dim, self.ndim(), "mean"), keepdim, dtype);
}
void mean_dim(const Tensor& out, const Tensor& self, OptionalDims dim, bool, DType) {
  mean_into(out, self, dim_set(dim, self.ndim(), "mean"));
}

void spread_mean(GradContext& c, DimSet dims, bool keepdim) {
  double count = static_cast<double>(reduced_count(c.sizes(0), dims));
  Tensor share = ops::div(as_dtype(c.grad(), c.dtype(0)), count);
  c.set(0, expand_reduced(share, c.sizes(0), dims, keepdim));
}
void mean_gradient(GradContext& c) { spread_mean(c, all_dims(static_cast<int64_t>(c.sizes(0).size())), false); }
void mean_dim_gradient(GradContext& c) {
  int64_t ndim = static_cast<int64_t>(c.sizes(0).size());
  spread_mean(c, dim_set(c.value<OptionalDims>(1), ndim, "mean"), c.value<bool>(2));
}

// Products of all elements before each one along the last dim: 1, x0, x0 x1, ...
Tensor products_before(const Tensor& x) {
  int64_t n = x.size(-1);
  Dims one(x.sizes());
  one.back() = 1;
  std::vector<Tensor> parts = {filled(one, 1, x.dtype(), x.device())};
  if (n > 1) parts.push_back(ops::cumprod(ops::narrow(x, int64_t{-1}, int64_t{0}, n - 1), int64_t{-1}));
  return ops::cat(parts, int64_t{-1});
}

// The derivative by each element is the product of all others: those before times those after, so zeros are safe.
Tensor product_of_others(const Tensor& x) {
  int64_t last[] = {-1};
  Tensor after = ops::flip(products_before(ops::flip(x, IntSpan(last))), IntSpan(last));
  return ops::mul(products_before(x), after);
}

void prod_gradient(GradContext& c) {
  Tensor x = conjugate(as_dtype(c.arg(0), c.grad().dtype()));
  if (x.numel() == 0) return c.set(0, filled(c.sizes(0), 0, c.dtype(0), x.device()));
  int64_t flat[] = {-1};
  Tensor others = ops::reshape(product_of_others(ops::reshape(x, IntSpan(flat))), c.sizes(0));
  c.set(0, as_dtype(ops::mul(c.grad(), others), c.dtype(0)));
}
void prod_dim_gradient(GradContext& c) {
  Tensor x = conjugate(as_dtype(c.arg(0), c.grad().dtype()));
  int64_t ndim = x.ndim(), dim = wrap_dim(c.value<int64_t>(1), ndim, "prod");
  if (ndim == 0 || x.numel() == 0)
    return c.set(
        0, as_dtype(expand_reduced(c.grad(), c.sizes(0), dim_set(dim, ndim, "prod"), c.value<bool>(2)), c.dtype(0)));
  Tensor others = ops::transpose(product_of_others(ops::transpose(x, dim, int64_t{-1})), dim, int64_t{-1});
  Tensor grad = restore_dims(c.grad(), c.sizes(0), DimSet{1} << dim, c.value<bool>(2));
  c.set(0, as_dtype(ops::mul(grad, others), c.dtype(0)));
}

// PyTorch's any and all give uint8 for uint8.
DType truth_dtype(const Tensor& self) { return self.dtype() == DType::UInt8 ? DType::UInt8 : DType::Bool; }
void truth_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims) {
  if (out.dtype() == DType::Bool) return reduce_into(out, opcode, self, dims);
  Tensor truth = empty_tensor(out.sizes(), DType::Bool, out.device());
  reduce_into(truth, opcode, self, dims);
  raw_copy(out, truth);
}
template <int Opcode> Tensor truth_rule(const Tensor& self) {
  return reduce_outline(name_of(Opcode), Opcode, self, all_dims(self.ndim()), false, truth_dtype(self));
}
template <int Opcode> void truth(const Tensor& out, const Tensor& self) {
  truth_into(out, Opcode, self, all_dims(self.ndim()));
}
// No dims at all mean just that here, where the sums and means take them for all.
DimSet truth_dims(OptionalDims dim, int64_t ndim, const char* op) {
  return dim && dim->empty() ? 0 : dim_set(dim, ndim, op);
}
template <int Opcode> Tensor truth_along_rule(const Tensor& self, OptionalDims dim, bool keepdim) {
  const char* op = name_of(Opcode);
  return reduce_outline(op, Opcode, self, truth_dims(dim, self.ndim(), op), keepdim, truth_dtype(self));
}
template <int Opcode> void truth_along(const Tensor& out, const Tensor& self, OptionalDims dim, bool) {
  truth_into(out, Opcode, self, truth_dims(dim, self.ndim(), name_of(Opcode)));
}

Tensor count_nonzero_rule(const Tensor& self, OptionalDims dim) {
  DimSet dims = dim_set(dim, self.ndim(), "count_nonzero");
  return reduce_outline("count_nonzero", TS_R_SUM, self, dims, false, DType::Int64);
}
void count_nonzero(const Tensor& out, const Tensor& self, OptionalDims dim) {
  Tensor nonzero = self.dtype() == DType::Bool ? self : ops::ne(self, 0);
  reduce_into(out, TS_R_SUM, nonzero, dim_set(dim, self.ndim(), "count_nonzero"));
}

Tensor numbers_rule(const Tensor& self, OptionalDims dim, bool keepdim, DType dtype) {
  return reduce_outline("nansum", TS_R_SUM, self, dim_set(dim, self.ndim(), "nansum"), keepdim, sum_dtype(self, dtype));
}
void sum_numbers(const Tensor& out, const Tensor& self, OptionalDims dim, bool, DType) {
  DimSet dims = dim_set(dim, self.ndim(), "nansum");
  DType wide = accumulate_type(out);
  Tensor x = casts_addends(out.dtype(), self.dtype()) ? raw_cast(self, out.dtype()) : self;
  Tensor total = wide == out.dtype() ? out : empty_tensor(out.sizes(), wide, out.device());
  if (!reduce_program_into(total, TS_R_SUM, x, dims, program_of("select(x != x, 0, x)")))
    reduce_into(total, TS_R_SUM, ops::masked_fill(x, ops::isnan(x), 0.0), dims);
  if (!total.is(out)) raw_copy(out, total);
}
void sum_numbers_gradient(GradContext& c) {
  DimSet dims = dim_set(c.value<OptionalDims>(1), static_cast<int64_t>(c.sizes(0).size()), "nansum");
  Tensor spread = expand_reduced(as_dtype(c.grad(), c.dtype(0)), c.sizes(0), dims, c.value<bool>(2));
  c.set(0, ops::mul(spread, ops::logical_not(ops::isnan(c.arg(0))))); // a NaN that comes is not hidden
}
const Op kSumNumbers("_nansum");

// Integers hold no NaN; they are summed as they are.
Tensor nansum(const Tensor& self, OptionalDims dim, bool keepdim, DType dtype) {
  if (is_floating(self.dtype()) && (dtype == DType::Undefined || is_floating(dtype)))
    return kSumNumbers(self, dim, keepdim, dtype);
  Tensor x = is_integral(self.dtype(), true) ? self : ops::masked_fill(self, ops::isnan(self), 0.0);
  return ops::sum_dim(x, dim, keepdim, dtype);
}
Tensor nanmean(const Tensor& self, OptionalDims dim, bool keepdim, DType dtype) {
  TS_CHECK(!is_integral(self.dtype(), true), "nanmean: expected input to have floating point or complex dtype but got ",
           self.dtype());
  const DType asked = dtype == DType::Undefined ? self.dtype() : dtype;
  // Of halves, the sum may be more than they hold although the mean is not.
  const DType wide = accumulate_type(asked, self.device());
  Tensor total = nansum(self, dim, keepdim, wide == asked ? dtype : wide);
  Tensor counted = ops::sum_dim(ops::logical_not(ops::isnan(self)), dim, keepdim, DType::Int64);
  Tensor mean = ops::div(total, counted);
  return wide == asked ? mean : ops::to_dtype(mean, asked);
}

const Op raw_sum_to_size("_sum_to_size");

Tensor sum_to_size(const Tensor& self, IntSpan size) {
  // Integers are summed as int64; to no dims PyTorch sums always.
  bool ready = same(self.sizes(), size) && (!size.empty() || !is_integral(self.dtype(), true));
  return ready ? self : raw_sum_to_size(self, size);
}

DimSet reduce_repeated_dims(IntSpan from, IntSpan size) {
  TS_CHECK(size.size() <= from.size(), "sum_to_size: size {", size, "} is not expandable to size {", from, "}");
  if (same(from, size)) return 0;
  check_set_dims(static_cast<int64_t>(from.size()), "sum_to_size");
  size_t lead = from.size() - size.size();
  DimSet dims = all_dims(static_cast<int64_t>(lead));
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] == from[lead + d]) continue;
    TS_CHECK(size[d] == 1, "sum_to_size: size {", size, "} is not expandable to size {", from, "}");
    dims |= DimSet{1} << (lead + d);
  }
  return dims;
}
Tensor sum_to_size_rule(const Tensor& self, IntSpan size) {
  reduce_repeated_dims(self.sizes(), size);
  return outline(size, sum_dtype(self, DType::Undefined), self.device());
}
void sum_repeated(const Tensor& out, const Tensor& self, IntSpan size) {
  reduce_into(out, TS_R_SUM, self, reduce_repeated_dims(self.sizes(), size));
}

} // namespace

TS_OPERATORS(reduce) {
  def("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor")
      .facts("autocast:-/float32")
      .rule<total_rule<TS_R_SUM>>()
      .computation<total<TS_R_SUM>>(kReduceCode)
      .gradient(sum_gradient)
      .doc("Sum of all elements, 0-d. Integers and bool are summed as int64 unless dtype says otherwise.");
  def("sum.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .rule<along_rule<TS_R_SUM, OptionalDims>>()
      .computation<reduce_along<TS_R_SUM, OptionalDims>>(kReduceCode)
      .gradient(sum_dim_gradient)
      .node_name("SumBackward1")
      .out(kComputesInOut)
      .doc("Sum over the dims given (all for None); they stay as size one with keepdim.");
  def("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor")
      .rule<mean_rule>()
      .computation<mean>(kReduceCode)
      .gradient(mean_gradient)
      .out(kComputesInOut)
      .doc("Mean of all elements, 0-d; NaN of none. RuntimeError for integers without a floating dtype.");
  def("mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .rule<mean_dim_rule>()
      .computation<mean_dim>(kReduceCode)
      .gradient(mean_dim_gradient)
      .node_name("MeanBackward1")
      .out(kComputesInOut)
      .doc("Mean over the dims given (all for None).");
  def("prod(Tensor self, *, ScalarType? dtype=None) -> Tensor")
      .facts("kernel:complex_product")
      .facts("autocast:float32")
      .rule<total_rule<TS_R_PROD>>()
      .computation<total<TS_R_PROD>>(kReduceCode)
      .saves("self")
      .gradient(prod_gradient)
      .doc("Product of all elements, 0-d; 1 of none.");
  def("prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .rule<along_rule<TS_R_PROD, int64_t>>()
      .computation<reduce_along<TS_R_PROD, int64_t>>(kReduceCode)
      .saves("self")
      .gradient(prod_dim_gradient)
      .node_name("ProdBackward1")
      .out(kComputesInOut)
      .doc("Product over one dim.");
  def("any(Tensor self) -> Tensor")
      .facts("stored")
      .rule<truth_rule<TS_R_ANY>>()
      .computation<truth<TS_R_ANY>>(kReduceCode)
      .not_differentiable()
      .doc("Whether some element is not zero: bool, 0-d.");
  def("any.dims(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor")
      .rule<truth_along_rule<TS_R_ANY>>()
      .computation<truth_along<TS_R_ANY>>(kReduceCode)
      .not_differentiable()
      .out(kSameOrByte)
      .doc("Whether some element along the dims is not zero.");
  def("all(Tensor self) -> Tensor")
      .facts("stored")
      .rule<truth_rule<TS_R_ALL>>()
      .computation<truth<TS_R_ALL>>(kReduceCode)
      .not_differentiable()
      .doc("Whether no element is zero: bool, 0-d.");
  def("all.dims(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor")
      .rule<truth_along_rule<TS_R_ALL>>()
      .computation<truth_along<TS_R_ALL>>(kReduceCode)
      .not_differentiable()
      .out(kSameOrByte)
      .doc("Whether no element along the dims is zero.");
  def("count_nonzero(Tensor self, int[1]? dim=None) -> Tensor")
      .facts("stored:complex32")
      .rule<count_nonzero_rule>()
      .computation<count_nonzero>(kReduceCode)
      .not_differentiable()
      .doc("How many elements are not zero: int64.");
  def("nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .facts("leaf")
      .body<nansum>()
      .out(kComputesInOut)
      .doc("sum with NaN counted as zero.");
  def("_nansum(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .rule<numbers_rule>()
      .computation<sum_numbers>(kReduceCode)
      .saves("self")
      .gradient(sum_numbers_gradient)
      .node_name("NansumBackward0")
      .hidden()
      .doc("nansum of real floating tensors.");
  def("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .body<nanmean>()
      .out(kComputesInOut)
      .doc("Mean of the elements that are not NaN.");
  def("sum_to_size(Tensor self, int[] size) -> Tensor")
      .body<sum_to_size>()
      .method_only()
      .doc("Sums over the dims that broadcasting from size to the tensor's shape has repeated.");
  def("_sum_to_size(Tensor self, int[] size) -> Tensor")
      .rule<sum_to_size_rule>()
      .computation<sum_repeated>(kReduceCode)
      .hidden()
      .gradient([](GradContext& c) { c.set(0, ops::expand(c.grad(), c.sizes(0))); })
      .doc("sum_to_size of a different shape.");
}

} // namespace ts
