// Convolution and its two gradients, each an operator: they are one another's derivatives.
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/raw.h"
#include "ops/linalg/matmul_launch.h"
#include "ops/nn/conv_shape.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

const Op conv_convolution_op("convolution"), conv_backward_input_op("convolution_backward_input"),
    conv_backward_weight_op("convolution_backward_weight");

Tensor with_sizes(const Tensor& contiguous, IntSpan sizes) {
  return alias(contiguous, sizes, contiguous_strides(sizes), contiguous->byte_offset);
}

void check_floating(const Tensor& t, const char* op) {
  TS_CHECK(t.dtype() != DType::Bool, op, ": expected a floating or complex dtype, got ", t.dtype());
}

// All three are linear in both tensors, so complex ones go by parts.
Tensor by_parts(const Op& op, const Tensor& a, const Tensor& b, const Value& third, IntSpan stride, IntSpan padding,
                IntSpan dilation, int64_t groups) {
  auto run = [&](bool i, bool j) {
    return op(raw_contiguous(raw_part(a, i)), raw_contiguous(raw_part(b, j)), third, stride, padding, dilation, groups);
  };
  Tensor re = ops::sub(run(false, false), run(true, true)), im = ops::add(run(false, true), run(true, false));
  return ops::complex(re, im);
}

// Sizes of a grouped matrix problem: weight (G, O/G, C/G * kernel), windows (N, G, C/G * kernel, positions).
struct Columns {
  int64_t n, groups, out_per_group, depth, positions;
  Dims windows() const { return {n, groups, depth, positions}; }
  Dims outputs() const { return {n, groups, out_per_group, positions}; }
  Dims weights() const { return {groups, out_per_group, depth}; }
};
Columns columns_of(IntSpan out, IntSpan weight, int64_t groups) {
  return {out[0], groups, weight[0] / groups, checked_numel(weight.subspan(1)), checked_numel(out.subspan(2))};
}

// (N, G, C/G * kernel, positions), copied out of the overlapping windows.
Tensor gather_columns(const Tensor& input, IntSpan weight, IntSpan out, const ConvShape& s, const Columns& c) {
  Tensor windows = window_view(padded_copy(input, s, 0), s, weight.subspan(2), out.subspan(2));
  return with_sizes(raw_contiguous(windows), c.windows());
}

void convolve_columns(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias,
                      const ConvShape& s) {
  Columns c = columns_of(out.sizes(), weight.sizes(), s.groups);
  Tensor w = raw_expand(with_sizes(raw_contiguous(weight), c.weights()), Dims{c.n, c.groups, c.out_per_group, c.depth},
                        "convolution");
  Tensor y = empty_tensor(c.outputs(), out.dtype(), out.device());
  launch_matmul(y, w, gather_columns(input, weight.sizes(), out.sizes(), s, c));
  if (bias.defined()) ops::add_(y, with_sizes(raw_contiguous(bias), Dims{c.groups, c.out_per_group, 1}));
  raw_copy(out, with_sizes(y, out.sizes()));
}

Tensor convolution_rule(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
                        IntSpan dilation, int64_t groups) {
  const char* op = "convolution";
  check_floating(input, op);
  check_same_dtype(input, weight, op);
  TS_CHECK(input.ndim() >= 3, op, ": expected an input (N, C, spatial...), got shape ", input.sizes());
  ConvShape s = conv_shape(stride, padding, dilation, groups, input.sizes().size() - 2, op);
  Dims sizes = conv_output_sizes(input.sizes(), weight.sizes(), s, op);
  if (bias.defined()) {
    check_same_dtype(input, bias, op);
    TS_CHECK(bias.ndim() == 1 && bias.numel() == weight.size(0), op, ": expected bias to be 1-dimensional with ",
             weight.size(0), " elements, but got bias of size ", bias.sizes());
  }
  return outline_in_layout(sizes, input.dtype(), input.device(), is_channels_last(input) || is_channels_last(weight));
}

