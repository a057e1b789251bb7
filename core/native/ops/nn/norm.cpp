// Normalisations made of others: per group, per instance, by root mean square, by length, over neighbours.
#include "autograd/traced.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/nn/norm_parts.h"
#include <cmath>
#include <limits>

namespace ts {
namespace {

const Op group_norm_op("_group_norm"), batch_norm_op("native_batch_norm"), vector_norm("linalg_vector_norm"),
    norm_avg_pool2d("avg_pool2d");

// (1, C, 1, ...): a value per channel beside an input (N, C, ...).
Tensor per_channel(const Tensor& t, int64_t ndim) {
  Dims sizes(static_cast<size_t>(ndim), 1);
  sizes[1] = t.numel();
  return ops::reshape(t, sizes);
}
Tensor scale_channels(Tensor x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) x = ops::mul(x, per_channel(as_dtype(weight, x.dtype()), x.ndim()));
  if (bias.defined()) x = ops::add(x, per_channel(as_dtype(bias, x.dtype()), x.ndim()));
  return x;
}
// A half input beside wider parameters, as they are; other inputs as they are.
Tensor as_parameters(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  DType of_weight = parameter_type(input, weight);
  return as_dtype(input, of_weight == input.dtype() ? parameter_type(input, bias) : of_weight);
}
void check_channels(const char* op, const char* name, const Tensor& t, int64_t channels) {
  TS_CHECK(!t.defined() || (t.ndim() == 1 && t.numel() == channels), op, ": Expected ", name,
           " to be a vector of size equal to the number of channels in input, ", channels, ", but got shape ",
           t.defined() ? t.sizes() : IntSpan());
}

Tensor group_norm_rule(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias, double) {
  TS_CHECK(input.ndim() >= 2, "group_norm: Expected at least 2 dimensions for input tensor but received ",
           input.ndim());
  int64_t channels = input.size(1);
  TS_CHECK(num_groups > 0, "group_norm: expected num_groups to be greater than 0, got ", num_groups);
  TS_CHECK(channels % num_groups == 0,
           "group_norm: Expected number of channels in input to be divisible by num_groups, but got input of shape ",
           input.sizes(), " and num_groups=", num_groups);
  check_channels("group_norm", "weight", weight, channels);
  check_channels("group_norm", "bias", bias, channels);
  return outline(input.sizes(), input.dtype(), input.device());
}
Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  group_norm_rule(input, num_groups, weight, bias, eps);
  if (input.numel() == 0) return scale_channels(ops::mul(input, 1), weight, bias);
  Tensor x = as_parameters(input, weight, bias);
  auto [y, mean, rstd] = group_norm_op.multi<3>(x, weight, bias, num_groups, eps);
  return as_laid_out(input, as_dtype(y, input.dtype()));
}

// With eps 0, values that are all the same are normalised to 0, not to 0 / 0, as in PyTorch.
Tensor normalized_instances(const Tensor& x, const Tensor& mean, const Tensor& var, double momentum) {
  if (mean.defined() || var.defined()) batch_norm_op(x, Value(), Value(), mean, var, true, momentum, 0.0); // for these
  const int64_t flat[] = {x.size(1), -1}, along[] = {1};
  Tensor rows = ops::reshape(x, IntSpan(flat));
  Tensor same = ops::eq(ops::amax(rows, IntSpan(along), true), ops::amin(rows, IntSpan(along), true));
  Tensor apart = ops::arange(int64_t{0}, rows.size(1), int64_t{1}, x.dtype(), x.device());
  Tensor some = ops::reshape(ops::add(rows, ops::mul(ops::to_dtype(same, x.dtype()), apart)), x.sizes());
  Tensor y = batch_norm_op(some, Value(), Value(), Tensor(), Tensor(), true, momentum, 0.0);
  return ops::reshape(ops::masked_fill(ops::reshape(y, IntSpan(flat)), same, Scalar(0)), x.sizes());
}

// A batch of one with a channel per instance. Running statistics take the mean of the instances'.
Tensor instance_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps) {
  TS_CHECK(input.ndim() >= 3, "instance_norm: expected an input (N, C, spatial...), got shape ", input.sizes());
  int64_t n = input.size(0), c = input.size(1);
  int64_t spatial = 1;
  for (int64_t d = 2; d < input.ndim(); ++d) spatial *= input.size(d);
  TS_CHECK_VALUE(!use_input_stats || spatial != 1,
                 "instance_norm: Expected more than 1 spatial element when training, got input size ", input.sizes());
  TS_CHECK(use_input_stats || (running_mean.defined() && running_var.defined()),
           "instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false");
  for (auto [name, t] :
       {std::pair{"weight", &weight}, {"bias", &bias}, {"running_mean", &running_mean}, {"running_var", &running_var}})
    check_channels("instance_norm", name, *t, c);
  Dims as_batch(input.sizes());
  as_batch[0] = 1;
  as_batch[1] = n * c;
  int64_t per_instance[] = {n, c}, flat[] = {n * c}, instances[] = {0};
  auto repeated = [&](const Tensor& t) {
    return t.defined() ? ops::clone(ops::reshape(ops::expand(t, IntSpan(per_instance)), IntSpan(flat))) : Tensor();
  };
  Tensor mean = repeated(running_mean), var = repeated(running_var);
  Tensor x = ops::reshape(as_parameters(input, weight, bias), as_batch);
  Tensor y = eps == 0 && use_input_stats && x.numel() > 0
                 ? normalized_instances(x, mean, var, momentum)
                 : batch_norm_op(x, Value(), Value(), mean, var, use_input_stats, momentum, eps);
  if (use_input_stats && n > 0) {
    if (mean.defined())
      ops::copy_(ops::detach(running_mean),
                 ops::mean_dim(ops::reshape(mean, IntSpan(per_instance)), IntSpan(instances)));
    if (var.defined())
      ops::copy_(ops::detach(running_var), ops::mean_dim(ops::reshape(var, IntSpan(per_instance)), IntSpan(instances)));
  }
  return as_dtype(scale_channels(ops::reshape(y, input.sizes()), weight, bias), input.dtype());
}

