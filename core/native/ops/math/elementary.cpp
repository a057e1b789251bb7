// Elementary and special functions: exponentials, logarithms, trigonometry, error functions, rounding.
#include "autograd/declared.h"
#include "dispatch/op_handles.h"
#include "ops/math/pointwise_table.h"
#include <cmath>

namespace ts {
namespace {

// Within about a quarter of zero: of complex numbers a comparison sees the real part, and those of x^2 and x^4 bound
// |x|.
#define NEAR_ZERO "(self * self < 0.0625) * (-0.0625 < self * self) * (-0.004 < self * self * (self * self))"
// (cos(pi x) - sinc(x)) / x near zero, where the two cancel: its series in x^2.
#define SINC_SLOPE                                                                                                     \
  "self * (-3.2898681336964529 + self * self * (3.2469697011334146 + self * self * (-1.1445109447325053 + "            \
  "self * self * (0.2091827825412384 + self * self * (-0.023460810354558236 + self * self * (0.0017811455163728520 + " \
  "self * self * (-9.7662231263189327e-5 + self * self * 4.0499478466192442e-6)))))))"

constexpr UnaryRow kElementaryRows[] = {
    {"exp", "exp(self)", Promote::Float, "grad * result", "e to the power of self.", "autocast:-/float32"},
    {"exp2", "exp2(self)", Promote::Float, nullptr, "2 to the power of self."},
    {"expm1", "expm1(self)", Promote::Float, "grad * (result + 1)", "exp(self) - 1, accurate near 0.",
     "zero autocast:-/float32"},
    {"log", "log(self)", Promote::Float, "grad / self", "Natural logarithm.", "autocast:-/float32"},
    {"log2", "log2(self)", Promote::Float, nullptr, "Logarithm to base 2.", "autocast:-/float32"},
    {"log10", "log10(self)", Promote::Float, nullptr, "Logarithm to base 10.", "autocast:-/float32"},
    {"log1p", "log1p(self)", Promote::Float, "grad / (self + 1)", "log(1 + self), accurate near 0.",
     "zero autocast:-/float32"},
    {"sqrt", "sqrt(self)", Promote::Float, "grad / (2 * result)", "Square root; NaN for negative elements.", "zero"},
    {"rsqrt", "rsqrt(self)", Promote::Float, "-0.5 * grad * (result * result * result)", "1 / sqrt(self).",
     "autocast:-/float32"},
    {"sin", "sin(self)", Promote::Float, nullptr, "Sine of angles in radians.", "zero"},
    {"cos", "cos(self)", Promote::Float, nullptr, "Cosine of angles in radians."},
    {"tan", "tan(self)", Promote::Float, "grad * (1 + result * result)", "Tangent of angles in radians.",
     "zero autocast:-/float32"},
    {"asin arcsin", "asin(self)", Promote::Float, nullptr, "Arc sine in radians.", "zero autocast:-/float32"},
    {"acos arccos", "acos(self)", Promote::Float, nullptr, "Arc cosine in radians.", "autocast:-/float32"},
    {"atan arctan", "atan(self)", Promote::Float, nullptr, "Arc tangent in radians.", "zero"},
    {"sinh", "sinh(self)", Promote::Float, nullptr, "Hyperbolic sine.", "zero autocast:-/float32"},
    {"cosh", "cosh(self)", Promote::Float, nullptr, "Hyperbolic cosine.", "autocast:-/float32"},
    {"tanh", "tanh(self)", Promote::Float, "grad * (1 - result * result)", "Hyperbolic tangent.", "zero"},
    {"asinh arcsinh", "asinh(self)", Promote::Float, nullptr, "Inverse hyperbolic sine.", "zero"},
    {"acosh arccosh", "acosh(self)", Promote::Float, nullptr, "Inverse hyperbolic cosine."},
    {"atanh arctanh", "atanh(self)", Promote::Float, nullptr, "Inverse hyperbolic tangent.", "zero"},
    {"erf", "erf(self)", Promote::Float, nullptr,
     "Error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to self.", "zero"},
    {"erfc", "erfc(self)", Promote::Float, nullptr, "1 - erf(self), accurate for large self."},
    {"erfinv", "erfinv(self)", Promote::Float, nullptr, "Inverse of erf on (-1, 1).", "zero autocast:-/float32"},
    {"lgamma", "lgamma(self)", Promote::Float, nullptr, "Logarithm of the absolute value of the gamma function."},
    {"digamma", "digamma(self)", Promote::Float, nullptr, "Derivative of lgamma.", nullptr, nullptr, 0, true},
    {"sigmoid", "sigmoid(self)", Promote::Float, "grad * (result * (1 - result))", "1 / (1 + exp(-self))."},
    {"logit_exact", "log(self / (1 - self))", Promote::Float,
     "select((self >= 0) * (self <= 1), grad / (self * (1 - self)), inf - inf)", "log(self / (1 - self)).", nullptr,
     nullptr, 0, true},
    {"sinc", "select(self == 0, 1, sin(3.1415926535897931 * self) / (3.1415926535897931 * self))", Promote::Float,
     "grad * select(" NEAR_ZERO ", " SINC_SLOPE ", (cos(3.1415926535897931 * self) - result) / self)",
     "sin(pi self) / (pi self), 1 at 0."},
    {"deg2rad", "self * 0.017453292519943295", Promote::Float, nullptr, "Degrees to radians.", "zero", nullptr, 0,
     true},
    {"rad2deg", "self * 57.295779513082323", Promote::Float, nullptr, "Radians to degrees.", "zero", nullptr, 0, true},
    {"floor", "floor(self)", Promote::Arith, nullptr, "Largest integer not above self, in self's dtype.", "zero",
     nullptr, kSameDtype},
    {"ceil", "ceil(self)", Promote::Arith, nullptr, "Smallest integer not below self, in self's dtype.", "zero",
     nullptr, kSameDtype},
    {"trunc", "trunc(self)", Promote::Arith, nullptr, "Integer part of self, in self's dtype.", "zero", nullptr,
     kSameDtype},
    {"fix", "trunc(self)", Promote::Arith, nullptr, "Alias of trunc.", "alias:trunc zero"},
    {"frac", "self - trunc(self)", Promote::Arith, "grad", "Fractional part, with self's sign.", "zero", nullptr,
     kSameDtype},
    {"round", "round(self)", Promote::Arith, nullptr, "Nearest integer, halves to even.", "elementwise zero leaf",
     nullptr, kSameDtype},
};

Tensor round_decimals(const Tensor& self, int64_t decimals) {
  if (decimals == 0) return Op("round")(self);
  double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  static const Op round("round");
  const Op &there = decimals > 0 ? ops::mul : ops::div, &back = decimals > 0 ? ops::div : ops::mul;
  return constants_saved(back(round(constants_saved(there(self, scale))), scale));
}

// The series hold right of 0. Elements left of it are moved there, all by as many steps as the least one needs.
Tensor polygamma(int64_t n, const Tensor& self) {
  static const Op digamma("digamma"), trigamma("_trigamma"), zeta("_zeta"), item("_local_scalar_dense");
  TS_CHECK(n >= 0, "polygamma: polygamma(n, x) does not support negative n, got ", n);
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_complex(self.dtype()), "polygamma: not implemented for dtype ",
                self.dtype(), "; expected a real tensor");
  if (n < 2) return n == 0 ? digamma(self) : trigamma(self);
  Tensor x = is_floating(self.dtype()) ? self : ops::to_dtype(self, default_dtype()), total;
  double order = static_cast<double>(n) + 1, least = 1;
  if (x.numel() && !x.device().is_meta()) {
    Results r;
    item.invoke(r, ops::amin(ops::detach(x)));
    least = r[0].as_double();
  }
  TS_CHECK(!(least < -10000), "polygamma: expected elements from -10000 on where n is 2 or more, got ", least);
  for (; least <= 0; ++least) {
    Tensor term = ops::pow(x, -order);
    total = total.defined() ? ops::add(total, term) : term;
    x = ops::add(x, 1);
  }
  Tensor right = zeta(order, x);
  double factor = (n % 2 ? 1 : -1) * std::tgamma(order);
  return ops::mul(total.defined() ? ops::add(total, right) : right, factor);
}

Tensor logit(const Tensor& self, std::optional<double> eps) {
  static const Op exact("logit_exact");
  return exact(eps ? ops::clamp(self, *eps, 1 - *eps) : self);
}

} // namespace