void convolution(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride,
                 IntSpan padding, IntSpan dilation, int64_t groups) {
  ConvShape s = conv_shape(stride, padding, dilation, groups, input.sizes().size() - 2, "convolution");
  if (is_complex(input.dtype())) {
    Tensor y = by_parts(conv_convolution_op, input, weight, Value(), stride, padding, dilation, groups);
    Dims per_channel(s.stride.size() + 1, 1);
    per_channel[0] = out.sizes()[1];
    return raw_copy(out, bias.defined() ? ops::add(y, with_sizes(raw_contiguous(bias), per_channel)) : y);
  }
  if (input.numel() == 0 || weight.numel() == 0) {
    raw_fill(out, 0);
    Dims per_channel(s.stride.size() + 1, 1);
    per_channel[0] = out.size(1);
    if (bias.defined()) ops::add_(out, with_sizes(raw_contiguous(bias), per_channel));
    return;
  }
  convolve_columns(out, input, weight, bias.defined() ? raw_contiguous(bias) : bias, s);
}

void conv_check_grad(const Tensor& grad, IntSpan want, const char* op) {
  TS_CHECK(same(grad.sizes(), want), op, ": expected grad of shape ", want, ", got ", grad.sizes());
}

Tensor conv_backward_input_rule(const Tensor& grad, const Tensor& weight, IntSpan input_size, IntSpan stride,
                                IntSpan padding, IntSpan dilation, int64_t groups) {
  const char* op = "convolution_backward_input";
  check_same_dtype(grad, weight, op);
  check_floating(grad, op);
  TS_CHECK(input_size.size() >= 3, op, ": expected input_size (N, C, spatial...), got ", input_size);
  ConvShape s = conv_shape(stride, padding, dilation, groups, input_size.size() - 2, op);
  conv_check_grad(grad, conv_output_sizes(input_size, weight.sizes(), s, op), op);
  return outline_in_layout(input_size, grad.dtype(), grad.device(), is_channels_last(grad) || is_channels_last(weight));
}

void conv_backward_input(const Tensor& out, const Tensor& grad, const Tensor& weight, IntSpan input_size,
                         IntSpan stride, IntSpan padding, IntSpan dilation, int64_t groups) {
  const char* op = "convolution_backward_input";
  if (grad.numel() == 0) return raw_fill(out, 0);
  if (is_complex(grad.dtype()))
    return raw_copy(out, by_parts(conv_backward_input_op, grad, weight, input_size, stride, padding, dilation, groups));
  ConvShape s = conv_shape(stride, padding, dilation, groups, input_size.size() - 2, op);
  Columns c = columns_of(grad.sizes(), weight.sizes(), groups);
  Tensor turned = raw_transpose(with_sizes(raw_contiguous(weight), c.weights()), 1, 2);
  Tensor windows = empty_tensor(c.windows(), grad.dtype(), grad.device());
  launch_matmul(windows, raw_expand(turned, Dims{c.n, c.groups, c.depth, c.out_per_group}, op),
                with_sizes(raw_contiguous(grad), c.outputs()));
  Dims spread = {input_size[0], input_size[1]};
  IntSpan kernel = weight.sizes().subspan(2);
  for (int64_t k : kernel) spread.push_back(k);
  for (int64_t o : grad.sizes().subspan(2)) spread.push_back(o);
  raw_copy(out, sum_windows(raw_cast(with_sizes(windows, spread), accumulate_type(out)), s, kernel, input_size));
}

Tensor conv_backward_weight_rule(const Tensor& grad, const Tensor& input, IntSpan weight_size, IntSpan stride,
                                 IntSpan padding, IntSpan dilation, int64_t groups) {
  const char* op = "convolution_backward_weight";
  check_same_dtype(grad, input, op);
  check_floating(grad, op);
  TS_CHECK(input.ndim() >= 3, op, ": expected an input (N, C, spatial...), got shape ", input.sizes());
  ConvShape s = conv_shape(stride, padding, dilation, groups, input.sizes().size() - 2, op);
  conv_check_grad(grad, conv_output_sizes(input.sizes(), weight_size, s, op), op);
  return outline_in_layout(weight_size, grad.dtype(), grad.device(), false);
}

void conv_backward_weight(const Tensor& out, const Tensor& grad, const Tensor& input, IntSpan weight_size,
                          IntSpan stride, IntSpan padding, IntSpan dilation, int64_t groups) {
  if (grad.numel() == 0 || input.numel() == 0) return raw_fill(out, 0);
  if (is_complex(grad.dtype()))
    return raw_copy(out,
                    by_parts(conv_backward_weight_op, grad, input, weight_size, stride, padding, dilation, groups));
  ConvShape s = conv_shape(stride, padding, dilation, groups, input.sizes().size() - 2, "convolution_backward_weight");
  Columns c = columns_of(grad.sizes(), weight_size, groups);
  Tensor columns = gather_columns(input, weight_size, grad.sizes(), s, c);
  Tensor each = empty_tensor(Dims{c.n, c.groups, c.out_per_group, c.depth}, grad.dtype(), grad.device());
  launch_matmul(each, with_sizes(raw_contiguous(grad), c.outputs()), raw_transpose(columns, 2, 3));
  int64_t first[] = {0};
  raw_copy(out, with_sizes(raw_contiguous(ops::sum_dim(each, IntSpan(first))), weight_size));
}

