// Layer normalisation (Ba et al., arXiv:1607.06450) and its gradients.
#include "autograd/traced.h"
#include "ops/common/declare.h"
#include "ops/nn/norm_parts.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

const Op layer_norm_forward_op("native_layer_norm"), layer_norm_backward_op("native_layer_norm_backward");
using Three = std::tuple<Tensor, Tensor, Tensor>;

void check_shapes(const Tensor& input, IntSpan shape, const Tensor& weight, const Tensor& bias) {
  TS_CHECK(is_floating(input.dtype()), "layer_norm: expected a floating input, got ", input.dtype());
  TS_CHECK(!shape.empty(),
           "layer_norm: Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
           "but got normalized_shape = ",
           shape);
  TS_CHECK(shape.size() <= input.sizes().size() && same(input.sizes().last(shape.size()), shape),
           "layer_norm: Given normalized_shape=", shape, ", expected input with shape [*, ", shape,
           "], but got input of size", input.sizes());
  for (const Tensor* t : {&weight, &bias}) {
    if (!t->defined()) continue;
    TS_CHECK(same(t->sizes(), shape),
             "layer_norm: Expected weight and bias to be of same shape as normalized_shape, but got ", t->sizes(),
             " and normalized_shape = ", shape);
    TS_CHECK(t->dtype() == parameter_type(input, *t), "layer_norm: expected weight and bias of the input's dtype ",
             input.dtype(), " or of its statistics' ", accumulate_type(input), ", got ", t->dtype());
  }
}

