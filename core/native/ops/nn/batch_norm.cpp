// Batch normalisation (Ioffe and Szegedy, arXiv:1502.03167) and its gradients.
#include "autograd/traced.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/no_gradient.h"
#include "ops/nn/norm_parts.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

const Op batch_norm_forward_op("native_batch_norm"), batch_norm_backward_op("native_batch_norm_backward");
using Three = std::tuple<Tensor, Tensor, Tensor>;

struct Channels {
  int64_t count;   // C
  int64_t per = 0; // values per channel
  Dims others;     // all dims but the channel's
  Dims broadcast;  // (C) beside the input: (1, C, 1, ...)
  explicit Channels(IntSpan input) : count(input[1]), broadcast(input.size(), 1) {
    broadcast[1] = count;
    per = 1;
    for (size_t d = 0; d < input.size(); ++d) {
      if (d == 1) continue;
      others.push_back(static_cast<int64_t>(d));
      per *= input[d];
    }
  }
  Tensor beside(const Tensor& t) const { return ops::reshape(t, broadcast); }
};

void check_input(const Tensor& input) {
  TS_CHECK(is_floating(input.dtype()), "batch_norm: expected a floating input, got ", input.dtype());
  TS_CHECK(input.ndim() >= 2, "batch_norm: expected an input (N, C, ...), got shape ", input.sizes());
}
void check_channel_vector(const Tensor& t, const Tensor& input, const char* name) {
  if (!t.defined()) return;
  TS_CHECK(t.ndim() == 1 && t.numel() == input.size(1), "batch_norm: ", name, " should contain ", input.size(1),
           " elements not ", t.numel(), " (input ", input.sizes(), ", ", name, " ", t.sizes(), ")");
  TS_CHECK(is_floating(t.dtype()), "batch_norm: expected a floating ", name, ", got ", t.dtype());
}

// running = (1 - momentum) * running + momentum * batch
void blend_into(const Tensor& running, const Tensor& batch, double momentum) {
  Tensor mixed = ops::add(ops::mul(widened(running), 1 - momentum), ops::mul(batch, momentum));
  raw_copy(running, mixed);
}

Tensor batch_norm_outline_as(const Tensor& input) {
  return outline_in_layout(input.sizes(), input.dtype(), input.device(), is_channels_last(input));
}

Three batch_norm_forward_parts(const Tensor& input, const Tensor& weight, const Tensor& bias,
                               const Tensor& running_mean, const Tensor& running_var, bool training, double momentum,
                               double eps) {
  Channels c(input.sizes());
  if (input.numel() == 0) {
    Tensor nothing = filled(Dims{c.count}, 0.0, accumulate_type(input), input.device());
    return {Tensor(), nothing, nothing};
  }
  Tensor x = widened(input);
  Tensor mean = training ? ops::mean_dim(x, c.others) : widened(running_mean);
  Tensor centered = ops::sub(x, c.beside(mean)), var = training ? Tensor() : widened(running_var);
  if (training) { // far from zero the mean is rounded by more than the spread bears: what is left of it is taken, too
    Tensor left = ops::mean_dim(centered, c.others);
    centered = ops::sub(centered, c.beside(left));
    mean = ops::add(mean, left);
    var = ops::mean_dim(ops::square(centered), c.others);
    double n = static_cast<double>(c.per);
    if (running_mean.defined()) blend_into(running_mean, mean, momentum);
    if (running_var.defined()) blend_into(running_var, ops::mul(var, n / (n - 1)), momentum);
  }
  Tensor rstd = ops::rsqrt(ops::add(var, eps));
  Tensor y = ops::mul(centered, c.beside(rstd));
  if (weight.defined()) y = ops::mul(y, c.beside(widened(weight)));
  if (bias.defined()) y = ops::add(y, c.beside(widened(bias)));
  return {y, mean, rstd};
}

Three batch_norm_forward_rule(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                              const Tensor& running_var, bool training, double, double) {
  check_input(input);
  check_channel_vector(weight, input, "weight");
  check_channel_vector(bias, input, "bias");
  check_channel_vector(running_mean, input, "running_mean");
  check_channel_vector(running_var, input, "running_var");
  if (training && running_mean.defined()) check_inplace(running_mean, "batch_norm");
  if (training && running_var.defined()) check_inplace(running_var, "batch_norm");
  TS_CHECK(training || (running_mean.defined() && running_var.defined()),
           "batch_norm: expected running_mean and running_var when not training");
  int64_t channels[] = {input.size(1)};
  DType wide = accumulate_type(input);
  return {batch_norm_outline_as(input), outline(channels, wide, input.device()),
          outline(channels, wide, input.device())};
}

