// Comparison, logic, bits, selection.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/host_equal.h"
#include "ops/common/promotion.h"
#include "ops/math/pointwise_table.h"
#include <limits>

namespace ts {
namespace {

constexpr BinaryRow kCompare[] = {
    {"eq", "self == other", Promote::Compare, nullptr, nullptr, "self == other, elementwise; a bool tensor.", "stored"},
    {"ne not_equal", "self != other", Promote::Compare, nullptr, nullptr, "self != other, elementwise; a bool tensor.",
     "stored"},
    {"lt less", "self < other", Promote::Compare, nullptr, nullptr, "self < other, elementwise; a bool tensor."},
    {"le less_equal", "self <= other", Promote::Compare, nullptr, nullptr,
     "self <= other, elementwise; a bool tensor."},
    {"gt greater", "self > other", Promote::Compare, nullptr, nullptr, "self > other, elementwise; a bool tensor."},
    {"ge greater_equal", "self >= other", Promote::Compare, nullptr, nullptr,
     "self >= other, elementwise; a bool tensor."},
    {"logical_and", "(self != 0) * (other != 0)", Promote::Compare, nullptr, nullptr, "True where both are non-zero."},
    {"logical_or", "max(self != 0, other != 0)", Promote::Compare, nullptr, nullptr, "True where either is non-zero."},
    {"logical_xor", "(self != 0) != (other != 0)", Promote::Compare, nullptr, nullptr,
     "True where exactly one is non-zero."},
    {"bitwise_and", "and(self, other)", Promote::Integer, nullptr, nullptr,
     "Bitwise and of integers; logical and of bools."},
    {"bitwise_or", "or(self, other)", Promote::Integer, nullptr, nullptr,
     "Bitwise or of integers; logical or of bools."},
    {"bitwise_xor", "xor(self, other)", Promote::Integer, nullptr, nullptr,
     "Bitwise exclusive or of integers; logical of bools."},
    {"bitwise_left_shift", "shl(self, other)", Promote::Integer, nullptr, nullptr, "self shifted left by other bits."},
    {"bitwise_right_shift", "shr(self, other)", Promote::Integer, nullptr, nullptr,
     "self shifted right by other bits, keeping its sign."},
};

constexpr UnaryRow kTests[] = {
    {"logical_not", "not(self)", Promote::Compare, nullptr, "True where self is zero."},
    {"isnan", "self != self", Promote::Compare, nullptr, "True where self is NaN.", "zero stored"},
};

Tensor like_bool(const Tensor& self, bool value) { return ops::full_like(self, Scalar(value), DType::Bool); }

// Of either part, or of both.
Tensor by_parts(const Op& test, const Op& join, const Tensor& self) {
  return join(test(ops::real(self)), test(ops::imag(self)));
}
const Op isinf_op("isinf"), isfinite_op("isfinite");

Tensor isinf(const Tensor& self) {
  if (is_complex(self.dtype())) return by_parts(isinf_op, ops::logical_or, self);
  if (!is_floating(self.dtype())) return like_bool(self, false);
  return ops::eq(ops::abs(self), std::numeric_limits<double>::infinity());
}
Tensor isposinf(const Tensor& self) {
  TS_CHECK(!is_complex(self.dtype()), "isposinf: does not support complex inputs.");
  return is_floating(self.dtype()) ? ops::eq(self, std::numeric_limits<double>::infinity()) : like_bool(self, false);
}
Tensor isneginf(const Tensor& self) {
  TS_CHECK(!is_complex(self.dtype()), "isneginf: does not support complex inputs.");
  return is_floating(self.dtype()) ? ops::eq(self, -std::numeric_limits<double>::infinity()) : like_bool(self, false);
}
Tensor isfinite(const Tensor& self) {
  if (is_complex(self.dtype())) return by_parts(isfinite_op, ops::logical_and, self);
  if (!is_floating(self.dtype())) return like_bool(self, true);
  return ops::lt(ops::abs(self), std::numeric_limits<double>::infinity());
}

Tensor signbit(const Tensor& self) {
  TS_CHECK(!is_complex(self.dtype()), "signbit: is not implemented for complex tensors.");
  static const Op copysign("copysign");
  return ops::lt(is_floating(self.dtype()) ? copysign(1.0, self) : self, int64_t{0});
}

Tensor bitwise_not(const Tensor& self) {
  static const Op integers("bitwise_not_integer");
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_integral(self.dtype(), true),
                "bitwise_not: expected an integer or bool tensor, got ", self.dtype());
  return is_bool(self.dtype()) ? ops::logical_not(self) : integers(self);
}

Tensor isclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  static const Op close("isclose_values");
  TS_CHECK(self.dtype() == other.dtype(), "isclose: ", self.dtype(), " did not match ", other.dtype());
  TS_CHECK(rtol >= 0 && atol >= 0, "isclose: expected rtol and atol that are not negative, got ", rtol, " and ", atol);
  if (is_integral(self.dtype(), true) && rtol == 0 && atol == 0) return ops::eq(self, other); // float64 holds not all
  if (is_integral(self.dtype(), true))
    return isclose(ops::to_dtype(self, DType::Float64), ops::to_dtype(other, DType::Float64), rtol, atol, equal_nan);
  if (!is_complex(self.dtype())) return close(self, other, rtol, atol, equal_nan ? 1 : 0);
  // PyTorch counts by magnitudes; what is not finite must be equal.
  Tensor allowed = ops::add(ops::mul(ops::abs(other), rtol), atol), distance = ops::abs(ops::sub(self, other));
  Tensor near = ops::logical_and(isfinite(distance), ops::le(distance, allowed));
  Tensor same = ops::logical_or(ops::eq(self, other), near);
  return equal_nan ? ops::logical_or(same, ops::logical_and(ops::isnan(self), ops::isnan(other))) : same;
}

