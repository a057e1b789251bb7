// Common divisors and multiples of integers, powers of two applied to numbers.
#include "ops/api.h"
#include "ops/declare.h"
#include "ops/raw.h"

namespace ts {
namespace {

void check_integers(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_integral(a.dtype(), false) && is_integral(b.dtype(), false), op,
                ": expected integer operands, got ", a.dtype(), " and ", b.dtype());
}

// Euclid's algorithm on all elements at once; a division by zero leaves the other number.
Tensor gcd(const Tensor& self, const Tensor& other) {
  check_integers(self, other, "gcd");
  static const Op remainder("remainder");
  Tensor zero = ops::mul(ops::mul(self, other), Scalar(0)); // of the result's shape and dtype
  Tensor a = ops::abs(ops::add(self, zero)), b = ops::abs(ops::add(other, zero));
  if (a.device().is_meta()) return a;
  for (Tensor rest = ops::ne(b, 0); raw_truth(ops::any(rest)); rest = ops::ne(b, 0)) {
    Tensor next = remainder(a, ops::where(rest, b, ops::ones_like(b)));
    a = ops::where(rest, b, a);
    b = ops::where(rest, next, b);
  }
  return a;
}

Tensor lcm(const Tensor& self, const Tensor& other) {
  check_integers(self, other, "lcm");
  static const Op floor_divide("floor_divide");
  Tensor divisor = ops::clamp(gcd(self, other), Scalar(1));
  return ops::abs(ops::mul(floor_divide(self, divisor), other));
}

Tensor ldexp(const Tensor& self, const Tensor& other) {
  bool whole = is_floating(self.dtype()) && is_integral(other.dtype(), true);
  return ops::mul(self, ops::pow(2.0, whole ? ops::to_dtype(other, self.dtype()) : other));
}

} // namespace

TS_OPERATORS(integer) {
  def("gcd(Tensor self, Tensor other) -> Tensor")
      .body<gcd>()
      .not_differentiable()
      .inplace()
      .out()
      .doc("Greatest common divisors of integers, elementwise; the other number where one is 0.");
  def("lcm(Tensor self, Tensor other) -> Tensor")
      .body<lcm>()
      .not_differentiable()
      .inplace()
      .out()
      .doc("Least common multiples of integers, elementwise.");
  def("ldexp(Tensor self, Tensor other) -> Tensor").body<ldexp>().inplace().out().doc("self * 2^other, elementwise.");
}

} // namespace ts
