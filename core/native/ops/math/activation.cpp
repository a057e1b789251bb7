// Activation functions. Derivatives take 0 where an element lies in a flat part, and pass the gradient elsewhere: at
// NaN, which no comparison holds for, nothing is hidden.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include <cstring>

namespace ts {
namespace {

Tensor gelu(const Tensor& self, const char* approximate) {
  static const Op exact("gelu_erf"), tanh_form("gelu_tanh");
  if (!std::strcmp(approximate, "none")) return exact(self);
  TS_CHECK(!std::strcmp(approximate, "tanh"), "gelu: expected approximate to be 'none' or 'tanh', got '", approximate,
           "'");
  return tanh_form(self);
}

// One slope for all, or one per channel (dim 1).
Tensor prelu(const Tensor& self, const Tensor& weight) {
  static const Op kernel("prelu_kernel");
  TS_CHECK(weight.ndim() <= 1, "prelu: expected weight to be a scalar or 1-d tensor, got ndim ", weight.ndim());
  if (weight.numel() == 1) return kernel(self, ops::reshape(weight, Dims(static_cast<size_t>(self.ndim()), 1)));
  TS_CHECK(self.ndim() >= 2 && self.sizes()[1] == weight.numel(), "prelu: expected one weight per channel, got ",
           weight.numel(), " weights for input ", self.sizes());
  Dims shape(static_cast<size_t>(self.ndim()), 1);
  shape[1] = weight.numel();
  return kernel(self, ops::reshape(weight, shape));
}

Tensor glu(const Tensor& self, int64_t dim) {
  int64_t n = self.size(dim);
  TS_CHECK(n % 2 == 0, "glu: Halving dimension must be even, but dimension ", dim, " is size ", n);
  static const Op gated("_gated");
  return gated(ops::narrow(self, dim, int64_t{0}, n / 2), ops::narrow(self, dim, n / 2, n / 2));
}

} // namespace

TS_OPERATORS(activation) {
  def("relu(Tensor self) -> Tensor")
      .facts("zero")
      .pointwise("max(self, 0)")
      .no_bool()
      .derivative("self", "select(result <= 0, 0, grad)" /* NaN passes, as PyTorch has it */)
      .inplace()
      .out()
      .doc("max(self, 0).");
  def("relu6(Tensor self) -> Tensor")
      .pointwise("min(max(self, 0), 6)")
      .derivative("self", "select(max(self <= 0, self >= 6), 0, grad)")
      .node_name("HardtanhBackward0")
      .inplace()
      .doc("min(max(self, 0), 6).");
  def("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor")
      .pointwise("select(self > 0, self, self * negative_slope)")
      .no_complex()
      .derivative("self", "select(self > 0, grad, grad * negative_slope)")
      .inplace()
      .out()
      .doc("self where positive, negative_slope * self elsewhere.");
  def("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor")
      .pointwise("select(self <= threshold, value, self)")
      .truncate_numbers()
      .derivative("self", "select(self <= threshold, 0, grad)")
      .inplace()
      .out()
      .doc("self where above threshold, value elsewhere.");
  def("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor")
      .pointwise("min(max(self, min_val), max_val)")
      .truncate_numbers()
      .derivative("self", "select(max(self <= min_val, self >= max_val), 0, grad)")
      .inplace()
      .out()
      .doc("self limited to [min_val, max_val].");
  def("elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor")
      .pointwise("select(self > 0, self * scale, alpha * scale * expm1(self * input_scale))")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "grad * select(self > 0, scale, alpha * scale * input_scale * exp(self * input_scale))")
      .inplace()
      .out()
      .doc("Exponential linear unit (Clevert et al. 2016): self where positive, alpha * (exp(self) - 1) elsewhere.");
  def("selu(Tensor self) -> Tensor")
      .pointwise("1.0507009873554805 * select(self > 0, self, 1.6732632423543772 * expm1(self))")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "grad * 1.0507009873554805 * select(self > 0, 1, 1.6732632423543772 * exp(self))")
      .node_name("EluBackward0")
      .inplace()
      .doc("Self-normalizing exponential linear unit (Klambauer et al. 2017).");
  def("celu(Tensor self, Scalar alpha=1.0) -> Tensor")
      .pointwise("select(self > 0, self, alpha * expm1(self / alpha))")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "grad * select(self > 0, 1, exp(self / alpha))")
      .inplace()
      .doc("Continuously differentiable exponential linear unit (Barron 2017).");
  def("silu(Tensor self) -> Tensor")
      .pointwise("self * sigmoid(self)")
      .promote(Promote::Float)
      .derivative("self", "grad * (sigmoid(self) * (1 + self * (1 - sigmoid(self))))")
      .inplace()
      .out()
      .doc("Sigmoid linear unit, self * sigmoid(self).");
  def("mish(Tensor self) -> Tensor")
      .pointwise("self * tanh(select(self > 20, self, log1p(exp(self))))")
      .no_complex()
      .promote(Promote::Float)
      .inplace()
      .out()
      .doc("self * tanh(softplus(self)) (Misra 2019).");
  def("softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor")
      .facts("autocast:-/float32")
      .pointwise("select(self * beta > threshold, self, log1p(exp(self * beta)) / beta)")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "select(self * beta > threshold, grad, grad * sigmoid(self * beta))")
      .out()
      .doc("log(1 + exp(beta self)) / beta, self itself above threshold / beta.");
  def("log_sigmoid(Tensor self) -> Tensor")
      .python_name("logsigmoid")
      .pointwise("min(self, 0) - log1p(exp(-abs(self)))")
      .promote(Promote::Float)
      .derivative("self", "grad * sigmoid(-self)")
      .out()
      .function_only()
      .doc("log(sigmoid(self)) without overflow.");
  def("gelu(Tensor self, *, str approximate='none') -> Tensor")
      .facts("elementwise leaf stored:none")
      .body<gelu>()
      .inplace()
      .out()
      .doc("Gaussian error linear unit (Hendrycks & Gimpel 2016), exact or by its tanh approximation.");
  def("gelu_erf(Tensor self) -> Tensor")
      .node_name("GeluBackward0")
      .pointwise("0.5 * self * (1 + erf(self * 0.70710678118654752))")
      .no_complex()
      .promote(Promote::Float)
      .derivative(
          "self",
          "grad * (0.5 * (1 + erf(self * 0.70710678118654752)) + self * 0.3989422804014327 * exp(-0.5 * self * self))")
      .hidden()
      .doc("gelu by erf.");
  def("gelu_tanh(Tensor self) -> Tensor")
      .node_name("GeluBackward0")
      .pointwise("0.5 * self * (1 + tanh(0.79788456080286536 * (self + 0.044715 * self * self * self)))")
      .no_complex()
      .promote(Promote::Float)
      .hidden()
      .doc("gelu by its tanh approximation.");
  def("hardsigmoid(Tensor self) -> Tensor")
      .pointwise("min(max(self + 3, 0), 6) / 6")
      .no_integer()
      .derivative("self", "select(max(self <= -3, self >= 3), 0, grad / 6)")
      .inplace()
      .out()
      .doc("min(max(self + 3, 0), 6) / 6.");
  def("hardswish(Tensor self) -> Tensor")
      .pointwise("self * min(max(self + 3, 0), 6) / 6")
      .no_integer()
      .derivative("self", "select(self <= -3, 0, select(self >= 3, grad, grad * (self / 3 + 0.5)))")
      .inplace()
      .out()
      .doc("self * hardsigmoid(self) (Howard et al. 2019).");
  def("softsign(Tensor self) -> Tensor")
      .pointwise("self / (1 + abs(self))")
      .promote(Promote::Float)
      .derivative("self", "grad / ((1 + abs(self)) * (1 + abs(self)))")
      .complex_form("_softsign_complex")
      .function_only()
      .doc("self / (1 + |self|).");
  def("tanhshrink(Tensor self) -> Tensor")
      .pointwise("self - tanh(self)")
      .promote(Promote::Float)
      .function_only()
      .in("nn.functional")
      .doc("self - tanh(self).");
  def("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor")
      .pointwise("select(abs(self) <= lambd, copysign(0, self), self - lambd * sign(self))") // the sign of zeros stays
      .no_integer()
      .derivative("self", "select(abs(self) <= lambd, 0, grad)")
      .out()
      .in("nn.functional")
      .doc("self moved towards 0 by lambd, 0 within it.");
  def("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor")
      .pointwise("select(abs(self) <= lambd, 0, self)")
      .round_numbers()
      .no_integer()
      .derivative("self", "select(abs(self) <= lambd, 0, grad)")
      .out()
      .in("nn.functional")
      .doc("self where |self| > lambd, 0 elsewhere.");
  def("prelu(Tensor self, Tensor weight) -> Tensor")
      .facts("stored:none autocast:lower")
      .body<prelu>()
      .doc("self where positive, weight * self elsewhere; weight is one number or one per channel (dim 1).");
  def("prelu_kernel(Tensor self, Tensor weight) -> Tensor")
      .pointwise("select(self > 0, self, self * weight)")
      .no_complex()
      .derivative("self", "select(self > 0, grad, grad * weight)")
      .derivative("weight", "select(self > 0, 0, grad * self)")
      .hidden()
      .doc("prelu with a weight that broadcasts.");
  def("_gated(Tensor self, Tensor gate) -> Tensor")
      .pointwise("self * sigmoid(gate)")
      .no_complex()
      .promote(Promote::Float)
      .node_name("GluBackward0")
      .hidden()
      .doc("self times the sigmoid of gate: glu of two halves.");
  def("glu(Tensor self, int dim=-1) -> Tensor")
      .facts("leaf")
      .body<glu>()
      .doc("Gated linear unit (Dauphin et al. 2017): first half of dim times the sigmoid of the second.");
}

} // namespace ts
