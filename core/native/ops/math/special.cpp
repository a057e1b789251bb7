// Special functions, with the names of torch.special: each an expression (ops/pointwise/functions.h), so that every
// backend has it. The gradients are those PyTorch has; Bessel functions of the first kind and their like have none
// there.
#include "ops/math/pointwise_table.h"

namespace ts {
namespace {

// I1'(x) within one of zero, where I0(x) and I1(x) / x cancel in derivatives further on: its series in x^2.
#define I1_SLOPE                                                                                                       \
  "(0.5 + self * self * (0.1875 + self * self * (0.013020833333333334 + self * self * (0.00037977430555555556 + self " \
  "* self * (6.103515625e-06 + self * self * (6.216543692129629e-08 + self * self * (4.3731097401344796e-10 + self * " \
  "self * (2.252632077679162e-12 + self * self * (8.864524379755962e-15 + self * self * "                              \
  "2.752058222473256e-17)))))))))"

constexpr UnaryRow kSpecialRows[] = {
    {"special_entr", "select(self > 0, -self * log(self), select(self == 0, 0, select(self < 0, -inf, self)))",
     Promote::Float, "grad * (-log(self) - 1)", "-x log(x); 0 at 0, minus infinity left of it.", nullptr, nullptr, 0,
     true},
    {"special_erfcx", "erfcx(self)", Promote::Float, "grad * (2 * self * result - 1.1283791670955126)",
     "exp(x^2) erfc(x), which does not underflow for large x."},
    {"special_ndtr", "0.5 * erfc(self * -0.70710678118654752)", Promote::Float,
     "grad * (0.39894228040143268 * exp(-0.5 * self * self))", "The distribution function of the standard normal."},
    {"special_ndtri", "ndtri(self)", Promote::Float, "grad * (2.5066282746310002 * exp(0.5 * result * result))",
     "The quantile function of the standard normal: the inverse of ndtr (Wichura 1988, AS 241)."},
    {"special_log_ndtr",
     "select(self < -1, log(0.5 * erfcx(self * -0.70710678118654752)) - 0.5 * self * self, "
     "log1p(-0.5 * erfc(self * 0.70710678118654752)))",
     Promote::Float, // The second form can be differentiated again at 0, where erfcx joins two series.
     "grad * select(self < -1, 0.79788456080286536 / erfcx(self * -0.70710678118654752), "
     "0.39894228040143268 * exp(-0.5 * self * self - result))",
     "log(ndtr(x)), accurate where ndtr underflows."},
    {"special_i0e", "i0e(self)", Promote::Float, "grad * (i1e(self) - sign(self) * result)",
     "exp(-|x|) I0(x), the modified Bessel function of the first kind, scaled."},
    {"special_i1", "select(abs(self) == inf, self, i1e(self) * exp(abs(self)))", Promote::Float,
     "grad * select(abs(self) < 1, " I1_SLOPE ", i0e(self) * exp(abs(self)) - result / self)",
     "I1(x), the modified Bessel function of the first kind of order one."},
    {"special_i1e", "i1e(self)", Promote::Float,
     "grad * select(abs(self) < 1, " I1_SLOPE " * exp(-abs(self)) - sign(self) * result, "
     "i0e(self) - result * (sign(self) + 1 / self))",
     "exp(-|x|) I1(x), the modified Bessel function of order one, scaled."},
};

// Without gradients, as there.
constexpr UnaryRow kPlainRows[] = {
    {"special_airy_ai", "airy_ai(self)", Promote::Float, nullptr, "The Airy function Ai(x)."},
    {"special_bessel_j0", "bessel_j0(self)", Promote::Float, nullptr, "J0(x), the Bessel function of the first kind."},
    {"special_bessel_j1", "bessel_j1(self)", Promote::Float, nullptr, "J1(x), the Bessel function of the first kind."},
    {"special_bessel_y0", "bessel_y0(self)", Promote::Float, nullptr,
     "Y0(x), the Bessel function of the second kind; NaN for negative x.", nullptr, nullptr, 0, true},
    {"special_bessel_y1", "bessel_y1(self)", Promote::Float, nullptr,
     "Y1(x), the Bessel function of the second kind; NaN for negative x.", nullptr, nullptr, 0, true},
    {"special_modified_bessel_i0", "select(abs(self) == inf, inf, i0e(self) * exp(abs(self)))", Promote::Float, nullptr,
     "I0(x), as i0."},
    {"special_modified_bessel_i1", "select(abs(self) == inf, self, i1e(self) * exp(abs(self)))", Promote::Float,
     nullptr, "I1(x), as i1."},
    {"special_modified_bessel_k0", "k0(self)", Promote::Float, nullptr,
     "K0(x), the modified Bessel function of the second kind; NaN for negative x.", nullptr, nullptr, 0, true},
    {"special_modified_bessel_k1", "k1(self)", Promote::Float, nullptr,
     "K1(x), the modified Bessel function of the second kind; NaN for negative x.", nullptr, nullptr, 0, true},
    {"special_scaled_modified_bessel_k0", "k0e(self)", Promote::Float, nullptr, "exp(x) K0(x).", nullptr, nullptr, 0,
     true},
    {"special_scaled_modified_bessel_k1", "k1e(self)", Promote::Float, nullptr, "exp(x) K1(x).", nullptr, nullptr, 0,
     true},
    {"special_spherical_bessel_j0", "select(abs(self) == inf, 0, select(self == 0, 1, sin(self) / self))",
     Promote::Float, nullptr, "sin(x) / x, the spherical Bessel function of order zero."},
};

void declare_hidden(const UnaryRow& row, bool gradients) {
  std::string schema = std::string(row.names) + "(Tensor self) -> Tensor";
  Def d(schema.c_str());
  d.pointwise(row.expression).promote(row.promote).out().hidden().doc(row.doc);
  if (row.derivative) d.derivative("self", row.derivative);
  if (!gradients) d.not_differentiable();
  if (row.no_complex) d.no_complex();
}

} // namespace

TS_OPERATORS(special) {
  for (const UnaryRow& row : kSpecialRows) declare_hidden(row, true);
  for (const UnaryRow& row : kPlainRows) declare_hidden(row, false);
  def("i0(Tensor self) -> Tensor")
      .pointwise("select(abs(self) == inf, inf, i0e(self) * exp(abs(self)))")
      .promote(Promote::Float)
      .derivative("self",
                  "grad * select(self == 0, 0.5 * self, i1e(self) * exp(abs(self)))") // whose slope is 0.5 there
      .inplace()
      .out()
      .doc("I0(x), the modified Bessel function of the first kind of order zero.");
  def("special_xlog1py(Operand self, Operand other) -> Tensor")
      .pointwise("select(other != other, other, select(self == 0, 0, self * log1p(other)))")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "grad * select(self == 0, select(other <= -1, 0, log1p(other)), log1p(other))")
      .derivative("other", "grad * self / (other + 1)")
      .out()
      .hidden()
      .doc("self * log1p(other), 0 where self is 0.");
  // Left of zero the sum has poles at the integers; between them it is defined for whole s alone.
  def("special_zeta(Operand self, Operand other) -> Tensor")
      .pointwise("select(self < 1, inf - inf, select(self == 1, inf, select(other > 0, zeta(self, other), "
                 "select(other == floor(other), inf, select((self == floor(self)) * (other > -9), "
                 "zeta(self, other + 9) + pow(other, -self) + pow(other + 1, -self) + pow(other + 2, -self) + "
                 "pow(other + 3, -self) + pow(other + 4, -self) + pow(other + 5, -self) + pow(other + 6, -self) + "
                 "pow(other + 7, -self) + pow(other + 8, -self), inf - inf)))))")
      .promote(Promote::Float)
      .derivative("other", "grad * (-self * zeta(self + 1, other))")
      .out()
      .hidden()
      .doc("Hurwitz's zeta function, the sum of (other + k)^-self over k >= 0; NaN for other <= -8 not whole.");
}

} // namespace ts
