// softmax and log_softmax over one dim, with gradients.
#include "dispatch/launch.h"
#include "ops/api.h"
#include "ops/declare.h"
#include "ops/raw.h"
#include "ops/reduce_arrange.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const KernelId kSoftmax("softmax"), kLogSoftmax("log_softmax"), kSoftmaxBackward("softmax_backward"),
    kLogSoftmaxBackward("log_softmax_backward");
const Op softmax_op("softmax"), softmax_backward_op("softmax_backward"),
    log_softmax_backward_op("log_softmax_backward");

// x - max over dim, in the accumulation type.
Tensor shifted(const Tensor& x, int64_t dim) {
  Tensor wide = raw_cast(x, accumulate_type(x.dtype()));
  int64_t dims[] = {dim};
  return ops::sub(wide, ops::amax(wide, IntSpan(dims), true));
}
Tensor sum_along(const Tensor& x, int64_t dim) {
  int64_t dims[] = {dim};
  return ops::sum_dim(x, IntSpan(dims), true);
}

Tensor soften(const KernelId& kernel, const Tensor& self, int64_t dim, DType asked, bool logarithm) {
  const char* op = kernel.name();
  DType dtype = asked == DType::Undefined ? self.dtype() : asked;
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(dtype), op, ": \"", op, "\" not implemented for '", dtype,
                "'; expected a floating tensor, or dtype=");
  int64_t d = wrap_dim(dim, self.ndim(), op);
  Tensor x = raw_contiguous(raw_cast(self, dtype));
  Tensor out = empty_tensor(x.sizes(), dtype, x.device());
  if (out.numel() == 0) return out;
  if (x.ndim() == 0) {
    raw_copy(out, softmax_op(alias(x, Dims{1}, Dims{1}, x->byte_offset), int64_t{0}));
    return logarithm ? ops::log(out) : out;
  }
  if (Launch(kernel, x.device()).out(out).in(x).param(d).run()) return out;
  Tensor y = shifted(x, d);
  Tensor e = ops::exp(y);
  raw_copy(out, logarithm ? ops::sub(y, ops::log(sum_along(e, d))) : ops::div(e, sum_along(e, d)));
  return out;
}

Tensor softmax(const Tensor& self, int64_t dim, DType dtype) { return soften(kSoftmax, self, dim, dtype, false); }
Tensor log_softmax(const Tensor& self, int64_t dim, DType dtype) { return soften(kLogSoftmax, self, dim, dtype, true); }
Tensor softmin(const Tensor& self, int64_t dim, DType dtype) {
  return softmax_op(ops::neg(dtype == DType::Undefined ? self : as_dtype(self, dtype)), dim);
}

void check_backward(const Tensor& grad, const Tensor& output, const char* op) {
  TS_CHECK(same(grad.sizes(), output.sizes()) && grad.dtype() == output.dtype(), op,
           ": expected grad and output alike, got ", grad.dtype(), grad.sizes(), " and ", output.dtype(),
           output.sizes());
}
// The kernel's result, or undefined when these are to be traced or there is no kernel.
Tensor by_kernel(const KernelId& kernel, const Tensor& grad, const Tensor& output, int64_t dim) {
  if (!is_plain(grad, output) || output.ndim() == 0) return {};
  Tensor out = empty_tensor(output.sizes(), output.dtype(), output.device());
  if (out.numel() == 0) return out;
  Tensor g = raw_contiguous(grad), y = raw_contiguous(output);
  return Launch(kernel, y.device()).out(out).in(g).in(y).param(dim).run() ? out : Tensor();
}
Tensor widened(const Tensor& t) { return as_dtype(t, accumulate_type(t.dtype())); }

// dx = y * (dy - sum(dy * y))
Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim) {
  check_backward(grad, output, "softmax_backward");
  dim = wrap_dim(dim, output.ndim(), "softmax_backward");
  if (Tensor out = by_kernel(kSoftmaxBackward, grad, output, dim); out.defined()) return out;
  Tensor g = widened(grad), y = widened(output);
  return as_dtype(ops::mul(y, ops::sub(g, sum_along(ops::mul(g, y), dim))), output.dtype());
}
// dx = dy - exp(y) * sum(dy)
Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim) {
  check_backward(grad, output, "log_softmax_backward");
  dim = wrap_dim(dim, output.ndim(), "log_softmax_backward");
  if (Tensor out = by_kernel(kLogSoftmaxBackward, grad, output, dim); out.defined()) return out;
  Tensor g = widened(grad), y = widened(output);
  return as_dtype(ops::sub(g, ops::mul(ops::exp(y), sum_along(g, dim))), output.dtype());
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
      .body<softmax>()
      .saves("result")
      .gradient(softmax_gradient)
      .doc("exp(x) / exp(x).sum(dim), without overflow; computed in dtype if given.");
  def("log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .body<log_softmax>()
      .saves("result")
      .gradient(log_softmax_gradient)
      .doc("log(softmax(x)), computed as x - max - log(sum(exp(x - max))).");
  def("softmin(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .body<softmin>()
      .in("nn.functional")
      .function_only()
      .doc("softmax(-x).");
  def("softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor")
      .body<softmax_backward>()
      .hidden()
      .doc("Gradient of softmax.");
  def("log_softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor")
      .body<log_softmax_backward>()
      .hidden()
      .doc("Gradient of log_softmax.");
}

} // namespace ts
