// softmax and log_softmax over one dim, with gradients.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/nn/norm_parts.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const Op softmax_op("softmax"), softmax_backward_op("softmax_backward"),
    log_softmax_backward_op("log_softmax_backward");

// x - max over dim, in the accumulation type.
Tensor softmax_shifted(const Tensor& self, int64_t dim, DType dtype) {
  Tensor x = dtype == DType::Undefined ? self : as_dtype(self, dtype);
  Tensor wide = as_dtype(x, accumulate_type(x));
  int64_t dims[] = {dim};
  return ops::sub(wide, ops::amax(wide, IntSpan(dims), true));
}
Tensor sum_along(const Tensor& x, int64_t dim) {
  int64_t dims[] = {dim};
  return ops::sum_dim(x, IntSpan(dims), true);
}

Tensor soft_rule(const char* op, const Tensor& self, int64_t dim, DType asked) {
  DType dtype = asked == DType::Undefined ? self.dtype() : asked;
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(dtype) && !is_storage_dtype(dtype), op, ": \"", op,
                "\" not implemented for '", dtype, "'; expected a floating tensor, or dtype=");
  wrap_dim(dim, self.ndim(), op);
  return outline(self.sizes(), dtype, self.device());
}
Tensor softmax_rule(const Tensor& self, int64_t dim, DType dtype) { return soft_rule("softmax", self, dim, dtype); }
Tensor log_softmax_rule(const Tensor& self, int64_t dim, DType dtype) {
  return soft_rule("log_softmax", self, dim, dtype);
}

Tensor softmax_parts(const Tensor& self, int64_t dim, DType dtype) {
  Tensor e = ops::exp(softmax_shifted(self, dim, dtype));
  return ops::div(e, sum_along(e, dim));
}
Tensor log_softmax_parts(const Tensor& self, int64_t dim, DType dtype) {
  Tensor y = softmax_shifted(self, dim, dtype);
  return ops::sub(y, ops::log(sum_along(ops::exp(y), dim)));
}
Tensor softmin(const Tensor& self, int64_t dim, DType dtype) {
  return softmax_op(ops::neg(dtype == DType::Undefined ? self : as_dtype(self, dtype)), dim);
}

Tensor backward_rule_of(const char* op, const Tensor& grad, const Tensor& output, int64_t dim) {
  TS_CHECK(same(grad.sizes(), output.sizes()) && grad.dtype() == output.dtype() && is_floating(output.dtype()), op,
           ": expected grad and output alike and floating, got ", grad.dtype(), grad.sizes(), " and ", output.dtype(),
           output.sizes());
  wrap_dim(dim, output.ndim(), op);
  return outline(output.sizes(), output.dtype(), output.device());
}
Tensor softmax_backward_rule(const Tensor& grad, const Tensor& output, int64_t dim) {
  return backward_rule_of("softmax_backward", grad, output, dim);
}
Tensor log_softmax_backward_rule(const Tensor& grad, const Tensor& output, int64_t dim) {
  return backward_rule_of("log_softmax_backward", grad, output, dim);
}

// dx = y * (dy - sum(dy * y))
Tensor softmax_backward_parts(const Tensor& grad, const Tensor& output, int64_t dim) {
  Tensor g = widened(grad), y = widened(output);
  return ops::mul(y, ops::sub(g, sum_along(ops::mul(g, y), dim)));
}
// dx = dy - exp(y) * sum(dy)
Tensor log_softmax_backward_parts(const Tensor& grad, const Tensor& output, int64_t dim) {
  Tensor g = widened(grad), e = ops::exp(widened(output));
  return ops::sub(g, ops::mul(e, sum_along(g, dim)));
}

// Of dx by dy and y, where t comes in: by y, t * (dy - sum(dy * y)) - dy * sum(t * y).
void softmax_backward_gradient(GradContext& c) {
  int64_t dim = c.value<int64_t>(2);
  Tensor y = c.arg(1);
  if (c.needs(0)) c.set(0, softmax_backward_op(c.grad(), y, dim));
  if (!c.needs(1)) return;
  Tensor t = widened(c.grad()), g = widened(c.arg(0)), wide = widened(y);
  Tensor first = ops::mul(t, ops::sub(g, sum_along(ops::mul(g, wide), dim)));
  c.set(1, as_dtype(ops::sub(first, ops::mul(g, sum_along(ops::mul(t, wide), dim))), c.dtype(1)));
}
// By dy, t - sum(t * exp(y)); by y, -t * exp(y) * sum(dy).
void log_softmax_backward_gradient(GradContext& c) {
  int64_t dim = c.value<int64_t>(2);
  Tensor t = widened(c.grad()), weighted = ops::mul(t, ops::exp(widened(c.arg(1))));
  if (c.needs(0)) c.set(0, as_dtype(ops::sub(t, sum_along(weighted, dim)), c.dtype(0)));
  if (c.needs(1)) c.set(1, as_dtype(ops::neg(ops::mul(weighted, sum_along(widened(c.arg(0)), dim))), c.dtype(1)));
}

void softmax_gradient(GradContext& c) {
  c.set(0, as_dtype(softmax_backward_op(c.grad(), c.result(), c.value<int64_t>(1)), c.dtype(0)));
}
void log_softmax_gradient(GradContext& c) {
  c.set(0, as_dtype(log_softmax_backward_op(c.grad(), c.result(), c.value<int64_t>(1)), c.dtype(0)));
}

} // namespace

TS_OPERATORS(softmax) {
  def("softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .facts("autocast:-/float32")
      .rule<softmax_rule>()
      .kernel("softmax", "self: contiguous result", "dim wrapped self")
      .decompose<softmax_parts>()
      .saves("result")
      .gradient(softmax_gradient)
      .out(kSameDtype)
      .doc("exp(x) / exp(x).sum(dim), without overflow; computed in dtype if given.");
  def("log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .facts("autocast:-/float32")
      .rule<log_softmax_rule>()
      .kernel("log_softmax", "self: contiguous result", "dim wrapped self")
      .decompose<log_softmax_parts>()
      .saves("result")
      .gradient(log_softmax_gradient)
      .out(kSameDtype)
      .doc("log(softmax(x)), computed as x - max - log(sum(exp(x - max))).");
  def("softmin(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .body<softmin>()
      .in("nn.functional")
      .function_only()
      .doc("softmax(-x).");
  def("softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor")
      .rule<softmax_backward_rule>()
      .kernel("softmax_backward", "grad output: contiguous", "dim wrapped output")
      .decompose<softmax_backward_parts>()
      .saves("grad output")
      .gradient(softmax_backward_gradient)
      .hidden()
      .doc("Gradient of softmax.");
  def("log_softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor")
      .rule<log_softmax_backward_rule>()
      .kernel("log_softmax_backward", "grad output: contiguous", "dim wrapped output")
      .decompose<log_softmax_backward_parts>()
      .saves("grad output")
      .gradient(log_softmax_backward_gradient)
      .hidden()
      .doc("Gradient of log_softmax.");
}

} // namespace ts
