// Greatest and least elements, and where they are.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/reduce/reduce_arrange.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kExtremaCode = "reduces the dims in an arrangement that the entry point takes";

const KernelId kGather("gather");
using OptionalDims = std::optional<IntSpan>;
using Two = std::tuple<Tensor, Tensor>;

void check_some(const Tensor& self, const char* op) {
  TS_CHECK(!is_complex(self.dtype()), op, ": not defined for complex tensors, got ", self.dtype());
  TS_CHECK(self.numel() > 0, op,
           "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
           "'dim' argument.");
}
void check_real(const Tensor& self, const char* op) {
  TS_CHECK(!is_complex(self.dtype()), op, ": not defined for complex tensors, got ", self.dtype());
}

template <int Opcode> Tensor extreme_rule(const Tensor& self) {
  const char* op = Opcode == TS_R_MAX ? "max" : "min";
  check_some(self, op);
  return reduce_outline(op, Opcode, self, all_dims(self.ndim()), false, self.dtype());
}
template <int Opcode> void extreme(const Tensor& out, const Tensor& self) {
  reduce_into(out, Opcode, self, all_dims(self.ndim()));
}

template <int Opcode> Tensor extreme_over_rule(const Tensor& self, OptionalDims dim, bool keepdim) {
  const char* op = Opcode == TS_R_MAX ? "amax" : "amin";
  check_real(self, op);
  if (!dim || dim->empty()) check_some(self, op);
  return reduce_outline(op, Opcode, self, dim_set(dim, self.ndim(), op), keepdim, self.dtype());
}
template <int Opcode> void extreme_over(const Tensor& out, const Tensor& self, OptionalDims dim, bool) {
  reduce_into(out, Opcode, self, dim_set(dim, self.ndim(), "amax"));
}

// Where the extreme is, NaN included.
Tensor is_extreme(const Tensor& self, const Tensor& extreme) {
  return ops::logical_or(ops::eq(self, extreme), ops::logical_and(ops::isnan(self), ops::isnan(extreme)));
}
// Equal shares for equal elements; their number is whole, whatever the dtype.
Tensor share_evenly(const Tensor& grad, const Tensor& mask, DimSet dims) {
  Tensor share = mask.ndim() == 0 ? grad : ops::div(grad, ops::sum_dim(mask, dim_list(dims), true));
  return ops::where(mask, share, ops::zeros(IntSpan(), share.dtype(), share.device()));
}

} // namespace

void share_among_equals(GradContext& c) {
  Tensor self = c.arg(0);
  c.set(0, share_evenly(c.grad(), is_extreme(self, c.result()), all_dims(self.ndim())));
}

namespace {

void extreme_over_gradient(GradContext& c) {
  Tensor self = c.arg(0);
  DimSet dims = dim_set(c.value<OptionalDims>(1), self.ndim(), "amax");
  bool keepdim = c.value<bool>(2);
  Tensor result = restore_dims(c.result(), self.sizes(), dims, keepdim),
         grad = restore_dims(c.grad(), self.sizes(), dims, keepdim);
  c.set(0, share_evenly(grad, is_extreme(self, result), dims));
}

DimSet searched(const Tensor& self, std::optional<int64_t> dim, const char* op) {
  return dim ? dim_set(*dim, self.ndim(), op) : all_dims(self.ndim());
}
template <int Opcode> Tensor position_rule(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const char* op = Opcode == TS_R_ARGMAX ? "argmax" : "argmin";
  check_real(self, op);
  TS_CHECK(!is_bool(self.dtype()), op, "(): does not support bool input; try .to(uint8)");
  TS_CHECK_INDEX(dim || self.numel() > 0, op,
                 "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
                 "the 'dim' argument.");
  return reduce_outline(op, Opcode, self, searched(self, dim, op), keepdim, DType::Int64);
}
template <int Opcode> void position(const Tensor& out, const Tensor& self, std::optional<int64_t> dim, bool) {
  reduce_into(out, Opcode, self, searched(self, dim, "argmax"));
}

// Values and first positions along one dim.
template <int Opcode> Two extreme_along_rule(const Tensor& self, int64_t dim, bool keepdim) {
  const char* op = Opcode == TS_R_ARGMAX ? "max" : "min";
  check_real(self, op);
  DimSet dims = dim_set(dim, self.ndim(), op);
  return {reduce_outline(op, Opcode, self, dims, keepdim, self.dtype()),
          reduce_outline(op, Opcode, self, dims, keepdim, DType::Int64)};
}
template <int Opcode>
void extreme_along(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim, bool) {
  reduce_into(indices, Opcode, self, dim_set(dim, self.ndim(), "max"));
  if (self.ndim() == 0) return raw_copy(values, self);
  Dims sizes(self.sizes());
  int64_t d = wrap_dim(dim, self.ndim(), "max");
  sizes[static_cast<size_t>(d)] = 1;
  Dims strides = contiguous_strides(sizes);
  Launch(kGather, self.device())
      .out(values, sizes, strides)
      .in(self)
      .in(indices, sizes, strides)
      .param(d)
      .run_required();
}
void extreme_along_gradient(GradContext& c) {
  IntSpan sizes = c.sizes(0);
  if (sizes.empty()) return c.set(0, c.grad());
  int64_t ndim = static_cast<int64_t>(sizes.size()), dim = wrap_dim(c.value<int64_t>(1), ndim, "max");
  DimSet dims = DimSet{1} << dim;
  bool keepdim = c.value<bool>(2);
  Tensor at = restore_dims(c.result(1), sizes, dims, keepdim), grad = restore_dims(c.grad(), sizes, dims, keepdim);
  Tensor zeros = filled(sizes, 0, grad.dtype(), grad.device());
  c.set(0, grad.numel() ? ops::scatter(zeros, dim, at, grad) : zeros);
}

const Op amax_op("amax"), amin_op("amin"), maximum_op("maximum"), minimum_op("minimum");

Two aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  if (!dim) check_some(self, "aminmax");
  int64_t dims[] = {dim.value_or(0)};
  IntSpan list = dim ? IntSpan(dims) : IntSpan();
  return {amin_op(self, list, keepdim), amax_op(self, list, keepdim)};
}

