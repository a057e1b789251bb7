// The fully connected layer, with one kernel where the backend has it.
#include "dispatch/launch.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/linalg/matmul_launch.h"
#include "ops/reduce/reduce_arrange.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kLinearCode = "sees the weight as a matrix that lies by rows or by columns";

const KernelId kLinear("linear");

void check_linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  TS_CHECK(input.ndim() >= 1, "linear: expected an input of at least one dimension, got a 0-d tensor");
  TS_CHECK(weight.ndim() == 1 || weight.ndim() == 2, "linear: expected a weight (N, K) or (K), got shape ",
           weight.sizes());
  check_same_dtype(input, weight, "linear");
  int64_t k = weight.sizes().back();
  TS_CHECK(input.sizes().back() == k, "linear: mat1 and mat2 shapes cannot be multiplied: input ", input.sizes(),
           " has last size ", input.sizes().back(), ", weight ", weight.sizes(), " takes ", k);
  if (!bias.defined()) return;
  check_same_dtype(input, bias, "linear");
  TS_CHECK(weight.ndim() == 2 && (bias.numel() == 1 || (bias.ndim() == 1 && bias.numel() == weight.size(0))) &&
               bias.ndim() <= 1,
           "linear: expected a bias of shape [", weight.ndim() == 2 ? weight.size(0) : 1, "], got ", bias.sizes());
}

// A weight (K) is one row.
struct Problem {
  int64_t rows, out, in;
  Problem(IntSpan input, IntSpan weight) : out(weight.size() == 2 ? weight[0] : 1), in(weight.back()) {
    rows = checked_numel(input.first(input.size() - 1));
  }
  // Of inputs (..., K), of results or their gradients (..., N), and the weight.
  Matrix inputs(const Tensor& t) const { return {t, rows, in}; }
  Matrix results(const Tensor& t) const { return {t, rows, out}; }
  Matrix weights(const Tensor& t) const { return t.ndim() == 2 ? Matrix(t, false) : Matrix(t, out, in); }
};

Tensor linear_rule(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_linear(input, weight, bias);
  Dims sizes(input.sizes());
  sizes.pop_back();
  if (weight.ndim() == 2) sizes.push_back(weight.size(0));
  return outline(sizes, input.dtype(), input.device());
}

void linear(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  Problem p(input.sizes(), weight.sizes());
  Tensor hold;
  const Tensor& x = raw_dense(input, hold);
  Matrix w = p.weights(weight);
  if (x.numel() && (!bias.defined() || bias.numel() == p.out)) {
    int64_t work = 0;
    if (__builtin_mul_overflow(out.numel(), p.in, &work)) work = INT64_MAX;
    Dims sizes(out.sizes());
    if (weight.ndim() == 1) sizes.push_back(1);
    Dims strides = contiguous_strides(sizes);
    if (Launch(kLinear, x.device())
            .out(out, sizes, strides)
            .in(x)
            .in(w.tensor, w.sizes, w.strides)
            .in(bias)
            .work(work / 64)
            .run())
      return;
  }
  int64_t x_sizes[] = {p.rows, p.in}, out_sizes[] = {p.rows, p.out};
  Tensor flat_x = alias(x, x_sizes, contiguous_strides(x_sizes), x->byte_offset);
  Tensor flat_out = alias(out, out_sizes, contiguous_strides(out_sizes), out->byte_offset);
  launch_matmul(flat_out, flat_x, raw_transpose(alias(w.tensor, w.sizes, w.strides, w.tensor->byte_offset), 0, 1),
                bias);
}

// Its gradients, each an operator: the three are one another's derivatives.
const Op linear_op("linear"), linear_backward_input_op("linear_backward_input"),
    linear_backward_weight_op("linear_backward_weight"), sum_to_size_op("_sum_to_size");

void linear_check_grad(const char* op, const Tensor& grad, IntSpan input, IntSpan weight) {
  TS_CHECK(!input.empty() && (weight.size() == 1 || weight.size() == 2) && input.back() == weight.back(), op,
           ": expected an input (..., K) and a weight (N, K) or (K), got shapes ", input, " and ", weight);
  Dims sizes(input.first(input.size() - 1));
  if (weight.size() == 2) sizes.push_back(weight[0]);
  TS_CHECK(same(grad.sizes(), sizes), op, ": expected grad of shape ", IntSpan(sizes), ", got ", grad.sizes());
}
Tensor linear_backward_input_rule(const Tensor& grad, const Tensor& weight, IntSpan input_size) {
  linear_check_grad("linear_backward_input", grad, input_size, weight.sizes());
  check_same_dtype(grad, weight, "linear_backward_input");
  return outline(input_size, grad.dtype(), grad.device());
}
void linear_backward_input(const Tensor& out, const Tensor& grad, const Tensor& weight, IntSpan input_size) {
  Problem p(input_size, weight.sizes());
  launch_product(out, p.results(grad), p.weights(weight));
}
Tensor linear_backward_weight_rule(const Tensor& grad, const Tensor& input, IntSpan weight_size) {
  linear_check_grad("linear_backward_weight", grad, input.sizes(), weight_size);
  check_same_dtype(grad, input, "linear_backward_weight");
  return outline(weight_size, grad.dtype(), grad.device());
}
void linear_backward_weight(const Tensor& out, const Tensor& grad, const Tensor& input, IntSpan weight_size) {
  Problem p(input.sizes(), weight_size);
  launch_product(out, p.results(grad).turned(), p.inputs(input));
}