// The trailing dims, and those in front of them.
Dims inner_dims(size_t ndim, size_t n) {
  Dims dims;
  for (size_t d = ndim - n; d < ndim; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}
Dims outer_dims(size_t ndim, size_t n) {
  Dims dims;
  for (size_t d = 0; d < ndim - n; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}
Dims layer_norm_statistics_sizes(IntSpan input, size_t n) {
  Dims sizes(input);
  for (size_t d = input.size() - n; d < input.size(); ++d) sizes[d] = 1;
  return sizes;
}

Three layer_norm_forward_rule(const Tensor& input, IntSpan shape, const Tensor& weight, const Tensor& bias, double) {
  check_shapes(input, shape, weight, bias);
  DType wide = accumulate_type(input);
  Dims stats = layer_norm_statistics_sizes(input.sizes(), shape.size());
  return {outline(input.sizes(), input.dtype(), input.device()), outline(stats, wide, input.device()),
          outline(stats, wide, input.device())};
}

Three layer_norm_forward_parts(const Tensor& input, IntSpan shape, const Tensor& weight, const Tensor& bias,
                               double eps) {
  if (input.numel() == 0) {
    Tensor nothing =
        filled(layer_norm_statistics_sizes(input.sizes(), shape.size()), 0.0, accumulate_type(input), input.device());
    return {Tensor(), nothing, nothing};
  }
  Dims dims = inner_dims(input.sizes().size(), shape.size());
  Tensor v = widened(input), mean = ops::mean_dim(v, dims, true), centered = ops::sub(v, mean);
  Tensor rstd = ops::rsqrt(ops::add(ops::mean_dim(ops::square(centered), dims, true), eps));
  Tensor y = ops::mul(centered, rstd);
  if (weight.defined()) y = ops::mul(y, widened(weight));
  if (bias.defined()) y = ops::add(y, widened(bias));
  return {y, mean, rstd};
}

// dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = grad * weight
Three layer_norm_backward_parts(const Tensor& grad, const Tensor& input, IntSpan shape, const Tensor&,
                                const Tensor& rstd_saved, const Tensor& weight) {
  size_t ndim = input.sizes().size();
  Dims inner = inner_dims(ndim, shape.size()), outer = outer_dims(ndim, shape.size());
  Tensor x = widened(input), g = widened(grad);
  Tensor centered = ops::sub(x, ops::mean_dim(x, inner, true));
  Tensor rstd = rstd_of(centered, inner, rstd_saved);
  Tensor xhat = ops::mul(centered, rstd);
  Tensor gw = weight.defined() ? ops::mul(g, widened(weight)) : g;
  Tensor projected = ops::mul(xhat, ops::mean_dim(ops::mul(gw, xhat), inner, true));
  Tensor dx = ops::mul(rstd, ops::sub(ops::sub(gw, ops::mean_dim(gw, inner, true)), projected));
  DType kept = parameter_type(input, weight);
  return {as_dtype(dx, input.dtype()), as_dtype(sum_over_dims(ops::mul(g, xhat), outer), kept),
          as_dtype(sum_over_dims(g, outer), kept)};
}

Three layer_norm_backward_rule(const Tensor& grad, const Tensor& input, IntSpan shape, const Tensor& mean,
                               const Tensor& rstd, const Tensor& weight) {
  check_shapes(input, shape, weight, {});
  DType wide = accumulate_type(input);
  Dims stats = layer_norm_statistics_sizes(input.sizes(), shape.size());
  TS_CHECK(same(grad.sizes(), input.sizes()) && grad.dtype() == input.dtype(),
           "native_layer_norm_backward: expected grad like the input, ", input.dtype(), input.sizes(), ", got ",
           grad.dtype(), grad.sizes());
  TS_CHECK(same(mean.sizes(), stats) && same(rstd.sizes(), stats) && mean.dtype() == wide && rstd.dtype() == wide,
           "native_layer_norm_backward: expected mean and rstd of shape ", IntSpan(stats), " in ", wide, ", got ",
           mean.sizes(), " and ", rstd.sizes());
  auto like = [&](IntSpan sizes, DType dtype) { return outline(sizes, dtype, input.device()); };
  DType kept = parameter_type(input, weight);
  return {like(input.sizes(), input.dtype()), like(shape, kept), like(shape, kept)};
}

void layer_norm_gradient(GradContext& c) {
  auto [dx, dw, db] =
      layer_norm_backward_op.multi<3>(c.grad(), c.arg(0), c.value(1), c.result(1), c.result(2), c.arg(2));
  if (c.needs(0)) c.set(0, dx);
  if (c.needs(2)) c.set(2, as_dtype(dw, c.dtype(2)));
  if (c.needs(3)) c.set(3, as_dtype(db, c.dtype(3)));
}

Tensor layer_norm_rule(const Tensor& input, IntSpan shape, const Tensor& weight, const Tensor& bias, double) {
  auto fit = [&](const Tensor& t) {
    return t.defined() ? outline(t.sizes(), parameter_type(input, t), t.device()) : t;
  };
  check_shapes(input, shape, fit(weight), fit(bias));
  return outline(input.sizes(), input.dtype(), input.device());
}
Tensor layer_norm(const Tensor& input, IntSpan shape, const Tensor& weight, const Tensor& bias, double eps) {
  auto fit = [&](const Tensor& t) { return t.defined() ? as_dtype(t, parameter_type(input, t)) : t; };
  return layer_norm_forward_op(input, shape, fit(weight), fit(bias), eps);
}

} // namespace

TS_OPERATORS(layer_norm) {
  def("layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> "
      "Tensor")
      .facts("autocast:-/float32")
      .body<layer_norm>()
      .rule<layer_norm_rule>()
      .saves("input weight bias")
      .gradient_if_replaced(traced_gradient<layer_norm>)
      .in("nn.functional")
      .function_only()
      .doc("(x - mean) / sqrt(var + eps) * weight + bias, over the trailing dims of sizes normalized_shape.");
  def("native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, "
      "Tensor, Tensor)")
      .rule<layer_norm_forward_rule>()
      .kernel("native_layer_norm", "input weight bias: contiguous", "normalized_shape, eps")
      .decompose<layer_norm_forward_parts>()
      .saves("input weight result1 result2")
      .gradient(layer_norm_gradient)
      .hidden()
      .doc("layer_norm, with the mean and 1 / sqrt(var + eps) of each group (float32 for half inputs).");
  def("native_layer_norm_backward(Tensor grad, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, Tensor? "
      "weight) -> (Tensor, Tensor, Tensor)")
      .rule<layer_norm_backward_rule>()
      .kernel("native_layer_norm_backward", "grad input mean rstd weight: contiguous", "normalized_shape")
      .decompose<layer_norm_backward_parts>()
      .saves("grad input mean rstd weight")
      .gradient(traced_gradient<layer_norm_backward_parts>)
      .hidden()
      .doc("Gradients of native_layer_norm's first result by input, weight and bias.");
}

} // namespace ts
