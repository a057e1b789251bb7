// Relatives of the gamma function as expressions, so that no backend needs instructions for them and their derivatives
// follow: a recurrence towards the right, then an asymptotic series.
#include "ops/pointwise/expr.h"
#include <cmath>
#include <iterator>
#include <numbers>

namespace ts::pointwise {
namespace {

// Bernoulli numbers B2 to B16, in the coefficients of both series (DLMF 5.15.8 and 25.11.43).
constexpr double kBernoulli[] = {1.0 / 6,  -1.0 / 30,       1.0 / 42, -1.0 / 30,
                                 5.0 / 66, -691.0 / 2730.0, 7.0 / 6,  -3617.0 / 510};
constexpr int kShift = 9; // terms of the recurrence before the series, which is then exact to 1e-15

Expr num(double v) { return constant(v); }
Expr add(Expr a, Expr b) { return instruction(TS_I_ADD, std::move(a), std::move(b)); }
Expr mul(Expr a, Expr b) { return instruction(TS_I_MUL, std::move(a), std::move(b)); }
Expr recip(Expr a) { return instruction(TS_I_RECIP, std::move(a)); }
Expr square(const Expr& a) { return mul(a, a); }

// For x >= 0.5: 1/x^2 + ... + 1/(x+8)^2 and the series at x + 9.
Expr right_half(const Expr& x) {
  Expr far = recip(add(x, num(kShift))), far2 = square(far);
  Expr series = num(std::end(kBernoulli)[-1]);
  for (size_t k = std::size(kBernoulli) - 1; k-- > 0;) series = add(num(kBernoulli[k]), mul(far2, series));
  Expr total = mul(far, add(num(1), mul(far, add(num(0.5), mul(far, series)))));
  for (int k = kShift; k-- > 0;) total = add(square(recip(k ? add(x, num(k)) : x)), total);
  return total;
}

} // namespace

// Left of 0.5 by reflection: trigamma(x) = (pi / sin(pi x))^2 - trigamma(1 - x).
Expr trigamma(const Expr& x) {
  Expr left = instruction(TS_I_LT, x, num(0.5)), mirrored = instruction(TS_I_SUB, num(1), x);
  Expr half = right_half(instruction(TS_I_SELECT, left, mirrored, x));
  // Whole turns are taken off first: the sine of a large multiple of pi would be noise.
  Expr turn = instruction(TS_I_SUB, x, instruction(TS_I_ROUND, x));
  Expr peak = square(mul(num(std::numbers::pi), recip(instruction(TS_I_SIN, mul(num(std::numbers::pi), turn)))));
  return instruction(TS_I_SELECT, left, instruction(TS_I_SUB, peak, half), half);
}

// sum over k >= 0 of (q + k)^-s by Euler and Maclaurin.
Expr zeta(const Expr& s, const Expr& q) {
  auto power = [&](const Expr& base) { return instruction(TS_I_POW, base, instruction(TS_I_NEG, s)); };
  Expr far = add(q, num(kShift)), at_far = power(far), inverse = recip(far);
  Expr total = num(0);
  for (int k = 0; k < kShift; ++k) total = add(total, power(add(q, num(k))));
  total = add(total, mul(at_far, add(mul(far, recip(add(s, num(-1)))), num(0.5))));
  Expr term = mul(at_far, mul(s, inverse)); // s (s+1) ... (s+2j-2) (q+n)^(-s-2j+1)
  for (int j = 0; j < static_cast<int>(std::size(kBernoulli)); ++j) {
    total = add(total, mul(term, num(kBernoulli[j] / std::tgamma(2 * j + 3))));
    term = mul(term, mul(mul(add(s, num(2 * j + 1)), add(s, num(2 * j + 2))), square(inverse)));
  }
  return total;
}

} // namespace ts::pointwise