void linear_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, linear_backward_input_op(c.grad(), conjugate(c.arg(1)), c.sizes(0)));
  if (c.needs(1)) c.set(1, linear_backward_weight_op(c.grad(), conjugate(c.arg(0)), c.sizes(1)));
  if (c.needs(2)) c.set(2, same(c.grad().sizes(), c.sizes(2)) ? c.grad() : sum_to_size_op(c.grad(), c.sizes(2)));
}
void linear_backward_input_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, linear_op(c.grad(), conjugate(c.arg(1))));
  if (c.needs(1)) c.set(1, linear_backward_weight_op(conjugate(c.arg(0)), c.grad(), c.sizes(1)));
}
void linear_backward_weight_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, linear_op(conjugate(c.arg(1)), c.grad()));
  if (c.needs(1)) c.set(1, linear_backward_input_op(conjugate(c.arg(0)), c.grad(), c.sizes(1)));
}

Tensor linear_turned(const Tensor& t) { return ops::transpose(t, int64_t{0}, int64_t{1}); }

// y[..., o] = sum_ij left[..., i] weight[o, i, j] right[..., j] + bias[o]
Tensor bilinear(const Tensor& left, const Tensor& right, const Tensor& weight, const Tensor& bias) {
  TS_CHECK(weight.ndim() == 3, "bilinear: expected a weight (out, in1, in2), got shape ", weight.sizes());
  TS_CHECK(left.ndim() >= 1 && left.ndim() == right.ndim(), "bilinear: input dimensions do not match: got ",
           left.ndim(), " and ", right.ndim());
  size_t lead = left.sizes().size() - 1;
  TS_CHECK(same(left.sizes().first(lead), right.sizes().first(lead)),
           "bilinear: input batch dimensions do not match: got ", left.sizes(), " and ", right.sizes());
  TS_CHECK(left.sizes().back() == weight.size(1) && right.sizes().back() == weight.size(2),
           "bilinear: inputs of last sizes ", left.sizes().back(), " and ", right.sizes().back(),
           " do not match weight ", weight.sizes());
  int64_t o = weight.size(0), i = weight.size(1), j = weight.size(2);
  int64_t stacked[] = {o * i, j}, rows_out[] = {-1, o, i};
  Dims out_sizes(left.sizes());
  out_sizes.back() = o;
  if (checked_numel(out_sizes) == 0 || i * j == 0) {
    auto total = [](const Tensor& t) { return as_dtype(ops::sum(t), t.dtype()); };
    Tensor zero = ops::mul(ops::add(ops::add(total(left), total(right)), total(weight)), 0);
    Tensor out = ops::expand(zero, out_sizes);
    return bias.defined() ? ops::add(out, bias) : out;
  }
  int64_t left_rows[] = {-1, i, 1}, right_rows[] = {-1, j};
  Tensor inner =
      ops::matmul(ops::reshape(right, IntSpan(right_rows)), linear_turned(ops::reshape(weight, IntSpan(stacked))));
  inner = ops::reshape(inner, IntSpan(rows_out)); // (rows, out, in1)
  Tensor out = ops::reshape(ops::matmul(inner, ops::reshape(left, IntSpan(left_rows))), out_sizes);
  return bias.defined() ? ops::add(out, bias) : out;
}

} // namespace

TS_OPERATORS(linear) {
  def("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
      .facts("kernel:linear")
      .facts("autocast:lower")
      .rule<linear_rule>()
      .computation<linear>(kLinearCode)
      .saves("input weight")
      .gradient(linear_gradient)
      .in("nn.functional")
      .function_only()
      .out()
      .doc("input (..., K) @ weight (N, K) transposed + bias (N): (..., N). A weight (K) gives (...).");
  def("linear_backward_input(Tensor grad, Tensor weight, int[] input_size) -> Tensor")
      .rule<linear_backward_input_rule>()
      .computation<linear_backward_input>(kLinearCode)
      .saves("grad weight")
      .gradient(linear_backward_input_gradient)
      .hidden()
      .doc("Gradient of linear by its input: grad @ weight.");
  def("linear_backward_weight(Tensor grad, Tensor input, int[] weight_size) -> Tensor")
      .rule<linear_backward_weight_rule>()
      .computation<linear_backward_weight>(kLinearCode)
      .saves("grad input")
      .gradient(linear_backward_weight_gradient)
      .hidden()
      .doc("Gradient of linear by its weight: grad transposed @ input, over all rows.");
  def("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor")
      .facts("autocast:exempt/widest")
      .body<bilinear>()
      .in("nn.functional")
      .function_only()
      .doc("y[o] = input1 @ weight[o] @ input2 + bias[o] over the last dims; weight (out, in1, in2).");
}

} // namespace ts
