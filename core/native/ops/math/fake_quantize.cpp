// Rounding to the values that a quantized tensor can hold, with the gradient of what was not clamped.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "runtime/computed_dtypes.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const Op kWhole("_fake_quantize"), kBetween("_fake_quantize_between");

void check_range(const char* op, const Tensor& self, int64_t low, int64_t high) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(self.dtype()), op, ": not implemented for '", self.dtype(),
                "'; convert to a float dtype");
  TS_CHECK(low <= high, op, ": `quant_min` should be less than or equal to `quant_max`, got ", low, " and ", high);
}

Tensor per_tensor(const Tensor& self, double scale, int64_t zero_point, int64_t low, int64_t high) {
  const char* op = "fake_quantize_per_tensor_affine";
  check_range(op, self, low, high);
  TS_CHECK(low <= zero_point && zero_point <= high, op,
           ": `zero_point` must be between `quant_min` and `quant_max`, got ", zero_point, " beside ", low, " and ",
           high);
  const float step = static_cast<float>(scale);
  return kWhole(self, Scalar(double{step}), Scalar(double{1 / step}), Scalar(zero_point), Scalar(low), Scalar(high));
}

// What broadcasts over self, in the dtype that self is computed in and without a gradient.
Tensor parameter(const Tensor& self, const Tensor& given, IntSpan shape) {
  return ops::to_dtype(ops::reshape(ops::detach(given), shape), accumulate_type(self));
}

// Scales and what self is multiplied by, which is worked out in float32.
std::pair<Tensor, Tensor> steps(const Tensor& self, const Tensor& scale, IntSpan shape) {
  Tensor single = ops::to_dtype(ops::detach(scale), DType::Float32);
  return {parameter(self, single, shape), parameter(self, ops::reciprocal(single), shape)};
}

Tensor per_tensor_by_tensors(const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t low,
                             int64_t high) {
  const char* op = "fake_quantize_per_tensor_affine";
  check_range(op, self, low, high);
  TS_CHECK(scale.numel() == 1 && zero_point.numel() == 1, op,
           ": expected a scale and a zero_point of one element, got ", scale.sizes(), " and ", zero_point.sizes());
  const auto [step, inverse] = steps(self, scale, {});
  return kWhole(self, step, inverse, parameter(self, zero_point, {}), Scalar(low), Scalar(high));
}

Tensor per_channel(const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t axis, int64_t low,
                   int64_t high) {
  const char* op = "fake_quantize_per_channel_affine";
  DType step = scale.dtype(), zero = zero_point.dtype();
  TS_CHECK(step == DType::Float32 || step == DType::BFloat16, op, ": Scale must be Float or BFloat16, found ", step);
  TS_CHECK(zero == DType::Int32 || zero == DType::Float32 || zero == DType::Float16, op,
           ": Zero-point must be Int32, Float or Half, found ", zero);
  TS_CHECK(scale.ndim() == 1 && zero_point.ndim() == 1, op,
           ": scale should be a 1-D tensor, and zero_point, got shapes ", scale.sizes(), " and ", zero_point.sizes());
  TS_CHECK(scale.numel() == zero_point.numel(), op, ": scale and zero-point need to have the same dimensions, got ",
           scale.numel(), " and ", zero_point.numel(), " elements");
  check_range(op, self, low, high);
  TS_CHECK(axis >= 0, op, ": `axis` must be between 0 and number of dimensions of input, got ", axis);
  TS_CHECK_INDEX(axis < self.ndim(), op, ": Dimension out of range (got ", axis, " for a tensor of ", self.ndim(),
                 " dims)");
  TS_CHECK(scale.numel() == self.size(static_cast<int>(axis)), op,
           ": dimensions of scale and zero-point are not consistent with input tensor: ", scale.numel(),
           " elements for dim ", axis, " of shape ", self.sizes());
  const bool whole = zero == DType::Int32;
  if (whole && !zero_point.device().is_meta() && zero_point.numel()) {
    Tensor outside = ops::logical_or(ops::lt(zero_point, Scalar(low)), ops::gt(zero_point, Scalar(high)));
    TS_CHECK(!raw_truth(ops::any(outside)), op, ": `zero_point` must be between `quant_min` and `quant_max`.");
  }
  Dims shape(static_cast<size_t>(self.ndim() - axis), 1);
  shape[0] = scale.numel();
  const auto [step_each, inverse] = steps(self, scale, shape);
  Tensor zeros = parameter(self, zero_point, shape);
  Tensor result = (whole ? kWhole : kBetween)(self, step_each, inverse, zeros, Scalar(low), Scalar(high));
  return result.dtype() == self.dtype() ? result : ops::to_dtype(result, self.dtype());
}

// NaN becomes the least value, as where it is converted to a whole number.
void declare_rounding(const char* name, const std::string& at, const char* what) {
  std::string clamped = "select(AT >= low, min(AT, high), low)",
              inside = "select(AT >= low, select(AT <= high, grad, 0), 0)";
  for (std::string* text : {&clamped, &inside})
    for (size_t k; (k = text->find("AT")) != text->npos;) text->replace(k, 2, "(" + at + ")");
  std::string schema =
      std::string(name) +
      "(Tensor self, Operand scale, Operand inverse, Operand zero_point, Scalar low, Scalar high) -> Tensor";
  Def(schema.c_str())
      .pointwise(("(" + clamped + " - zero_point) * scale").c_str())
      .derivative("self", inside.c_str())
      .no_complex()
      .hidden()
      .doc(what);
}

} // namespace

TS_OPERATORS(fake_quantize) {
  declare_rounding("_fake_quantize", "zero_point + round(self * inverse)", "Whole steps from a whole zero point.");
  declare_rounding("_fake_quantize_between", "round(self * inverse + zero_point)",
                   "Whole steps from a zero point that may lie between two.");
  def("fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int "
      "quant_max) -> Tensor")
      .body<per_tensor_by_tensors>()
      .function_only()
      .doc("scale and zero_point as tensors of one element, which get no gradient, or as numbers:");
  def("fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> "
      "Tensor")
      .body<per_tensor>()
      .function_only()
      .doc("self as a quantized tensor would hold it: (clamp(round(self / scale) + zero_point, quant_min, quant_max) - "
           "zero_point) * scale, halves to even. The gradient passes where nothing was clamped. RuntimeError unless "
           "quant_min <= zero_point <= quant_max.");
  def("fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int "
      "quant_max) -> Tensor")
      .body<per_channel>()
      .reads_host()
      .function_only()
      .doc(
          "fake_quantize_per_tensor_affine with a scale (float32) and a zero point (int32, or float) for each position "
          "along axis, in vectors.");
}

} // namespace ts