bool read_bool(const Tensor& t) {
  static const Op item("_local_scalar_dense");
  Results r;
  item.invoke(r, t);
  return r[0].i != 0;
}

bool allclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  return read_bool(ops::all(isclose(self, other, rtol, atol, equal_nan)));
}

bool equal(const Tensor& self, const Tensor& other) {
  if (!same(self.sizes(), other.sizes())) return false;
  if (self.numel() == 0) return true;
  TS_CHECK_KIND(ErrorKind::NotImplemented, !self.device().is_meta(),
                "equal: tensors on the meta device have no values");
  if (std::optional<bool> known = host_equal(self, other)) return *known;
  return read_bool(ops::all(ops::eq(self, other)));
}

} // namespace

TS_OPERATORS(comparison) {
  declare_binary(kCompare);
  declare_unary(kTests);
  def("isinf(Tensor self) -> Tensor")
      .facts("elementwise zero stored:complex32")
      .body<isinf>()
      .not_differentiable()
      .doc("True where self is plus or minus infinity.");
  def("isposinf(Tensor self) -> Tensor")
      .facts("elementwise zero stored:none")
      .body<isposinf>()
      .not_differentiable()
      .out(kSameDtype)
      .doc("True where self is plus infinity.");
  def("isneginf(Tensor self) -> Tensor")
      .facts("elementwise zero stored:none")
      .body<isneginf>()
      .not_differentiable()
      .out(kSameDtype)
      .doc("True where self is minus infinity.");
  def("isfinite(Tensor self) -> Tensor")
      .facts("elementwise stored:complex32")
      .body<isfinite>()
      .not_differentiable()
      .doc("True where self is neither infinite nor NaN.");
  def("signbit(Tensor self) -> Tensor")
      .facts("elementwise zero")
      .body<signbit>()
      .not_differentiable()
      .out(kSameDtype)
      .doc("True where the sign is negative, -0.0 included.");
  def("bitwise_not(Tensor self) -> Tensor")
      .facts("elementwise leaf:inplace")
      .body<bitwise_not>()
      .not_differentiable()
      .inplace()
      .out(kSameDtype)
      .doc("Bitwise complement; logical not of bools.");
  def("bitwise_not_integer(Tensor self) -> Tensor")
      .pointwise("bitnot(self)")
      .promote(Promote::Integer)
      .hidden()
      .doc("Bitwise complement of integers.");
  def("where.self(Tensor condition, Operand self, Operand other) -> Tensor")
      .pointwise("select(condition, self, other)")
      .boolean("condition")
      .derivative("self", "select(condition, grad, 0)")
      .derivative("other", "select(condition, 0, grad)")
      .out(kSameDtype)
      .doc("self where condition is True, other elsewhere; all three broadcast.");
  def("masked_fill(Tensor self, Tensor mask, Operand value) -> Tensor")
      .facts("stored:complex32")
      .pointwise("select(mask, value, self)")
      .promote(Promote::Keep)
      .boolean("mask")
      .single("value")
      .derivative("self", "select(mask, 0, grad)")
      .derivative("value", "select(mask, grad, 0)")
      .inplace()
      .doc("self with value where mask is True; keeps self's dtype.");
  def("isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor")
      .facts("elementwise stored:complex32")
      .body<isclose>()
      .not_differentiable()
      .doc("True where |self - other| <= atol + rtol * |other|, elementwise.");
  def("isclose_values(Tensor self, Tensor other, Scalar rtol, Scalar atol, Scalar equal_nan) -> Tensor")
      .pointwise("select(self == other, 1, select(abs(self - other) < inf, abs(self - other) <= atol + rtol * "
                 "abs(other), (self != self) * (other != other) * equal_nan))")
      .promote(Promote::Compare)
      .hidden()
      .doc("isclose of floating tensors.");
  def("allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool")
      .facts("stored:complex32")
      .body<allclose>()
      .reads_host()
      .not_differentiable()
      .doc("Whether isclose holds for every element.");
  def("equal(Tensor self, Tensor other) -> bool")
      .facts("stored:none")
      .body<equal>()
      .reads_host()
      .not_differentiable()
      .doc("Whether both have the same shape and elements.");
}

} // namespace ts