double epsilon_of(DType t) {
  return t == DType::Float64 || t == DType::Complex128 ? std::numeric_limits<double>::epsilon()
                                                       : std::numeric_limits<float>::epsilon();
}

Tensor rms_norm_rule(const Tensor& input, IntSpan shape, const Tensor& weight, std::optional<double>) {
  TS_CHECK(is_differentiable(input.dtype()), "rms_norm: expected a floating or complex input, got ", input.dtype());
  TS_CHECK(!shape.empty() && shape.size() <= input.sizes().size() && same(input.sizes().last(shape.size()), shape),
           "rms_norm: Given normalized_shape=", shape, ", expected input with shape [*, ", shape,
           "], but got input of size", input.sizes());
  TS_CHECK(!weight.defined() || same(weight.sizes(), shape),
           "rms_norm: Expected weight to be of same shape as normalized_shape, but got ",
           weight.defined() ? weight.sizes() : IntSpan(), " and normalized_shape = ", shape);
  return outline_like(input, input.dtype());
}
Tensor rms_norm(const Tensor& input, IntSpan shape, const Tensor& weight, std::optional<double> eps) {
  rms_norm_rule(input, shape, weight, eps);
  Dims dims;
  for (size_t d = 0; d < shape.size(); ++d) dims.push_back(-1 - static_cast<int64_t>(d));
  Tensor x = widened(input);
  Tensor mean_square = ops::mean_dim(ops::square(x), dims, true);
  Tensor y = ops::mul(x, ops::rsqrt(ops::add(mean_square, eps.value_or(epsilon_of(x.dtype())))));
  if (weight.defined()) y = ops::mul(y, as_dtype(weight, y.dtype()));
  return as_dtype(y, input.dtype());
}

Tensor normalize(const Tensor& input, double p, IntSpan dim, double eps) {
  Tensor length = vector_norm(input, p, dim, true);
  return ops::div(input, ops::clamp(length, eps));
}

// x / (k + alpha * mean of x^2 over `size` neighbouring channels) ^ beta (Krizhevsky et al., 2012)
Tensor local_response_norm(const Tensor& input, int64_t size, double alpha, double beta, double k) {
  TS_CHECK_VALUE(input.ndim() >= 3, "local_response_norm: Expected 3D or higher dimensionality input (got ",
                 input.ndim(), " dimensions)");
  TS_CHECK(size > 0 && size < int64_t{1} << 31, "local_response_norm: expected a positive size, got ", size);
  if (input.numel() == 0) return ops::clone(input);
  int64_t n = input.size(0), c = input.size(1), flat[] = {n, 1, c, input.numel() / (n * c)};
  // The window of channel i is [i - size / 2, i + (size - 1) / 2]; zeros outside count.
  Tensor squares = ops::reshape(ops::square(input), IntSpan(flat));
  auto zeros = [&](int64_t rows) {
    return filled(Dims{n, 1, rows, flat[3]}, Scalar(0), input.dtype(), input.device());
  };
  std::vector<Tensor> padded = {zeros(size / 2), squares, zeros((size - 1) / 2)};
  int64_t kernel[] = {size, 1}, step[] = {1};
  Tensor mean = norm_avg_pool2d(ops::cat(padded, int64_t{2}), IntSpan(kernel), IntSpan(step));
  Tensor divisor = ops::pow(ops::add(ops::mul(ops::reshape(mean, input.sizes()), alpha), k), beta);
  return ops::div(input, divisor);
}

} // namespace

TS_OPERATORS(norm) {
  def("group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor")
      .facts("autocast:-/float32")
      .body<group_norm>()
      .rule<group_norm_rule>()
      .saves("input weight bias")
      .gradient_if_replaced(traced_gradient<group_norm>)
      .in("nn.functional")
      .function_only()
      .doc("Layer normalisation of each of num_groups groups of channels of (N, C, ...), then weight (C) and bias (C) "
           "(Wu and He, arXiv:1803.08494).");
  def("instance_norm(Tensor input, Tensor(a!)? running_mean=None, Tensor(b!)? running_var=None, Tensor? weight=None, "
      "Tensor? "
      "bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05) -> Tensor")
      .body<instance_norm>()
      .writes_where("use_input_stats")
      .in("nn.functional")
      .function_only()
      .doc("Batch normalisation of each sample's channels by themselves (Ulyanov et al., arXiv:1607.08022).");
  def("rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor")
      .facts("autocast:-/float32")
      .body<rms_norm>()
      .rule<rms_norm_rule>()
      .saves("input weight")
      .gradient_if_replaced(traced_gradient<rms_norm>)
      .in("nn.functional")
      .function_only()
      .doc("x / sqrt(mean(x^2) + eps) * weight over the trailing dims (Zhang and Sennrich, arXiv:1910.07467).");
  def("normalize(Tensor input, float p=2.0, int[1] dim=1, float eps=1e-12) -> Tensor")
      .body<normalize>()
      .in("nn.functional")
      .function_only()
      .doc("input divided by its p-norm along dim, which counts as eps at least.");
  def("local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0) -> Tensor")
      .body<local_response_norm>()
      .in("nn.functional")
      .function_only()
      .doc("input / (k + alpha * mean of squares over size neighbouring channels) ^ beta.");
}

} // namespace ts