Three batch_norm_backward_parts(const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& mean,
                                const Tensor& rstd_saved, bool training) {
  Channels c(input.sizes());
  Tensor x = widened(input), g = widened(grad);
  Tensor centered = ops::sub(x, training ? ops::mean_dim(x, c.others, true) : ops::detach(c.beside(mean)));
  Tensor rstd = training ? rstd_of(centered, c.others, c.beside(rstd_saved)) : ops::detach(c.beside(rstd_saved));
  Tensor xhat = ops::mul(centered, rstd);
  Tensor gw = weight.defined() ? ops::mul(g, c.beside(widened(weight))) : g;
  Tensor inner = gw;
  if (training) {
    Tensor projected = ops::mul(xhat, ops::mean_dim(ops::mul(gw, xhat), c.others, true));
    inner = ops::sub(ops::sub(gw, ops::mean_dim(gw, c.others, true)), projected);
  }
  Tensor dx = as_dtype(ops::mul(rstd, inner), input.dtype());
  DType kept = parameter_type(input, weight);
  return {dx, as_dtype(ops::sum_dim(ops::mul(g, xhat), c.others), kept), as_dtype(ops::sum_dim(g, c.others), kept)};
}

Three batch_norm_backward_rule(const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& mean,
                               const Tensor& rstd, bool) {
  check_input(input);
  check_channel_vector(weight, input, "weight");
  int64_t channels[] = {input.size(1)};
  DType wide = accumulate_type(input);
  TS_CHECK(same(grad.sizes(), input.sizes()) && grad.dtype() == input.dtype(),
           "native_batch_norm_backward: expected grad like the input, ", input.dtype(), input.sizes(), ", got ",
           grad.dtype(), grad.sizes());
  for (const Tensor* t : {&mean, &rstd})
    TS_CHECK(same(t->sizes(), channels) && t->dtype() == wide,
             "native_batch_norm_backward: expected statistics of shape ", IntSpan(channels), " in ", wide, ", got ",
             t->dtype(), t->sizes());
  DType kept = parameter_type(input, weight);
  return {batch_norm_outline_as(input), outline(channels, kept, input.device()),
          outline(channels, kept, input.device())};
}

void batch_norm_gradient(GradContext& c) {
  no_gradient_by(c, {3, 4}); // the running statistics
  auto [dx, dw, db] =
      batch_norm_backward_op.multi<3>(c.grad(), c.arg(0), c.arg(1), c.result(1), c.result(2), c.value(5));
  if (c.needs(0)) c.set(0, dx);
  if (c.needs(1)) c.set(1, as_dtype(dw, c.dtype(1)));
  if (c.needs(2)) c.set(2, as_dtype(db, c.dtype(2)));
}

Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  if (input.ndim() == 1 && input.numel() == 0) return ops::clone(input); // no channels, as PyTorch takes it
  check_input(input);
  if (training) {
    Channels c(input.sizes());
    TS_CHECK_VALUE(c.per != 1, "batch_norm: Expected more than 1 value per channel when training, got input size ",
                   input.sizes());
    TS_CHECK_VALUE(eps > 0, "batch_norm: eps must be positive during training, but got ", eps);
  }
  return batch_norm_forward_op(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

} // namespace

TS_OPERATORS(batch_norm) {
  def("batch_norm(Tensor input, Tensor(a!)? running_mean, Tensor(b!)? running_var, Tensor? weight=None, Tensor? "
      "bias=None, "
      "bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor")
      .body<batch_norm>()
      .in("nn.functional")
      .function_only()
      .writes_where("training")
      .doc("(x - mean) / sqrt(var + eps) * weight + bias per channel of input (N, C, ...). Training takes the batch's "
           "statistics and mixes them "
           "into running_mean and running_var (unbiased variance) by momentum; otherwise the running ones are used.");
  def("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? "
      "running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)")
      .rule<batch_norm_forward_rule>()
      .kernel(
          "native_batch_norm",
          "input: layout leads; weight bias: contiguous parameter; running_mean running_var: contiguous accumulate if "
          "training",
          "training, momentum, eps")
      .decompose<batch_norm_forward_parts>()
      .writes_where("training")
      .saves("input weight result1 result2")
      .gradient(batch_norm_gradient)
      .hidden()
      .doc("batch_norm, with the mean and 1 / sqrt(var + eps) used for each channel.");
  def("native_batch_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor save_mean, Tensor save_rstd, bool "
      "training) -> (Tensor, Tensor, Tensor)")
      .rule<batch_norm_backward_rule>()
      .kernel("native_batch_norm_backward",
              "grad: layout; input: layout leads; weight: contiguous parameter; save_mean save_rstd: contiguous",
              "training")
      .decompose<batch_norm_backward_parts>()
      .saves("grad input weight save_mean save_rstd")
      .gradient(traced_gradient<batch_norm_backward_parts>)
      .hidden()
      .doc("Gradients of native_batch_norm's first result by input, weight and bias.");
}

} // namespace ts
