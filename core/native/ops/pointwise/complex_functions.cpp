// Elementary functions of (re, im) pairs. Formulas: W. Kahan, "Branch cuts for complex elementary functions" (1987),
// and annex G of C99 for what is not finite.
#include "ops/pointwise/complex.h"
#include "ops/pointwise/expr_operators.h"
#include <cmath>
#include <numbers>

namespace ts::pointwise::complex {
namespace {

Expr abs(const Expr& x) { return call(TS_I_ABS, x); }
Expr equal(const Expr& a, const Expr& b) { return call(TS_I_EQ, a, b); }
Expr less(const Expr& a, const Expr& b) { return call(TS_I_LT, a, b); }
Expr infinite(const Expr& x) { return equal(abs(x), num(INFINITY)); }
Expr finite(const Expr& x) { return less(abs(x), num(INFINITY)); }
Expr either(const Expr& a, const Expr& b) { return call(TS_I_MAX, a, b); }
Expr both(const Expr& a, const Expr& b) { return a * b; }
Expr copysign(const Expr& a, const Expr& b) { return call(TS_I_COPYSIGN, a, b); }
Expr atan2(const Expr& y, const Expr& x) { return call(TS_I_ATAN2, y, x); }
Expr hypot(const Expr& x, const Expr& y) { return call(TS_I_HYPOT, x, y); }
Expr log1p_of(const Expr& x) { return call(TS_I_LOG1P, x); }
Expr asinh_of(const Expr& x) { return call(TS_I_ASINH, x); }

Pair choose(const Expr& c, const Pair& a, const Pair& b) { return {select(c, a.re, b.re), select(c, a.im, b.im)}; }
Expr nan() { return num(std::nan("")); }

// Re(conj(a) * b) and Im(conj(a) * b).
Expr conjugate_product_re(const Pair& a, const Pair& b) { return a.re * b.re + a.im * b.im; }
Expr conjugate_product_im(const Pair& a, const Pair& b) { return a.re * b.im - a.im * b.re; }

// log(hypot(x, y)) without overflow, and without cancellation near the unit circle.
Expr log_modulus(const Expr& x, const Expr& y) {
  Expr m = call(TS_I_MAX, abs(x), abs(y)), n = call(TS_I_MIN, abs(x), abs(y)), r = hypot(x, y);
  Expr near = both(less(num(0.5), r), less(r, num(2)));
  Expr close = num(0.5) * log1p_of((m - num(1)) * (m + num(1)) + n * n);
  Expr halves = call(TS_I_LOG, hypot(num(0.25) * x, num(0.25) * y)) + num(2 * std::numbers::ln2);
  Expr beyond = both(equal(r, num(INFINITY)), less(m, num(INFINITY)));
  return select(near, close, select(beyond, halves, call(TS_I_LOG, r)));
}

} // namespace

Pair multiply(const Pair& a, const Pair& b) {
  if (!a.im && !b.im) return {a.re * b.re, nullptr};
  if (!a.im) return {a.re * b.re, a.re * b.im};
  if (!b.im) return {a.re * b.re, a.im * b.re};
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// By Smith's method: scaled by the larger part of the divisor.
Pair divide(const Pair& a, const Pair& b) {
  if (!b.im) return {a.re / b.re, a.im ? a.im / b.re : nullptr};
  Expr ai = a.im ? a.im : num(0);
  Expr by_re = call(TS_I_GE, abs(b.re), abs(b.im));
  Expr large = select(by_re, b.re, b.im), small = select(by_re, b.im, b.re);
  Expr ratio = select(equal(large, num(0)), num(0), small / large), scale = large + small * ratio;
  Expr re = select(by_re, a.re + ai * ratio, a.re * ratio + ai);
  Expr im = select(by_re, ai - a.re * ratio, ai * ratio - a.re);
  return {re / scale, im / scale};
}

Pair sqrt(const Pair& z) {
  const auto& [x, y] = z;
  Expr eighth = num(0.125);
  Expr t = num(2) * call(TS_I_SQRT, eighth * abs(x) + hypot(eighth * x, eighth * y)), other = abs(y) / (num(2) * t);
  Expr right = call(TS_I_GE, x, num(0));
  Pair root = choose(right, {t, copysign(other, y)}, {other, copysign(t, y)});
  // A NaN beside +-inf: the half plane is known, the sign is not.
  root = choose(equal(x, num(INFINITY)), {x, select(finite(y), copysign(num(0), y), y)}, root);
  root = choose(equal(t, num(0)), {num(0), y}, root);
  return choose(infinite(y), {num(INFINITY), y}, root);
}

namespace {
// exp(x) as a factor within range, and another: the modulus may overflow where a part does not.
Pair exp_factors(const Expr& x) {
  constexpr double apart = 64; // taken off exactly from 88, where float32 comes to its end
  Expr large = less(num(88), x);
  return {call(TS_I_EXP, select(large, x - num(apart), x)), select(large, num(std::exp(apart)), num(1))};
}
} // namespace

Pair exp(const Pair& z) {
  const auto& [x, y] = z;
  Expr vanishes = equal(x, num(-INFINITY));
  auto [e, scale] = exp_factors(x);
  Expr re = select(finite(y), e * call(TS_I_COS, y) * scale,
                   select(vanishes, num(0), select(equal(x, num(INFINITY)), num(INFINITY), nan())));
  Expr im = select(finite(y), e * call(TS_I_SIN, y) * scale, select(vanishes, num(0), nan()));
  e = e * scale;
  return choose(equal(y, num(0)), {e, y}, {re, im});
}

Pair expm1(const Pair& z) {
  const auto& [x, y] = z;
  Expr half = call(TS_I_SIN, num(0.5) * y), e = exp(z).im;
  Expr re = call(TS_I_EXPM1, x) * call(TS_I_COS, y) - num(2) * half * half;
  Pair far = {exp(z).re - num(1), e};
  return choose(both(finite(x), finite(y)), {re, e}, far);
}

Pair log(const Pair& z) { return {log_modulus(z.re, z.im), atan2(z.im, z.re)}; }

Pair log1p(const Pair& z) {
  const auto& [x, y] = z;
  Expr close = num(0.5) * log1p_of(x * (num(2) + x) + y * y), one_more = num(1) + x;
  Expr re = select(less(hypot(x, y), num(0.5)), close, log_modulus(one_more, y));
  return {re, atan2(y, one_more)};
}

Pair sinh(const Pair& z) {
  const auto& [x, y] = z;
  Expr re = call(TS_I_SINH, x) * call(TS_I_COS, y), im = call(TS_I_COSH, x) * call(TS_I_SIN, y);
  re = select(both(infinite(x), call(TS_I_NOT, finite(y))), x, re);
  return {select(equal(x, num(0)), x, re), select(equal(y, num(0)), y, im)};
}

Pair cosh(const Pair& z) {
  const auto& [x, y] = z;
  Expr re = call(TS_I_COSH, x) * call(TS_I_COS, y), im = call(TS_I_SINH, x) * call(TS_I_SIN, y);
  re = select(both(infinite(x), call(TS_I_NOT, finite(y))), num(INFINITY), re);
  // A zero times what is not finite stays zero.
  im = select(equal(x, num(0)), x * select(finite(y), call(TS_I_SIN, y), num(0)), im);
  return {re, select(equal(y, num(0)), y * copysign(num(1), x), im)};
}

Pair tanh(const Pair& z) {
  const auto& [x, y] = z;
  Expr t = call(TS_I_TAN, y), s = call(TS_I_SINH, x), beta = num(1) + t * t;
  Expr below = num(1) + beta * s * s, cosh_x = call(TS_I_COSH, x);
  Expr decay = num(4) * call(TS_I_EXP, num(-2) * abs(x)) * call(TS_I_SIN, y) * call(TS_I_COS, y);
  Pair far = {copysign(num(1), x), select(finite(y), decay, copysign(num(0), y))};
  Pair out = choose(less(num(20), abs(x)), far, {beta * cosh_x * s / below, t / below});
  out = choose(either(finite(y), infinite(x)), out, {select(equal(x, num(0)), x, nan()), nan()});
  return choose(equal(y, num(0)), {call(TS_I_TANH, x), y}, out);
}

namespace {

Pair one_minus(const Pair& z) { return {num(1) - z.re, -z.im}; }
Pair one_plus(const Pair& z) { return {num(1) + z.re, z.im}; }
Expr unbounded(const Pair& z) { return either(infinite(z.re), infinite(z.im)); }

} // namespace

Pair asin(const Pair& z) {
  Pair a = sqrt(one_minus(z)), b = sqrt(one_plus(z));
  Expr re = atan2(z.re, a.re * b.re - a.im * b.im);
  Pair near = {select(equal(z.re, num(0)), z.re, re), asinh_of(conjugate_product_im(a, b))};
  return choose(unbounded(z), {atan2(z.re, abs(z.im)), copysign(num(INFINITY), z.im)}, near);
}

Pair acos(const Pair& z) {
  Pair a = sqrt(one_minus(z)), b = sqrt(one_plus(z));
  Expr re = select(equal(z.re, num(0)), num(std::numbers::pi / 2), num(2) * atan2(a.re, b.re));
  Pair near = {re, asinh_of(conjugate_product_im(b, a))};
  return choose(unbounded(z), {atan2(abs(z.im), z.re), -copysign(num(INFINITY), z.im)}, near);
}

Pair acosh(const Pair& z) {
  Pair a = sqrt({z.re - num(1), z.im}), b = sqrt(one_plus(z));
  Expr im = num(2) * atan2(a.im, b.re), quarter = copysign(num(std::numbers::pi / 2), z.im);
  Pair near = {asinh_of(conjugate_product_re(a, b)), select(equal(z.re, num(0)), quarter, im)};
  return choose(unbounded(z), {num(INFINITY), atan2(z.im, z.re)}, near);
}

Pair atanh(const Pair& z) {
  const auto& [x, y] = z;
  Expr m = abs(x), gap = num(1) - m;
  Expr re = num(0.25) * log1p_of(num(4) * m / (gap * gap + y * y));
  Expr im = num(0.5) * atan2(num(2) * y, gap * (num(1) + m) - y * y);
  Pair far = {copysign(num(0), x), select(equal(y, y), copysign(num(std::numbers::pi / 2), y), y)};
  return choose(unbounded(z), far, {select(equal(x, num(0)), x, copysign(re, x)), im});
}

Pair power(const Pair& a, const Pair& b) {
  Pair general = exp(multiply(b, log(a)));
  // 0^0 is 1 and 0 to a power with a positive real part is 0.
  Expr zero = both(equal(a.re, num(0)), equal(a.im, num(0)));
  Expr empty = b.im ? both(equal(b.re, num(0)), equal(b.im, num(0))) : equal(b.re, num(0));
  Expr at_zero = select(less(num(0), b.re), num(0), nan());
  Pair out = choose(zero, {at_zero, at_zero}, general);
  return choose(empty, {num(1), num(0)}, out);
}

} // namespace ts::pointwise::complex