// The geometry arguments of all three stand at 3..6 of convolution and of the gradients alike.
struct Geometry {
  Value stride, padding, dilation, groups;
  explicit Geometry(GradContext& c)
      : stride(c.value(3)), padding(c.value(4)), dilation(c.value(5)), groups(c.value(6)) {}
};

Tensor channel_sums(const Tensor& grad) {
  Dims dims;
  for (int64_t d = 0; d < grad.ndim(); ++d)
    if (d != 1) dims.push_back(d);
  return ops::sum_dim(grad, dims);
}

void convolution_gradient(GradContext& c) {
  Geometry g(c);
  if (c.needs(0))
    c.set(0,
          conv_backward_input_op(c.grad(), conjugate(c.arg(1)), c.sizes(0), g.stride, g.padding, g.dilation, g.groups));
  if (c.needs(1))
    c.set(1, conv_backward_weight_op(c.grad(), conjugate(c.arg(0)), c.sizes(1), g.stride, g.padding, g.dilation,
                                     g.groups));
  if (c.needs(2)) c.set(2, channel_sums(c.grad()));
}
void conv_backward_input_gradient(GradContext& c) {
  Geometry g(c);
  if (c.needs(0))
    c.set(0, conv_convolution_op(c.grad(), conjugate(c.arg(1)), Value(), g.stride, g.padding, g.dilation, g.groups));
  if (c.needs(1))
    c.set(1, conv_backward_weight_op(conjugate(c.arg(0)), c.grad(), c.sizes(1), g.stride, g.padding, g.dilation,
                                     g.groups));
}
void conv_backward_weight_gradient(GradContext& c) {
  Geometry g(c);
  if (c.needs(0))
    c.set(0, conv_convolution_op(conjugate(c.arg(1)), c.grad(), Value(), g.stride, g.padding, g.dilation, g.groups));
  if (c.needs(1))
    c.set(1,
          conv_backward_input_op(conjugate(c.arg(0)), c.grad(), c.sizes(1), g.stride, g.padding, g.dilation, g.groups));
}

} // namespace

TS_OPERATORS(conv) {
  def("convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups) "
      "-> Tensor")
      .facts("autocast:lower")
      .rule<convolution_rule>()
      .kernel("convolution", "input: layout leads; weight: contiguous leads; bias: contiguous",
              "stride each input, padding each input, dilation each input, groups")
      .heavy()
      .decompose<convolution>()
      .saves("input weight")
      .gradient(convolution_gradient)
      .hidden()
      .doc("Cross-correlation of input (N, C, spatial...) with weight (O, C/groups, kernel...), 1 to 3 spatial dims, "
           "plus bias (O).");
  def("convolution_backward_input(Tensor grad, Tensor weight, int[] input_size, int[] stride, int[] padding, int[] "
      "dilation, int groups) -> Tensor")
      .rule<conv_backward_input_rule>()
      .kernel("convolution_backward_input", "grad: layout leads; weight: contiguous leads",
              "input_size, stride each grad, padding each grad, dilation each grad, groups")
      .heavy()
      .decompose<conv_backward_input>()
      .saves("grad weight")
      .gradient(conv_backward_input_gradient)
      .node_name("ConvolutionBackward0") // of a transposed one
      .hidden()
      .doc("Gradient of convolution by its input; also the transposed convolution of grad.");
  def("convolution_backward_weight(Tensor grad, Tensor input, int[] weight_size, int[] stride, int[] padding, int[] "
      "dilation, int groups) -> Tensor")
      .rule<conv_backward_weight_rule>()
      .kernel("convolution_backward_weight", "grad: layout; input: layout leads",
              "weight_size, stride each input, padding each input, dilation each input, groups")
      .heavy()
      .decompose<conv_backward_weight>()
      .saves("grad input")
      .gradient(conv_backward_weight_gradient)
      .hidden()
      .doc("Gradient of convolution by its weight.");
}

} // namespace ts
