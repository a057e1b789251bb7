// Group normalisation (Wu and He, arXiv:1803.08494) and its gradients: two passes over the input, three backward.
#include "autograd/traced.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/nn/norm_parts.h"
#include "ops/pointwise/fused.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

using Three = std::tuple<Tensor, Tensor, Tensor>;
const Op group_norm_forward_op("_group_norm"), group_norm_backward_op("_group_norm_backward");

// Seen as (N, groups, channels of a group, positions).
Dims grouped_sizes(const Tensor& x, int64_t groups) {
  int64_t n = x.size(0), c = x.size(1), rest = n && c ? x.numel() / (n * c) : 0;
  return {n, groups, c / groups, rest};
}
Dims group_norm_statistics_sizes(const Tensor& x, int64_t groups) { return {x.size(0), groups, 1, 1}; }
Tensor grouped(const Tensor& x, int64_t groups) { return raw_view(raw_contiguous(x), grouped_sizes(x, groups)); }
// A weight or bias beside the grouped input.
Tensor beside(const Tensor& parameter, IntSpan sizes, DType wide) {
  return raw_view(raw_contiguous(raw_cast(parameter, wide)), Dims{1, sizes[1], sizes[2], 1});
}

void group_norm_check(const Tensor& input, int64_t groups, const Tensor& weight, const Tensor& bias) {
  TS_CHECK(is_floating(input.dtype()), "group_norm: expected a floating input, got ", input.dtype());
  TS_CHECK(input.ndim() >= 2, "group_norm: Expected at least 2 dimensions for input tensor but received ",
           input.ndim());
  TS_CHECK(groups > 0 && input.size(1) % groups == 0,
           "group_norm: Expected number of channels in input to be divisible by num_groups, but got input of shape ",
           input.sizes(), " and num_groups=", groups);
  for (const Tensor* t : {&weight, &bias})
    TS_CHECK(!t->defined() || (t->ndim() == 1 && t->numel() == input.size(1)), "group_norm: Expected weight and bias ",
             "to be vectors of size ", input.size(1), ", but got shape ", t->defined() ? t->sizes() : IntSpan());
}

Three group_norm_forward_rule(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t groups, double) {
  group_norm_check(input, groups, weight, bias);
  DType wide = accumulate_type(input);
  Dims stats = group_norm_statistics_sizes(input, groups);
  return {outline(input.sizes(), input.dtype(), input.device()), outline(stats, wide, input.device()),
          outline(stats, wide, input.device())};
}

void forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& input, const Tensor& weight,
             const Tensor& bias, int64_t groups, double eps) {
  static const Op var_mean("var_mean.correction");
  static const Fused normalize("x mean scale shift", {"(x - mean) * scale + shift"}),
      plain("x mean scale", {"(x - mean) * scale"});
  if (input.numel() == 0) {
    raw_fill(mean, 0.0);
    return raw_fill(rstd, 0.0);
  }
  DType wide = mean.dtype();
  Tensor x = grouped(input, groups);
  Dims inner = {2, 3};
  auto [var, centre] = var_mean.multi<2>(raw_cast(x, wide), inner, Scalar(0), true);
  raw_copy(mean, centre);
  raw_copy(rstd, ops::rsqrt(ops::add(var, eps)));
  auto spread = [&](const Tensor& t) { return raw_expand(t, x.sizes(), "group_norm"); };
  Tensor y = raw_view(out, x.sizes());
  Tensor scale = weight.defined() ? ops::mul(rstd, beside(weight, x.sizes(), wide)) : rstd;
  if (!bias.defined()) return plain.run({y}, {x, spread(mean), spread(scale)});
  normalize.run({y}, {x, spread(mean), spread(scale), spread(beside(bias, x.sizes(), wide))});
}

// dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = grad * weight
Three group_norm_backward_parts(const Tensor& grad, const Tensor& input, const Tensor&, const Tensor& rstd_saved,
                                const Tensor& weight, int64_t groups) {
  Dims sizes = grouped_sizes(input, groups), inner = {2, 3}, outer = {0, 3}, flat = {input.size(1)};
  Tensor x = ops::reshape(widened(input), sizes), g = ops::reshape(widened(grad), sizes);
  Tensor centered = ops::sub(x, ops::mean_dim(x, inner, true));
  Tensor rstd = rstd_of(centered, inner, rstd_saved), xhat = ops::mul(centered, rstd), gw = g;
  if (weight.defined()) gw = ops::mul(g, ops::reshape(widened(weight), Dims{1, sizes[1], sizes[2], 1}));
  Tensor projected = ops::mul(xhat, ops::mean_dim(ops::mul(gw, xhat), inner, true));
  Tensor dx = ops::mul(rstd, ops::sub(ops::sub(gw, ops::mean_dim(gw, inner, true)), projected));
  DType kept = parameter_type(input, weight);
  return {as_dtype(ops::reshape(dx, input.sizes()), input.dtype()),
          as_dtype(ops::reshape(ops::sum_dim(ops::mul(g, xhat), outer), flat), kept),
          as_dtype(ops::reshape(ops::sum_dim(g, outer), flat), kept)};
}

