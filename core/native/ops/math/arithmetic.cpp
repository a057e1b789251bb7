// Arithmetic: add, sub, mul, div and relatives, powers, extrema, clamping.
#include "autograd/declared.h"
#include "dispatch/op_handles.h"
#include "ops/math/pointwise_table.h"
#include <cmath>
#include <cstring>
#include <limits>

namespace ts {
namespace {

// Zero where the square of the distance is, as PyTorch has it.
constexpr const char *kTurnBySelf =
                         "select(self * self + other * other == 0, 0, grad * other / (self * self + other * other))",
                     *kTurnByOther =
                         "select(self * self + other * other == 0, 0, -grad * self / (self * self + other * other))";

constexpr BinaryRow kBinary[] = {
    {"mul multiply", "self * other", Promote::Arith, nullptr, nullptr,
     "Product of self and other, elementwise, with broadcasting and type promotion.", "stored"},
    {"div divide true_divide", "self / other", Promote::Float, nullptr, nullptr,
     "Quotient of self and other, elementwise; integers divide to floats."},
    {"floor_divide", "floordiv(self, other)", Promote::Arith, nullptr, nullptr,
     "Quotient rounded towards minus infinity."},
    {"remainder", "mod(self, other)", Promote::Arith, nullptr, nullptr,
     "Python's modulus: the remainder has the sign of other."},
    {"fmod", "fmod(self, other)", Promote::Arith, nullptr, nullptr, "C's fmod: the remainder has the sign of self."},
    {"maximum", "max(self, other)", Promote::Arith, "select(self == other, grad * 0.5, select(self < other, 0, grad))",
     "select(self == other, grad * 0.5, select(self > other, 0, grad))", "Elementwise maximum; NaN wins."},
    {"minimum", "min(self, other)", Promote::Arith, "select(self == other, grad * 0.5, select(self > other, 0, grad))",
     "select(self == other, grad * 0.5, select(self < other, 0, grad))", "Elementwise minimum; NaN wins."},
    {"fmax", "select(self != self, other, select(other != other, self, max(self, other)))", Promote::Arith,
     "select(self >= other, grad, select(other != other, grad, 0))",
     "select(self >= other, 0, select(other != other, 0, grad))", "Elementwise maximum; a number wins over NaN."},
    {"fmin", "select(self != self, other, select(other != other, self, min(self, other)))", Promote::Arith,
     "select(self <= other, grad, select(other != other, grad, 0))",
     "select(self <= other, 0, select(other != other, 0, grad))", "Elementwise minimum; a number wins over NaN."},
    {"atan2 arctan2", "atan2(self, other)", Promote::Float, kTurnBySelf, kTurnByOther,
     "Angle of the point (other, self) in radians, in [-pi, pi].", "autocast:-/widest"},
    {"hypot", "hypot(self, other)", Promote::Arith, nullptr, nullptr,
     "sqrt(self**2 + other**2) without overflow in between."},
    {"copysign", "copysign(self, other)", Promote::Float, "grad * select(self == 0, 0, result / self)", nullptr,
     "Magnitude of self with the sign of other."},
    {"heaviside", "select(self == 0, other, self > 0)", Promote::Same, nullptr, nullptr,
     "Step function: 0 below zero, 1 above, other at zero.", nullptr, nullptr, kSameDtype, true},
    {"logaddexp",
     "select(self == other, self + 0.69314718055994531, max(self, other) + log1p(exp(-abs(self - other))))",
     Promote::Float, "grad * sigmoid(self - other)", "grad * sigmoid(other - self)",
     "log(exp(self) + exp(other)) without overflow.", nullptr, "_logaddexp_complex"},
    {"logaddexp2",
     "select(self == other, self + 1, max(self, other) + 1.4426950408889634 * log1p(exp2(-abs(self - other))))",
     Promote::Float, "grad * sigmoid(0.69314718055994531 * (self - other))",
     "grad * sigmoid(0.69314718055994531 * (other - self))", "log2(2**self + 2**other) without overflow."},
    {"xlogy", "select(other != other, other, select(self == 0, 0, self * log(other)))", Promote::Float,
     "grad * select(self == 0, select(other <= 0, 0, log(other)), log(other))", "grad * self / other",
     "self * log(other), 0 where self is 0.", nullptr, nullptr, 0, true},
};

// By comparisons, as the sign of NaN is 0 and would hide it.
constexpr const char* kSlopeOfAbs = "select(self == 0, 0, select(self < 0, -grad, grad))";

constexpr UnaryRow kUnary[] = {
    {"abs absolute", "abs(self)", Promote::Arith, kSlopeOfAbs, "Absolute value, elementwise.", "zero stored",
     "_abs_complex"},
    {"sign", "sign(self)", Promote::Arith, nullptr, "-1, 0 or 1 by the sign of each element.", "zero", nullptr,
     kSameDtype},
    {"sgn", "sign(self)", Promote::Arith, nullptr, "The sign; of complex elements their quotient by their magnitude.",
     "zero stored:complex32", "_sgn_complex", kSameDtype},
    {"reciprocal", "recip(self)", Promote::Float, "-grad * result * result", "1 / self.", "autocast:-/float32"},
};

Tensor div_mode(const Value& self, const Value& other, const char* mode) {
  static const Op trunc("div_trunc");
  if (!mode) return ops::div(self, other);
  if (!std::strcmp(mode, "floor")) return Op("floor_divide")(self, other);
  TS_CHECK(!std::strcmp(mode, "trunc"), "div: expected rounding_mode to be one of None, 'trunc', or 'floor', got '",
           mode, "'");
  return trunc(self, other);
}

const Op kPow("pow_general"), kCube("cube");

// Common exponents avoid the general power.
Tensor pow(const Value& self, const Value& exponent) {
  if (self.tag != Tag::Tensor || !exponent.is_number()) return kPow(self, exponent);
  if (exponent.tag == Tag::Complex) return kPow(self, exponent);
  bool floating = is_differentiable(self.tensor->dtype) || exponent.tag == Tag::Float;
  TS_CHECK(floating || exponent.i >= 0, "pow: Integers to negative integer powers are not allowed.");
  double e = exponent.as_double();
  bool keeps_dtype = is_differentiable(self.tensor->dtype) || exponent.tag != Tag::Float;
  if (e == 2 && keeps_dtype && !is_bool(self.tensor->dtype)) return ops::square(self);
  if (!is_differentiable(self.tensor->dtype)) return kPow(self, exponent);
  if (e == 1) return ops::clone(self);
  if (e == 3) return kCube(self);
  if (e == 0.5) return ops::sqrt(self);
  if (e == -1) return ops::reciprocal(self);
  if (e == -0.5) return ops::rsqrt(self);
  return kPow(self, exponent);
}

const Op kClampMin("clamp_min"), kClampMax("clamp_max"), kClampBoth("clamp_both");

Tensor clamp(const Tensor& self, const Value& min, const Value& max) {
  TS_CHECK(!min.is_none() || !max.is_none(), "clamp: At least one of 'min' or 'max' must not be None");
  if (max.is_none()) return kClampMin(self, min);
  if (min.is_none()) return kClampMax(self, max);
  return kClampBoth(self, min, max);
}

const Op kClampMinInplace("clamp_min_"), kClampMaxInplace("clamp_max_"), kClampBothInplace("clamp_both_");

// What an in-place form made of another gives: the write is counted once, by the caller.
Tensor counted_once(Tensor result) {
  result->undo_bump();
  return result;
}

Tensor clamp_inplace(const Tensor& self, const Value& min, const Value& max) {
  TS_CHECK(!min.is_none() || !max.is_none(), "clamp_: At least one of 'min' or 'max' must not be None");
  if (max.is_none()) return counted_once(kClampMinInplace(self, min));
  if (min.is_none()) return counted_once(kClampMaxInplace(self, max));
  return counted_once(kClampBothInplace(self, min, max));
}

// A number decides once which end the rounding must leave exact.
const Op kLerpNear("lerp_near"), kLerpFar("lerp_far"), kLerpEach("lerp_each");
const Op kLerpNearInplace("lerp_near_"), kLerpFarInplace("lerp_far_"), kLerpEachInplace("lerp_each_");

double magnitude(const Scalar& s) { return std::hypot(s.real(), s.imag()); }

// Its tensors are of one dtype, a weight of one element apart, which counts as a number.
void check_lerp(const Tensor& self, const Value& end, const Value& weight) {
  auto check = [&](const Value& v, const char* name) {
    if (v.tag != Tag::Tensor) return;
    DType dtype = v.tensor->dtype;
    TS_CHECK(dtype == self.dtype(), "lerp: expected ", name, " of the dtype of self, ", self.dtype(), ", got ", dtype,
             "; convert one with .to()");
  };
  check(end, "end");
  if (weight.tag == Tag::Tensor && weight.tensor->ndim > 0) check(weight, "weight");
}

Tensor lerp(const Tensor& self, const Value& end, const Value& weight) {
  check_lerp(self, end, weight);
  if (weight.tag == Tag::Tensor) return (is_complex(self.dtype()) ? kLerpNear : kLerpEach)(self, end, weight);
  return constants_saved((magnitude(weight.as_scalar()) < 0.5 ? kLerpNear : kLerpFar)(self, end, weight));
}
Tensor lerp_inplace(const Tensor& self, const Value& end, const Value& weight) {
  check_lerp(self, end, weight);
  if (weight.tag == Tag::Tensor)
    return counted_once((is_complex(self.dtype()) ? kLerpNearInplace : kLerpEachInplace)(self, end, weight));
  const Op& op = magnitude(weight.as_scalar()) < 0.5 ? kLerpNearInplace : kLerpFarInplace;
  return constants_saved(counted_once(op(self, end, weight)));
}

double largest(DType t) {
  switch (t) {
  case DType::Float64: return std::numeric_limits<double>::max();
  case DType::Float16: return 65504.0;
  case DType::BFloat16: return 3.3895313892515355e38;
  default: return std::numeric_limits<float>::max();
  }
}

Tensor nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  static const Op replace("nan_to_num_values"), limit("nan_to_num_limits"), of_reals("nan_to_num");
  if (is_complex(self.dtype()))
    return ops::view_as_complex(ops::contiguous(of_reals(ops::view_as_real(self), nan, posinf, neginf)));
  if (!is_floating(self.dtype())) return ops::clone(self);
  double most = largest(self.dtype());
  if (!posinf && !neginf) return limit(self, nan.value_or(0.0), most);
  return replace(self, nan.value_or(0.0), posinf.value_or(most), neginf.value_or(-most));
}
Tensor nan_to_num_inplace(const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                          std::optional<double> neginf) {
  static const Op replace("nan_to_num_values_"), limit("nan_to_num_limits_"), of_reals("nan_to_num_");
  if (is_complex(self.dtype())) {
    of_reals(ops::view_as_real(self), nan, posinf, neginf);
    return counted_once(self);
  }
  if (!is_floating(self.dtype())) return self;
  double most = largest(self.dtype());
  if (!posinf && !neginf) return counted_once(limit(self, nan.value_or(0.0), most));
  return counted_once(replace(self, nan.value_or(0.0), posinf.value_or(most), neginf.value_or(-most)));
}

Tensor rsub(const Tensor& self, const Value& other, Scalar alpha) { return ops::sub(other, self, alpha); }

Tensor positive(const Tensor& self) {
  TS_CHECK(!is_bool(self.dtype()), "positive: The `+` operator, on a bool tensor is not supported; try .to() numbers");
  return self;
}

Tensor float_power(const Value& self, const Value& exponent) {
  auto complex = [](const Value& v) {
    return v.tag == Tag::Tensor ? is_complex(v.as_tensor().dtype()) : v.as_scalar().is_complex();
  };
  DType widest = complex(self) || complex(exponent) ? DType::Complex128 : DType::Float64;
  auto wide = [&](const Value& v) { return v.tag == Tag::Tensor ? ops::to_dtype(v, widest) : Tensor(); };
  Tensor a = wide(self), b = wide(exponent);
  return pow(a.defined() ? Value(a) : self, b.defined() ? Value(b) : exponent);
}

void declare_sums() {
  for (const char* name : {"add", "sub", "subtract"}) {
    bool plus = !std::strcmp(name, "add");
    Def d((std::string(name) + "(Operand self, Operand other, *, Scalar alpha=1) -> Tensor").c_str());
    // Rounded once, as PyTorch does.
    d.pointwise(plus ? "fma(alpha, other, self)" : "fma(-alpha, other, self)").inplace().out();
    d.doc(plus ? "self + alpha * other, elementwise, with broadcasting and type promotion."
               : "self - alpha * other, elementwise.");
    d.facts(std::strcmp(name, "subtract") ? "stored:complex32" : "alias:sub stored:complex32");
    if (!plus) d.no_bool();
  }
  for (const char* name : {"neg", "negative"}) {
    Def d((std::string(name) + "(Tensor self) -> Tensor").c_str());
    d.facts(std::strcmp(name, "neg") ? "alias:neg linear stored:complex32" : "linear stored:complex32")
        .pointwise("-self")
        .no_bool()
        .inplace()
        .out(std::strcmp(name, "neg") ? 0 : kSameDtype)
        .doc("-self, elementwise.");
  }
  def("rsub(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor")
      .facts("elementwise leaf stored:complex32")
      .body<rsub>()
      .doc("other - alpha * self.");
  def("positive(Tensor self) -> Tensor")
      .facts("elementwise linear stored")
      .body<positive>()
      .keeps_bits()
      .doc("self itself.");
}

void declare_clamps() {
  def("clamp(Tensor self, Operand? min=None, Operand? max=None) -> Tensor")
      .facts("elementwise leaf")
      .body<clamp>()
      .inplace<clamp_inplace>()
      .out()
      .doc("Limits every element to [min, max]; either bound may be left out, and may be a tensor.");
  def("clip(Tensor self, Operand? min=None, Operand? max=None) -> Tensor")
      .facts("alias:clamp elementwise")
      .body<clamp>()
      .inplace<clamp_inplace>()
      .out()
      .doc("Alias of clamp.");
  def("clamp_min(Tensor self, Operand min) -> Tensor")
      .pointwise("max(self, min)")
      .derivative("self", "select(self < min, 0, grad)")
      .derivative("min", "select(self < min, grad, 0)")
      .inplace()
      .out()
      .doc("max(self, min).");
  def("clamp_max(Tensor self, Operand max) -> Tensor")
      .pointwise("min(self, max)")
      .derivative("self", "select(self > max, 0, grad)")
      .derivative("max", "select(self > max, grad, 0)")
      .inplace()
      .out()
      .doc("min(self, max).");
  def("clamp_both(Tensor self, Operand min, Operand max) -> Tensor")
      .node_name("ClampBackward1")
      .pointwise("min(max(self, min), max)")
      .derivative("self", "select(max(self < min, self > max), 0, grad)")
      .derivative("min", "select((self < min) * (min < max), grad, 0)")
      .derivative("max", "select((self > max) + (max < min) > 0, grad, 0)")
      .inplace()
      .hidden()
      .doc("clamp with both bounds.");
}

void declare_lerp() {
  def("lerp(Tensor self, Operand end, Operand weight) -> Tensor")
      .facts("elementwise leaf stored:none")
      .body<lerp>()
      .inplace<lerp_inplace>()
      .out()
      .doc("Linear interpolation from self to end by weight, exact at both ends.");
  const std::pair<const char*, const char*> ways[] = {
      {"lerp_near", "self + weight * (end - self)"},
      {"lerp_far", "end - (end - self) * (1 - weight)"},
      {"lerp_each", "select(abs(weight) < 0.5, self + weight * (end - self), end - (end - self) * (1 - weight))"}};
  for (const auto& [name, expression] : ways)
    Def((std::string(name) + "(Tensor self, Operand end, Operand weight) -> Tensor").c_str())
        .node_name(!std::strcmp(name, "lerp_each") ? "LerpBackward1" : "LerpBackward0")
        .pointwise(expression)
        .no_integer()
        .derivative("self", "grad * (1 - weight)")
        .derivative("end", "grad * weight")
        .derivative("weight", "grad * (end - self)")
        .inplace()
        .hidden()
        .doc("lerp by one weight near an end, or by many.");
}

} // namespace

