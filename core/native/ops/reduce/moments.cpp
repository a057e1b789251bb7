// Variance and standard deviation.
#include "dispatch/launch.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"
#include "runtime/interpreter.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kMomentsCode = "reduces the dims in an arrangement that the kernel takes";

const KernelId kVarMean("var_mean"), kStdMean("std_mean");
const Op sqrt_in_place("sqrt_");
using OptionalDims = std::optional<IntSpan>;
using Two = std::tuple<Tensor, Tensor>;

double correction_of(const std::optional<Scalar>& given) { return given ? given->to_double() : 1.0; }

// Elements in order, whatever the sizes.
void copy_flat(const Tensor& to, const Tensor& from) {
  Tensor dense = raw_contiguous(from);
  raw_copy(to, alias(dense, to.sizes(), contiguous_strides(to.sizes()), dense->byte_offset));
}

// Fewer elements than are corrected for: the result is NaN or infinite.
void warn_of_freedom(const char* op, const Tensor& self, DimSet dims, const std::optional<Scalar>& correction) {
  int64_t count = self.numel() == 0 ? 0 : reduced_count(self.sizes(), dims);
  if (correction_of(correction) > 0 && static_cast<double>(count) <= correction_of(correction))
    warn(concat(op,
                "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
                "(input numel divided by output numel); got ",
                count, " elements to reduce"));
}

Tensor moment_outline(const char* op, const Tensor& self, DimSet dims, bool keepdim, DType dtype) {
  TS_CHECK(is_differentiable(self.dtype()), op, ": ", op, " only support floating point and complex dtypes, got ",
           self.dtype());
  return reduce_outline(op, TS_R_SUM, self, dims, keepdim, dtype);
}

void moments_into(const Tensor& var, const Tensor& mean, const Tensor& self, DimSet dims, double correction);

// The variance of a complex number is that of its parts together.
void moments_of_parts(const Tensor& var, const Tensor& mean, const Tensor& self, DimSet dims, double correction) {
  Tensor other = empty_tensor(var.sizes(), var.dtype(), var.device());
  for (bool imaginary : {false, true}) {
    Tensor m = empty_tensor(mean.sizes(), var.dtype(), var.device());
    moments_into(imaginary ? other : var, m, raw_part(self, imaginary), dims, correction);
    raw_copy(raw_part(mean, imaginary), m);
  }
  ops::add_(var, other);
}

// Whether the backend has a kernel for both.
bool run_moments(KernelId kernel, const Tensor& var, const Tensor& mean, const Tensor& self, DimSet dims,
                 double correction) {
  Arranged a = arrange(self, dims, false);
  Dims strides = contiguous_strides(a.kept);
  Launch launch(kernel, self.device());
  launch.out(var, a.kept, strides).out(mean, a.kept, strides);
  a.sizes.empty() ? launch.in(self) : launch.in(self, a.sizes, a.strides);
  return launch.param(a.n_reduced).param(correction).run();
}

// Sums of squared distances over (count - correction), in the accumulation type.
void moments_into(const Tensor& var, const Tensor& mean, const Tensor& self, DimSet dims, double correction) {
  if (self.numel() == 0) {
    raw_fill(var, std::nan(""));
    return raw_fill(mean, std::nan(""));
  }
  if (is_complex(self.dtype())) return moments_of_parts(var, mean, self, dims, correction);
  if (run_moments(kVarMean, var, mean, self, dims, correction)) return;
  Tensor x = raw_cast(self, accumulate_type(self));
  Dims list = dim_list(dims);
  double count = static_cast<double>(reduced_count(self.sizes(), dims));
  // An empty list would mean every dim.
  Tensor m = list.empty() ? x : ops::mean_dim(x, list, true);
  Tensor squares = ops::square(ops::sub(x, m));
  Tensor v = ops::div(list.empty() ? squares : ops::sum_dim(squares, list, true), std::max(0.0, count - correction));
  copy_flat(var, v);
  copy_flat(mean, m);
}
// Without the mean.
void variance_into(const Tensor& var, const Tensor& self, OptionalDims dim, double correction) {
  Tensor mean = empty_tensor(var.sizes(), self.dtype(), var.device());
  moments_into(var, mean, self, dim_set(dim, self.ndim(), "var"), correction);
}