Three group_norm_backward_rule(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                               const Tensor& weight, int64_t groups) {
  group_norm_check(input, groups, weight, {});
  TS_CHECK(same(grad.sizes(), input.sizes()), "group_norm: expected grad of the input's shape ", input.sizes(),
           ", got ", grad.sizes());
  Dims stats = group_norm_statistics_sizes(input, groups);
  TS_CHECK(same(mean.sizes(), stats) && same(rstd.sizes(), stats), "group_norm: expected mean and rstd of shape ",
           IntSpan(stats), ", got ", mean.sizes(), " and ", rstd.sizes());
  DType kept = parameter_type(input, weight);
  Dims flat = {input.size(1)};
  return {outline(input.sizes(), input.dtype(), input.device()), outline(flat, kept, input.device()),
          outline(flat, kept, input.device())};
}

void backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& grad, const Tensor& input,
              const Tensor& mean, const Tensor& rstd, const Tensor& weight, int64_t groups) {
  static const Fused products("g x mean", {"g * (x - mean)"}),
      gradient("g x mean scale slope shift", {"g * scale - (x - mean) * slope - shift"});
  if (input.numel() == 0) {
    raw_fill(dw, 0.0);
    return raw_fill(db, 0.0);
  }
  DType wide = mean.dtype();
  Tensor x = grouped(input, groups), g = grouped(grad, groups);
  auto spread = [&](const Tensor& t) { return raw_expand(t, x.sizes(), "group_norm"); };
  Dims last = {3}, of_group = {2}, of_batch = {0}, flat = {input.size(1)};
  Tensor product = empty_tensor(x.sizes(), wide, x.device());
  products.run({product}, {g, x, spread(mean)});
  // Of each channel of each sample
  Tensor of_product = ops::sum_dim(product, last, true), of_grad = ops::sum_dim(g, last, true, wide);
  raw_copy(dw, raw_view(raw_contiguous(ops::sum_dim(ops::mul(of_product, rstd), of_batch)), flat));
  raw_copy(db, raw_view(raw_contiguous(ops::sum_dim(of_grad, of_batch)), flat));
  Tensor scale = rstd;
  if (weight.defined()) {
    Tensor w = beside(weight, x.sizes(), wide);
    scale = ops::mul(rstd, w);
    of_product = ops::mul(of_product, w);
    of_grad = ops::mul(of_grad, w);
  }
  double count = static_cast<double>(x.size(2) * x.size(3));
  Tensor cube = ops::mul(ops::mul(rstd, rstd), rstd);
  Tensor slope = ops::div(ops::mul(ops::sum_dim(of_product, of_group, true), cube), count);
  Tensor shift = ops::div(ops::mul(ops::sum_dim(of_grad, of_group, true), rstd), count);
  gradient.run({raw_view(dx, x.sizes())}, {g, x, spread(mean), spread(scale), spread(slope), spread(shift)});
}

void forward_gradient(GradContext& c) {
  auto [dx, dw, db] =
      group_norm_backward_op.multi<3>(c.grad(), c.arg(0), c.result(1), c.result(2), c.arg(1), c.value<int64_t>(3));
  if (c.needs(0)) c.set(0, dx);
  if (c.needs(1)) c.set(1, as_dtype(dw, c.dtype(1)));
  if (c.needs(2)) c.set(2, as_dtype(db, c.dtype(2)));
}

} // namespace

TS_OPERATORS(group_norm) {
  def("_group_norm(Tensor input, Tensor? weight, Tensor? bias, int num_groups, float eps) -> (Tensor, Tensor, Tensor)")
      .rule<group_norm_forward_rule>()
      .decompose<forward, 3>()
      .saves("input weight result1 result2")
      .gradient(forward_gradient)
      .node_name("NativeGroupNormBackward0")
      .hidden()
      .doc("group_norm, with the mean and 1 / sqrt(var + eps) of each group (float32 for half inputs).");
  def("_group_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int num_groups) -> "
      "(Tensor, Tensor, Tensor)")
      .rule<group_norm_backward_rule>()
      .decompose<backward, 3>()
      .saves("grad input mean rstd weight")
      .gradient(traced_gradient<group_norm_backward_parts>)
      .hidden()
      .doc("Gradients of _group_norm's first result by input, weight and bias.");
}

} // namespace ts