TS_OPERATORS(arithmetic) {
  declare_sums();
  declare_clamps();
  declare_binary(kBinary);
  declare_unary(kUnary);
  for (const char* name : {"div.mode", "divide.mode"})
    Def((std::string(name) + "(Operand self, Operand other, *, str? rounding_mode) -> Tensor").c_str())
        .facts(std::strcmp(name, "div.mode") ? "elementwise" : "elementwise leaf")
        .body<div_mode>()
        .inplace()
        .out()
        .doc("Quotient, rounded as rounding_mode says: None, 'trunc' (towards zero) or 'floor'.");
  def("div_trunc(Operand self, Operand other) -> Tensor")
      .pointwise("trunc(self / other)")
      .hidden()
      .doc("Quotient rounded towards zero.");
  def("square(Tensor self) -> Tensor")
      .facts("zero stored:none")
      .pointwise("self * self")
      .promote(Promote::Number)
      .derivative("self", "grad * 2 * self")
      .node_name("PowBackward0")
      .inplace()
      .out()
      .doc("self * self; bool counts as int64.");
  def("cube(Tensor self) -> Tensor")
      .pointwise("self * self * self")
      .derivative("self", "grad * 3 * (self * self)")
      .node_name("PowBackward0")
      .hidden()
      .doc("self * self * self: what pow does for an exponent of 3.");
  def("pow(Operand self, Operand exponent) -> Tensor")
      .facts("elementwise leaf stored:none autocast:-/float32")
      .body<pow>()
      .inplace()
      .out()
      .any_device()
      .doc("self to the power of exponent, elementwise.");
  def("pow_general(Operand self, Operand exponent) -> Tensor")
      .facts("stored:none")
      .pointwise("pow(self, exponent)")
      .node_name("PowBackward1")
      .hidden()
      .doc("pow without shortcuts.");
  def("float_power(Operand self, Operand exponent) -> Tensor")
      .facts("elementwise")
      .body<float_power>()
      .any_device()
      .out()
      .doc("pow computed in float64, or complex128.");
  def("addcmul(Tensor self, Operand tensor1, Operand tensor2, *, Scalar value=1) -> Tensor")
      .facts("stored:complex32 autocast:-/widest")
      .pointwise("self + value * tensor1 * tensor2")
      .inplace()
      .out()
      .doc("self + value * tensor1 * tensor2.");
  def("addcdiv(Tensor self, Operand tensor1, Operand tensor2, *, Scalar value=1) -> Tensor")
      .facts("autocast:-/widest")
      .pointwise("self + value * tensor1 / tensor2")
      .no_integer()
      .floating_one_of("tensor1", "tensor2")
      .inplace()
      .out()
      .doc("self + value * tensor1 / tensor2.");
  declare_lerp();
  def("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor")
      .facts("elementwise zero leaf stored:none")
      .body<nan_to_num>()
      .inplace<nan_to_num_inplace>()
      .out(kSameDtype)
      .doc("Replaces NaN by nan (0) and infinities by posinf and neginf (the dtype's extremes).");
  def("nan_to_num_values(Tensor self, Scalar nan, Scalar posinf, Scalar neginf) -> Tensor")
      .pointwise("select(self != self, nan, select(self == inf, posinf, select(self == -inf, neginf, self)))")
      .derivative("self", "grad * (abs(self) < inf)")
      .inplace()
      .hidden()
      .doc("nan_to_num with all values given.");
  def("nan_to_num_limits(Tensor self, Scalar nan, Scalar high) -> Tensor")
      .pointwise("select(self != self, nan, min(max(self, -high), high))")
      .derivative("self", "grad * (abs(self) < inf)")
      .node_name("NanToNumBackward0")
      .inplace()
      .hidden()
      .doc("nan_to_num of infinities that become the dtype's extremes: no finite number lies beyond.");
}

} // namespace ts