Tensor var_rule(const Tensor& self, OptionalDims dim, std::optional<Scalar> correction, bool keepdim) {
  DimSet dims = dim_set(dim, self.ndim(), "var");
  Tensor made = moment_outline("var", self, dims, keepdim, real_type(self.dtype()));
  warn_of_freedom("var", self, dims, correction);
  return made;
}
void var(const Tensor& out, const Tensor& self, OptionalDims dim, std::optional<Scalar> correction, bool) {
  variance_into(out, self, dim, correction_of(correction));
}
Two var_mean_rule(const Tensor& self, OptionalDims dim, std::optional<Scalar> correction, bool keepdim) {
  DimSet dims = dim_set(dim, self.ndim(), "var_mean");
  Two made{moment_outline("var_mean", self, dims, keepdim, real_type(self.dtype())),
           moment_outline("var_mean", self, dims, keepdim, self.dtype())};
  warn_of_freedom("var_mean", self, dims, correction);
  return made;
}
void var_mean(const Tensor& var, const Tensor& mean, const Tensor& self, OptionalDims dim,
              std::optional<Scalar> correction, bool) {
  moments_into(var, mean, self, dim_set(dim, self.ndim(), "var_mean"), correction_of(correction));
}
Tensor std_rule(const Tensor& self, OptionalDims dim, std::optional<Scalar> correction, bool keepdim) {
  DimSet dims = dim_set(dim, self.ndim(), "std");
  Tensor made = moment_outline("std", self, dims, keepdim, real_type(self.dtype()));
  warn_of_freedom("std", self, dims, correction);
  return made;
}
// The variance may overflow the dtype where its root does not.
void std_(const Tensor& out, const Tensor& self, OptionalDims dim, std::optional<Scalar> correction, bool) {
  double by = correction_of(correction);
  if (self.numel() > 0 && !is_complex(self.dtype())) {
    Tensor mean = empty_tensor(out.sizes(), self.dtype(), out.device());
    if (run_moments(kStdMean, out, mean, self, dim_set(dim, self.ndim(), "std"), by)) return;
  }
  // PyTorch rounds the variance of complex numbers to the dtype first.
  DType wide = is_complex(self.dtype()) ? out.dtype() : accumulate_type(out);
  Tensor squared = wide == out.dtype() ? out : empty_tensor(out.sizes(), wide, out.device());
  variance_into(squared, wide == out.dtype() ? self : raw_cast(self, wide), dim, by);
  sqrt_in_place(squared);
  if (!squared.is(out)) raw_copy(out, squared);
}

Tensor centered(const Tensor& self, DimSet dims) {
  Dims list = dim_list(dims);
  return list.empty() ? ops::sub(self, self) : ops::sub(self, ops::mean_dim(self, list, true));
}
// d var / dx = 2 (x - mean) / (count - correction)
Tensor variance_gradient(GradContext& c, const Tensor& grad, const Tensor& self, DimSet dims) {
  double count = static_cast<double>(reduced_count(self.sizes(), dims)),
         correction = correction_of(c.value<std::optional<Scalar>>(2));
  Tensor g = restore_dims(grad, self.sizes(), dims, c.value<bool>(3));
  return ops::mul(ops::mul(g, 2 / std::max(0.0, count - correction)), centered(self, dims));
}
void var_gradient(GradContext& c) {
  Tensor self = c.arg(0);
  c.set(0, variance_gradient(c, c.grad(), self, dim_set(c.value<OptionalDims>(1), self.ndim(), "var")));
}
// The derivative of the square root at zero is taken as zero, as PyTorch does.
void std_gradient(GradContext& c) {
  Tensor self = c.arg(0), result = c.result();
  Tensor grad = ops::masked_fill(ops::div(c.grad(), ops::mul(result, 2)), ops::eq(result, 0), 0.0);
  c.set(0, variance_gradient(c, grad, self, dim_set(c.value<OptionalDims>(1), self.ndim(), "std")));
}
void var_mean_gradient(GradContext& c) {
  Tensor self = c.arg(0);
  DimSet dims = dim_set(c.value<OptionalDims>(1), self.ndim(), "var_mean");
  double count = static_cast<double>(reduced_count(self.sizes(), dims));
  Tensor total;
  if (c.has_grad(0)) total = variance_gradient(c, c.grad(0), self, dims);
  if (c.has_grad(1)) {
    Tensor share = expand_reduced(ops::div(c.grad(1), count), self.sizes(), dims, c.value<bool>(3));
    total = total.defined() ? ops::add(total, share) : share;
  }
  c.set(0, total);
}