Tensor max_other(const Tensor& self, const Tensor& other) { return maximum_op(self, other); }
Tensor min_other(const Tensor& self, const Tensor& other) { return minimum_op(self, other); }

} // namespace

TS_OPERATORS(extrema) {
  def("max(Tensor self) -> Tensor")
      .rule<extreme_rule<TS_R_MAX>>()
      .computation<extreme<TS_R_MAX>>(kExtremaCode)
      .node_name("MaxBackward1")
      .saves("self result")
      .gradient(share_among_equals)
      .out()
      .doc("The greatest element, 0-d; NaN if there is one. Equal elements share the gradient.");
  // Before dim: a tensor without dims is the other operand, not a dim.
  def("max.other(Tensor self, Tensor other) -> Tensor").body<max_other>().out().doc("maximum: elementwise.");
  def("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .rule<extreme_along_rule<TS_R_ARGMAX>>()
      .computation<extreme_along<TS_R_ARGMAX>, 2>(kExtremaCode)
      .saves("result1")
      .gradient(extreme_along_gradient)
      .out()
      .doc("Greatest elements along one dim and their first positions (int64).");
  def("min(Tensor self) -> Tensor")
      .rule<extreme_rule<TS_R_MIN>>()
      .computation<extreme<TS_R_MIN>>(kExtremaCode)
      .node_name("MinBackward1")
      .saves("self result")
      .gradient(share_among_equals)
      .out()
      .doc("The least element, 0-d; NaN if there is one. Equal elements share the gradient.");
  def("min.other(Tensor self, Tensor other) -> Tensor").body<min_other>().out().doc("minimum: elementwise.");
  def("min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .rule<extreme_along_rule<TS_R_ARGMIN>>()
      .computation<extreme_along<TS_R_ARGMIN>, 2>(kExtremaCode)
      .saves("result1")
      .gradient(extreme_along_gradient)
      .out()
      .doc("Least elements along one dim and their first positions (int64).");
  def("amax(Tensor self, int[1]? dim=[], bool keepdim=False) -> Tensor")
      .rule<extreme_over_rule<TS_R_MAX>>()
      .computation<extreme_over<TS_R_MAX>>(kExtremaCode)
      .saves("self result")
      .gradient(extreme_over_gradient)
      .out(kSameDtype)
      .doc("Greatest elements over the dims (all if none are given); equal ones share the gradient.");
  def("amin(Tensor self, int[1]? dim=[], bool keepdim=False) -> Tensor")
      .rule<extreme_over_rule<TS_R_MIN>>()
      .computation<extreme_over<TS_R_MIN>>(kExtremaCode)
      .saves("self result")
      .gradient(extreme_over_gradient)
      .out(kSameDtype)
      .doc("Least elements over the dims (all if none are given); equal ones share the gradient.");
  def("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)")
      .facts("leaf")
      .body<aminmax>()
      .out()
      .doc("amin and amax over one dim, or over all.");
  def("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
      .rule<position_rule<TS_R_ARGMAX>>()
      .computation<position<TS_R_ARGMAX>>(kExtremaCode)
      .not_differentiable()
      .out(kSameDtype)
      .doc("First position of the greatest element along dim, or in the flattened tensor: int64.");
  def("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
      .rule<position_rule<TS_R_ARGMIN>>()
      .computation<position<TS_R_ARGMIN>>(kExtremaCode)
      .not_differentiable()
      .out(kSameDtype)
      .doc("First position of the least element along dim, or in the flattened tensor: int64.");
}

} // namespace ts
