// What nextafter and frexp of the package are made of: steps to neighbours and the two parts of floating numbers.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"

namespace ts {
namespace {

const Op view_dtype("view.dtype"), float_parts_isfinite("isfinite"), abs_op("abs"), exp2_op("exp2");
const Op shift_right("bitwise_right_shift"), neg_op("neg");

DType bits_type(DType t) {
  return t == DType::Float64 ? DType::Int64 : t == DType::Float32 ? DType::Int32 : DType::Int16;
}
void check_floating(DType t, const char* op) {
  TS_CHECK(t == DType::Float64 || t == DType::Float32 || is_half(t), op, ": not implemented for dtype ", t);
}

Tensor nextafter_rule(const Tensor& self, const Tensor& other) {
  check_floating(self.dtype(), "nextafter");
  check_same_dtype(self, other, "nextafter");
  TS_CHECK(same(self.sizes(), other.sizes()), "nextafter: expected operands of one shape, got ", self.sizes(), " and ",
           other.sizes());
  return outline(self.sizes(), self.dtype(), self.device());
}
Tensor nextafter_parts(const Tensor& self, const Tensor& other) {
  Tensor x = raw_contiguous(self), y = raw_contiguous(other);
  Device device = self.device();
  DType t = x.dtype(), whole = bits_type(t);
  // Away from zero the bit pattern grows by one; from zero itself it is the least number of y's sign.
  Tensor away = ops::eq(ops::gt(y, x), ops::gt(x, Scalar(0)));
  Tensor bits = view_dtype(x, whole);
  Tensor step = ops::where(away, filled({}, Scalar(1), whole, device), filled({}, Scalar(-1), whole, device));
  Tensor stepped = view_dtype(ops::add(bits, step), t);
  Tensor tiniest = view_dtype(ops::ones_like(bits), t);
  Tensor result =
      ops::where(ops::eq(x, Scalar(0)), ops::where(ops::gt(y, Scalar(0)), tiniest, neg_op(tiniest)), stepped);
  result = ops::where(ops::eq(x, y), y, result);
  return ops::where(ops::logical_or(ops::isnan(x), ops::isnan(y)), filled({}, Scalar(__builtin_nan("")), t, device),
                    result);
}

using Parts = std::tuple<Tensor, Tensor>;
Parts frexp_rule(const Tensor& self) {
  check_floating(self.dtype(), "frexp");
  return {outline(self.sizes(), self.dtype(), self.device()), outline(self.sizes(), DType::Int32, self.device())};
}
Parts frexp_parts(const Tensor& self) {
  Tensor x = raw_contiguous(self);
  Tensor plain = ops::logical_or(ops::eq(x, Scalar(0)), ops::logical_not(float_parts_isfinite(x)));
  Tensor wide = raw_cast(ops::where(plain, ops::ones_like(x), x), DType::Float64);
  // Numbers below float64's normal range are brought into it first.
  Tensor small = ops::lt(abs_op(wide), Scalar(1e-300));
  Tensor bits = view_dtype(abs_op(ops::where(small, ops::mul(wide, Scalar(0x1p100)), wide)), DType::Int64);
  Tensor lifted = ops::mul(raw_cast(small, DType::Int64), Scalar(int64_t{100}));
  Tensor power = ops::sub(ops::sub(shift_right(bits, Scalar(int64_t{52})), Scalar(int64_t{1022})), lifted);
  power = ops::masked_fill(power, plain, Scalar(int64_t{0}));
  // In two steps: 2**exponent itself may be beyond the dtype.
  Tensor half = shift_right(power, Scalar(int64_t{1}));
  Tensor first = exp2_op(neg_op(raw_cast(half, DType::Float64)));
  Tensor second = exp2_op(neg_op(raw_cast(ops::sub(power, half), DType::Float64)));
  Tensor scaled = ops::mul(ops::mul(wide, first), second);
  return {ops::where(plain, x, raw_cast(scaled, x.dtype())), power};
}

// grad / 2**exponent, in two steps.
void frexp_gradient(GradContext& c) {
  Tensor grad = c.grad(0), half = shift_right(c.result(1), Scalar(int64_t{1}));
  auto shrunk = [&](const Tensor& t, const Tensor& power) {
    return ops::mul(t, exp2_op(neg_op(ops::to_dtype(power, grad.dtype()))));
  };
  c.set(0, shrunk(shrunk(grad, half), ops::sub(c.result(1), half)));
}

} // namespace

TS_OPERATORS(float_parts) {
  def("_nextafter(Tensor self, Tensor other) -> Tensor")
      .facts("elementwise")
      .rule<nextafter_rule>()
      .kernel("nextafter", "self other: contiguous")
      .decompose<nextafter_parts>()
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("The numbers after self in the direction of other, which are of one floating dtype and shape.");
  def("_frexp(Tensor self) -> (Tensor, Tensor)")
      .rule<frexp_rule>()
      .kernel("frexp", "self: contiguous")
      .decompose<frexp_parts>()
      .saves("result1")
      .gradient(frexp_gradient)
      .hidden()
      .function_only()
      .doc("Mantissas in [0.5, 1) and int32 exponents of 2.");
}

} // namespace ts
