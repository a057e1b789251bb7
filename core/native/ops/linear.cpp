// The fully connected layer, with one kernel where the backend has it.
#include "dispatch/launch.h"
#include "ops/api.h"
#include "ops/declare.h"
#include "ops/matmul_launch.h"
#include "ops/raw.h"
#include "ops/reduce_arrange.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

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

Tensor as_row(const Tensor& v) {
  int64_t sizes[] = {1, v.numel()}, strides[] = {0, v.strides()[0]};
  return alias(v, sizes, strides, v->byte_offset);
}

Tensor linear(const Tensor& input, const Tensor& vector_or_matrix, const Tensor& bias) {
  check_linear(input, vector_or_matrix, bias);
  bool single = vector_or_matrix.ndim() == 1;
  Tensor weight = single ? as_row(vector_or_matrix) : vector_or_matrix;
  Dims sizes(input.sizes());
  sizes.back() = weight.size(0);
  Tensor out = empty_tensor(sizes, input.dtype(), input.device());
  if (single) sizes.pop_back();
  if (out.numel() == 0) return reshaped(std::move(out), sizes);
  Tensor x = raw_contiguous(input);
  if (x.numel() && (!bias.defined() || bias.numel() == weight.size(0))) {
    int64_t work = 0;
    if (__builtin_mul_overflow(out.numel(), weight.size(1), &work)) work = INT64_MAX;
    if (Launch(kLinear, x.device()).out(out).in(x).in(weight).in(bias).work(work / 64).run())
      return single ? reshaped(std::move(out), sizes) : out;
  }
  int64_t n = weight.size(0), rows = out.numel() / n;
  int64_t x_sizes[] = {rows, weight.size(1)}, out_sizes[] = {rows, n};
  Tensor flat_x = alias(x, x_sizes, contiguous_strides(x_sizes), x->byte_offset);
  Tensor flat_out = alias(out, out_sizes, contiguous_strides(out_sizes), out->byte_offset);
  launch_matmul(flat_out, flat_x, raw_transpose(weight, 0, 1), bias);
  return reshaped(std::move(out), sizes);
}

Tensor matrix_of(const Tensor& t) {
  if (t.ndim() == 2) return t;
  int64_t sizes[] = {checked_numel(t.sizes().first(t.sizes().size() - 1)), t.sizes().back()};
  if (!is_plain(t) || !t.is_contiguous()) return ops::reshape(t, IntSpan(sizes));
  return alias(t, sizes, contiguous_strides(sizes), t->byte_offset);
}

Tensor product(const Tensor& a, const Tensor& b) {
  return is_plain(a, b) ? multiply_matrices(a, b, "linear") : ops::mm(a, b);
}
Tensor turned(const Tensor& t) {
  return is_plain(t) ? raw_transpose(t, 0, 1) : ops::transpose(t, int64_t{0}, int64_t{1});
}

Tensor bias_gradient(const Tensor& rows, IntSpan sizes) {
  int64_t n = sizes.empty() ? 1 : sizes[0];
  if (n == 1 && rows.size(1) != 1) return ops::reshape(ops::sum(rows), sizes);
  if (is_plain(rows)) return reshaped(run_reduce("linear", TS_R_SUM, rows, 1, false, rows.dtype()), sizes);
  int64_t first[] = {0};
  return ops::reshape(ops::sum_dim(rows, IntSpan(first)), sizes);
}

void linear_gradient(GradContext& c) {
  bool single = c.sizes(1).size() == 1;
  Tensor rows = matrix_of(single ? ops::unsqueeze(c.grad(), int64_t{-1}) : c.grad());
  if (c.needs(0)) {
    Tensor dx = product(rows, single ? ops::unsqueeze(c.arg(1), int64_t{0}) : c.arg(1));
    bool flat = c.sizes(0).size() == 2;
    c.set(0, flat ? std::move(dx) : is_plain(dx) ? reshaped(std::move(dx), c.sizes(0)) : ops::reshape(dx, c.sizes(0)));
  }
  if (c.needs(1)) {
    Tensor dw = product(turned(rows), matrix_of(c.arg(0)));
    c.set(1, single ? ops::reshape(dw, c.sizes(1)) : dw);
  }
  if (c.needs(2)) c.set(2, bias_gradient(rows, c.sizes(2)));
}

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
    Tensor zero = ops::mul(ops::add(ops::add(ops::sum(left), ops::sum(right)), ops::sum(weight)), 0);
    Tensor out = ops::expand(zero, out_sizes);
    return bias.defined() ? ops::add(out, bias) : out;
  }
  int64_t left_rows[] = {-1, i, 1}, right_rows[] = {-1, j};
  Tensor inner = ops::matmul(ops::reshape(right, IntSpan(right_rows)), turned(ops::reshape(weight, IntSpan(stacked))));
  inner = ops::reshape(inner, IntSpan(rows_out)); // (rows, out, in1)
  Tensor out = ops::reshape(ops::matmul(inner, ops::reshape(left, IntSpan(left_rows))), out_sizes);
  return bias.defined() ? ops::add(out, bias) : out;
}

} // namespace

TS_OPERATORS(linear) {
  def("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
      .body<linear>()
      .saves("input weight")
      .gradient(linear_gradient)
      .in("nn.functional")
      .function_only()
      .doc("input (..., K) @ weight (N, K) transposed + bias (N): (..., N). A weight (K) gives (...).");
  def("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor")
      .body<bilinear>()
      .in("nn.functional")
      .function_only()
      .doc("y[o] = input1 @ weight[o] @ input2 + bias[o] over the last dims; weight (out, in1, in2).");
}

} // namespace ts