TS_OPERATORS(elementary) {
  declare_unary(kElementaryRows);
  def("round.decimals(Tensor self, *, int decimals) -> Tensor")
      .body<round_decimals>()
      .inplace()
      .out()
      .doc("Rounds to a number of decimal places; negative ones round to tens, hundreds...");
  def("polygamma(int n, Tensor self) -> Tensor")
      .facts("elementwise leaf stored:none")
      .body<polygamma>()
      .out()
      .in("special")
      .doc("The n-th derivative of digamma; RuntimeError for negative n. From n = 2 on it waits for the device.");
  def("_trigamma(Tensor self) -> Tensor")
      .pointwise("trigamma(self)")
      .promote(Promote::Float)
      .no_complex()
      .node_name("PolygammaBackward0")
      .hidden()
      .doc("The derivative of digamma.");
  def("_zeta(Operand s, Operand q) -> Tensor")
      .pointwise("zeta(s, q)")
      .promote(Promote::Float)
      .no_complex()
      .hidden()
      .doc("Hurwitz's zeta function for s > 1, q > 0.");
  def("_round_float16(Tensor self) -> Tensor")
      .pointwise("round_float16(self)")
      .promote(Promote::Float)
      .hidden()
      .not_differentiable()
      .doc("To the nearest number that float16 holds, ties to even, in self's dtype.");
  def("_round_bfloat16(Tensor self) -> Tensor")
      .pointwise("round_bfloat16(self)")
      .promote(Promote::Float)
      .hidden()
      .not_differentiable()
      .doc("To the nearest number that bfloat16 holds, ties to even, in self's dtype.");
  def("logit(Tensor self, float? eps=None) -> Tensor")
      .facts("elementwise leaf")
      .body<logit>()
      .inplace()
      .out()
      .doc("log(self / (1 - self)); eps clamps self to [eps, 1 - eps] first.");
}

} // namespace ts
