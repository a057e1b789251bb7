// Bessel functions, erfcx and ndtri as expressions: Chebyshev series near the origin, and series in the reciprocal of x
// of what is left after the exponential or the oscillation far from it.
#include "ops/pointwise/bessel_tables.h"
#include "ops/pointwise/functions.h"
#include <cmath>
#include <limits>
#include <numbers>

namespace ts::pointwise {
namespace {

using Table = std::span<const double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Expr num(double v) { return constant(v); }
Expr add(Expr a, Expr b) { return instruction(TS_I_ADD, std::move(a), std::move(b)); }
Expr sub(Expr a, Expr b) { return instruction(TS_I_SUB, std::move(a), std::move(b)); }
Expr mul(Expr a, Expr b) { return instruction(TS_I_MUL, std::move(a), std::move(b)); }
Expr div(Expr a, Expr b) { return instruction(TS_I_DIV, std::move(a), std::move(b)); }
Expr fma(Expr a, Expr b, Expr c) { return instruction(TS_I_FMA, std::move(a), std::move(b), std::move(c)); }
Expr unary(uint16_t op, const Expr& a) { return instruction(op, a); }
Expr select(Expr c, Expr a, Expr b) { return instruction(TS_I_SELECT, std::move(c), std::move(a), std::move(b)); }
Expr at_most(const Expr& x, double bound) { return instruction(TS_I_LE, x, num(bound)); }

// Sum of c_k T_k(y), by Clenshaw's recurrence.
Expr chebyshev(Table c, const Expr& y) {
  Expr twice = add(y, y), b1 = num(c.back()), b2 = num(0);
  for (size_t k = c.size() - 1; k-- > 1;) {
    Expr next = fma(twice, b1, sub(num(c[k]), b2));
    b2 = b1;
    b1 = next;
  }
  return fma(y, b1, sub(num(c[0]), b2));
}
// The series of a variable in [0, bound].
Expr series(Table c, const Expr& x, double bound) { return chebyshev(c, fma(x, num(2 / bound), num(-1))); }
Expr horner(Table c, const Expr& x) {
  Expr sum = num(c.back());
  for (size_t k = c.size() - 1; k-- > 0;) sum = fma(sum, x, num(c[k]));
  return sum;
}

// x is not negative. P and Q of J = sqrt(2 / (pi x)) (P cos - Q sin), Y = ... (P sin + Q cos) of x - (order / 2 + 1 /
// 4) pi.
struct Waves {
  Expr p, q, cosine, sine, height;
};
Waves waves(int order, const Expr& x) {
  Expr reciprocal = div(num(8), x), squared = mul(reciprocal, reciprocal);
  Expr s = unary(TS_I_SIN, x), c = unary(TS_I_COS, x);
  Expr sum = mul(num(std::numbers::sqrt2 / 2), add(s, c)), difference = mul(num(std::numbers::sqrt2 / 2), sub(s, c));
  Expr p = series(order ? Table(tables::kP1) : Table(tables::kP0), squared, 1);
  Expr q = mul(reciprocal, series(order ? Table(tables::kQ1) : Table(tables::kQ0), squared, 1));
  Expr height = unary(TS_I_SQRT, div(num(2 / std::numbers::pi), x));
  // x - pi/4 and x - 3 pi/4 by the addition theorem: the difference itself would lose digits.
  return order ? Waves{p, q, difference, unary(TS_I_NEG, sum), height} : Waves{p, q, sum, difference, height};
}
Expr near_j(int order, const Expr& x) {
  Expr squared = mul(x, x);
  if (order == 0) return series(tables::kJ0Small, squared, 64);
  return mul(x, series(tables::kJ1Small, squared, 64));
}

} // namespace

Expr bessel_j(int order, const Expr& x) {
  Expr size = unary(TS_I_ABS, x);
  Waves w = waves(order, size);
  Expr far = mul(w.height, sub(mul(w.p, w.cosine), mul(w.q, w.sine)));
  far = select(instruction(TS_I_EQ, size, num(kInfinity)), num(0), far);
  Expr even = select(at_most(size, 8), near_j(order, size), far);
  return order ? select(instruction(TS_I_LT, x, num(0)), unary(TS_I_NEG, even), even) : even;
}

Expr bessel_y(int order, const Expr& x) {
  Waves w = waves(order, x);
  Expr far = mul(w.height, add(mul(w.p, w.sine), mul(w.q, w.cosine)));
  far = select(instruction(TS_I_EQ, x, num(kInfinity)), num(0), far);
  Expr logarithm = mul(unary(TS_I_LOG, x), near_j(order, x)), squared = mul(x, x);
  Expr near = order ? fma(x, series(tables::kY1Small, squared, 64),
                          mul(num(2 / std::numbers::pi), sub(logarithm, unary(TS_I_RECIP, x))))
                    : fma(num(2 / std::numbers::pi), logarithm, series(tables::kY0Small, squared, 64));
  near = select(instruction(TS_I_EQ, x, num(0)), num(-kInfinity), near);
  return select(at_most(x, 8), near, far);
}

Expr bessel_i_scaled(int order, const Expr& x) {
  Expr size = unary(TS_I_ABS, x);
  Expr near = series(order ? Table(tables::kI1eSmall) : Table(tables::kI0eSmall), size, 8);
  if (order) near = mul(size, near);
  Expr reciprocal = div(num(8), size);
  Expr far =
      mul(series(order ? Table(tables::kI1eLarge) : Table(tables::kI0eLarge), reciprocal, 1), unary(TS_I_RSQRT, size));
  Expr even = select(at_most(size, 8), near, far);
  return order ? select(instruction(TS_I_LT, x, num(0)), unary(TS_I_NEG, even), even) : even;
}

Expr bessel_k(int order, const Expr& x, bool scaled) {
  Expr squared = mul(x, x), logarithm = unary(TS_I_LOG, mul(x, num(0.5)));
  Expr i = series(order ? Table(tables::kI1Square) : Table(tables::kI0Square), squared, 4);
  Expr near = order ? fma(mul(logarithm, x), i, div(series(tables::kK1Small, squared, 4), x))
                    : sub(series(tables::kK0Small, squared, 4), mul(logarithm, i));
  near = select(instruction(TS_I_EQ, x, num(0)), num(kInfinity), near);
  Expr far =
      mul(series(order ? Table(tables::kK1Large) : Table(tables::kK0Large), div(num(2), x), 1), unary(TS_I_RSQRT, x));
  if (scaled)
    near = mul(near, unary(TS_I_EXP, x));
  else
    far = mul(far, unary(TS_I_EXP, unary(TS_I_NEG, x)));
  return select(at_most(x, 2), near, far);
}

// In terms of z = 2/3 |x|^(3/2) away from the origin (DLMF 9.7).
Expr airy_ai(const Expr& x) {
  constexpr double kBelow = -8, kAbove = 2; // where each series begins
  const double z8 = 2.0 / 3 * std::pow(8.0, 1.5), z2 = 2.0 / 3 * std::pow(2.0, 1.5);
  Expr size = unary(TS_I_ABS, x), root = unary(TS_I_SQRT, size), quarter = unary(TS_I_RSQRT, root);
  Expr z = mul(num(2.0 / 3), mul(size, root)), inverse = unary(TS_I_RECIP, z);
  Expr near = chebyshev(tables::kAiNear, fma(sub(x, num(kBelow)), num(2 / (kAbove - kBelow)), num(-1)));
  Expr right = mul(mul(num(0.5 / std::sqrt(std::numbers::pi)), quarter),
                   mul(unary(TS_I_EXP, unary(TS_I_NEG, z)), series(tables::kAiFar, mul(num(z2), inverse), 1)));
  Expr ratio = mul(num(z8), inverse), squared = mul(ratio, ratio);
  Expr s = unary(TS_I_SIN, z), c = unary(TS_I_COS, z); // of z - pi/4, by the addition theorem
  Expr cosine = mul(num(std::numbers::sqrt2 / 2), add(s, c)), sine = mul(num(std::numbers::sqrt2 / 2), sub(s, c));
  Expr waves =
      add(mul(cosine, series(tables::kAiP, squared, 1)), mul(sine, mul(ratio, series(tables::kAiQ, squared, 1))));
  Expr left = mul(mul(num(1 / std::sqrt(std::numbers::pi)), quarter), waves);
  Expr infinite = instruction(TS_I_EQ, size, num(kInfinity));
  Expr outside = select(infinite, num(0), select(instruction(TS_I_LT, x, num(0)), left, right));
  Expr inside = mul(instruction(TS_I_GE, x, num(kBelow)), instruction(TS_I_LE, x, num(kAbove)));
  return select(inside, near, outside);
}

Expr erfcx(const Expr& x) {
  Expr size = unary(TS_I_ABS, x);
  Expr t = sub(num(1), div(num(7.5), add(size, num(3.75)))); // (|x| - 3.75) / (|x| + 3.75)
  Expr right = div(chebyshev(tables::kErfcx, t), fma(size, num(2), num(1)));
  Expr left = sub(mul(num(2), unary(TS_I_EXP, mul(x, x))), right);
  return select(instruction(TS_I_LT, x, num(0)), left, right);
}

Expr ndtri(const Expr& p) {
  static constexpr double a[] = {3.3871328727963666080,    1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                 1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                 3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double b[] = {1.0,
                                 4.2313330701600911252e+1,
                                 6.8718700749205790830e+2,
                                 5.3941960214247511077e+3,
                                 2.1213794301586595867e+4,
                                 3.9307895800092710610e+4,
                                 2.8729085735721942674e+4,
                                 5.2264952788528545610e+3};
  static constexpr double c[] = {1.42343711074968357734,    4.63033784615654529590,   5.76949722146069140550,
                                 3.64784832476320460504,    1.27045825245236838258,   2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double d[] = {1.0,
                                 2.05319162663775882187,
                                 1.67638483018380384940,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
  static constexpr double e[] = {6.65790464350110377720,    5.46378491116411436990,    1.78482653991729133580,
                                 2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double f[] = {1.0,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};
  Expr q = sub(p, num(0.5)), r = sub(num(0.180625), mul(q, q));
  Expr central = mul(q, div(horner(a, r), horner(b, r)));
  Expr low = instruction(TS_I_LT, q, num(0)), tail = select(low, p, sub(num(1), p));
  Expr root = unary(TS_I_SQRT, unary(TS_I_NEG, unary(TS_I_LOG, tail)));
  Expr near = sub(root, num(1.6)), far = sub(root, num(5));
  Expr outer = select(at_most(root, 5), div(horner(c, near), horner(d, near)), div(horner(e, far), horner(f, far)));
  outer = select(instruction(TS_I_EQ, tail, num(0)), num(kInfinity), outer);
  outer = select(low, unary(TS_I_NEG, outer), outer);
  return select(at_most(unary(TS_I_ABS, q), 0.425), central, outer);
}

} // namespace ts::pointwise