const Op var_op("var.correction"), std_op("std.correction"), var_mean_op("var_mean.correction");

// The overloads that say unbiased= instead of correction=.
template <const Op& Operator> Tensor whole(const Tensor& self, bool unbiased) {
  return Operator(self, std::nullopt, unbiased ? 1 : 0);
}
template <const Op& Operator> Tensor moments_along(const Tensor& self, OptionalDims dim, bool unbiased, bool keepdim) {
  return Operator(self, dim, unbiased ? 1 : 0, keepdim);
}
Two both(const Tensor& self, OptionalDims dim, double correction, bool keepdim) {
  auto [v, m] = var_mean_op.multi<2>(self, dim, correction, keepdim);
  return {v, m};
}
Two var_mean_whole(const Tensor& self, bool unbiased) { return both(self, std::nullopt, unbiased, false); }
Two var_mean_along(const Tensor& self, OptionalDims dim, bool unbiased, bool keepdim) {
  return both(self, dim, unbiased, keepdim);
}
Two std_mean(const Tensor& self, OptionalDims dim, std::optional<Scalar> correction, bool keepdim) {
  OptionalDims all = dim;
  return {std_op(self, all, correction, keepdim),
          dim && !dim->empty() ? ops::mean_dim(self, dim, keepdim) : ops::mean_dim(self, std::nullopt, keepdim)};
}
Two std_mean_whole(const Tensor& self, bool unbiased) {
  return std_mean(self, std::nullopt, Scalar(unbiased ? 1 : 0), false);
}
Two std_mean_along(const Tensor& self, OptionalDims dim, bool unbiased, bool keepdim) {
  return std_mean(self, dim, Scalar(unbiased ? 1 : 0), keepdim);
}

} // namespace

TS_OPERATORS(moments) {
  constexpr const char* kVar = "Variance over the dims (all for None): squared distances from the mean over (count - "
                               "correction); correction 1 is unbiased.";
  constexpr const char* kStd = "Standard deviation over the dims (all for None); correction 1 is unbiased.";
  constexpr const char* kVarMean = "var and mean together.";
  constexpr const char* kStdMean = "std and mean together.";
  def("var(Tensor self, bool unbiased=True) -> Tensor").facts("stored:complex32").body<whole<var_op>>().doc(kVar);
  def("var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor")
      .body<moments_along<var_op>>()
      .out()
      .doc(kVar);
  def("var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor")
      .rule<var_rule>()
      .computation<var>(kMomentsCode)
      .saves("self")
      .gradient(var_gradient)
      .out()
      .doc(kVar);
  def("std(Tensor self, bool unbiased=True) -> Tensor").facts("stored:complex32").body<whole<std_op>>().doc(kStd);
  def("std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor")
      .body<moments_along<std_op>>()
      .out()
      .doc(kStd);
  def("std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor")
      .rule<std_rule>()
      .computation<std_>(kMomentsCode)
      .saves("self result")
      .gradient(std_gradient)
      .out()
      .doc(kStd);
  def("var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)")
      .facts("stored:complex32")
      .body<var_mean_whole>()
      .doc(kVarMean);
  def("var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)")
      .body<var_mean_along>()
      .doc(kVarMean);
  def("var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, "
      "Tensor)")
      .facts("kernel:var_mean")
      .rule<var_mean_rule>()
      .computation<var_mean, 2>(kMomentsCode)
      .saves("self")
      .gradient(var_mean_gradient)
      .doc(kVarMean);
  def("std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)")
      .facts("stored:complex32")
      .body<std_mean_whole>()
      .doc(kStdMean);
  def("std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)")
      .body<std_mean_along>()
      .doc(kStdMean);
  def("std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, "
      "Tensor)")
      .facts("kernel:std_mean")
      .body<std_mean>()
      .doc(kStdMean);
}

} // namespace ts
