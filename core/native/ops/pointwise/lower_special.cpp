// The error function, its relatives and the gamma function in elementary instructions, for lower.cpp. To the accuracy
// of the registers where the function is well conditioned; near the zeros of lgamma and digamma, absolutely.
#include "ops/pointwise/functions.h"
#include "ops/pointwise/lower.h"
#include <cmath>
#include <limits>
#include <numbers>

namespace ts::pointwise::lowering {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = std::numbers::pi;

Expr log(const Expr& a) { return call(TS_I_LOG, a); }

// Below 1: the power series (DLMF 7.6.1), whose terms fall off before they cancel.
Expr small_erf(const Expr& x) {
  constexpr int kTerms = 22;
  Expr square = mul(x, x), sum = num(0);
  double factorial = 1, coefficients[kTerms];
  for (int k = 0; k < kTerms; ++k) {
    if (k) factorial *= -k;
    coefficients[k] = 2 / std::sqrt(kPi) / (factorial * (2 * k + 1));
  }
  for (int k = kTerms; k-- > 0;) sum = add(mul(sum, square), num(coefficients[k]));
  return mul(x, sum);
}

// exp(-x^2), with the digits that squaring loses: x = h + l with few digits in h.
Expr bell(const Expr& x) {
  Expr high = div(call(TS_I_FLOOR, mul(x, num(16))), num(16)), low = sub(x, high);
  Expr rest = mul(low, add(x, high));
  return mul(call(TS_I_EXP, neg(mul(high, high))), call(TS_I_EXP, neg(rest)));
}

// For x >= 0.
Expr right_erfc(const Expr& x) {
  Expr bounded = call(TS_I_MIN, x, num(30)); // erfcx is of no weight further on, but must be finite
  return mul(bell(bounded), erfcx(bounded));
}

// Stirling's series for z >= 9 without the constant.
Expr stirling(const Expr& z) {
  static constexpr double kSeries[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                       1.0 / 1188, -691.0 / 360360, 1.0 / 156,  -3617.0 / 122400};
  Expr inverse = div(num(1), z), square = mul(inverse, inverse), sum = num(0);
  for (size_t k = std::size(kSeries); k-- > 0;) sum = add(mul(sum, square), num(kSeries[k]));
  return add(mul(sub(z, num(0.5)), log(z)), add(sub(mul(sum, inverse), z), num(0.5 * std::log(2 * kPi))));
}

// lgamma(1 + t) / t about 0, for |t| <= 0.5: -gamma + zeta(2) t / 2 - zeta(3) t^2 / 3 ... (DLMF 5.7.3), summed with the
// slow part of zeta(k) - 1 taken out as log1p.
Expr near_one(const Expr& t) {
  static constexpr double kZeta[] = {
      0.64493406684822644,    0.20205690315959429,    0.082323233711138192,   0.036927755143369926,
      0.017343061984449140,   0.0083492773819228268,  0.0040773561979443394,  0.0020083928260822144,
      0.00099457512781808534, 0.00049418860411946456, 0.00024608655330804830, 0.00012271334757848915,
      6.1248135058704829e-05, 3.0588236307020493e-05, 1.5282259408651872e-05, 7.6371976378997623e-06,
      3.8172932649998398e-06, 1.9082127165539390e-06, 9.5396203387279611e-07, 4.7693298678780646e-07,
      2.3845050272773299e-07, 1.1921992596531107e-07, 5.9608189051259480e-08, 2.9803503514652280e-08,
      1.4901554828365042e-08};
  Expr sum = num(0);
  for (size_t k = std::size(kZeta); k-- > 0;) {
    double coefficient = (k % 2 ? -kZeta[k] : kZeta[k]) / static_cast<double>(k + 2);
    sum = add(mul(sum, t), num(coefficient));
  }
  // log gamma(1 + t) = -log(1 + t) + t (1 - gamma) + sum of (-1)^k (zeta(k) - 1) t^k / k
  Expr series = mul(t, add(num(1 - std::numbers::egamma), mul(t, sum)));
  return sub(series, call(TS_I_LOG1P, t));
}

// For x >= 0.5: about 1 and 2 the series, elsewhere Stirling's after eight steps of the recurrence.
Expr right_lgamma(const Expr& x) {
  constexpr int kSteps = 8;
  Expr product = x;
  for (int k = 1; k < kSteps; ++k) product = mul(product, add(x, num(k)));
  Expr shifted = sub(stirling(add(x, num(kSteps))), log(product));
  Expr far = select(lt(x, num(kSteps)), shifted, stirling(x));
  Expr one = near_one(sub(x, num(1))), less = sub(x, num(2));
  Expr two = add(near_one(less), call(TS_I_LOG1P, less)); // gamma(x) = (x - 1) gamma(x - 1)
  return select(lt(x, num(1.5)), one, select(lt(x, num(2.5)), two, far));
}

// sin(pi x) to full relative accuracy, of x less whole turns.
Expr sine_of_turns(const Expr& x) {
  Expr rest = sub(x, call(TS_I_ROUND, x)); // exact, in [-0.5, 0.5]
  return call(TS_I_SIN, mul(num(kPi), rest));
}

} // namespace

Expr erf(const Expr& x) {
  Expr size = abs(x), large = sub(num(1), right_erfc(size));
  large = select(lt(x, num(0)), neg(large), large);
  Expr far = select(eq(x, x), large, x);
  return select(lt(size, num(1)), small_erf(x), far);
}

Expr erfc(const Expr& x) {
  Expr size = abs(x), right = right_erfc(size);
  Expr far = select(lt(x, num(0)), sub(num(2), right), right);
  far = select(eq(x, x), far, x);
  return select(lt(size, num(0.5)), sub(num(1), small_erf(x)), far);
}

// sqrt(1/2) times the normal quantile of (1 + y) / 2, one of Newton's steps further.
Expr erfinv(const Expr& y) {
  Expr size = abs(y);
  // The tail's probability is exact: 1 - size is, from 0.5 on.
  Expr tail = mul(num(0.5), sub(num(1), size));
  Expr start = mul(num(-std::numbers::sqrt2 / 2), ndtri(tail));
  Expr inner = mul(num(std::sqrt(kPi) / 2), size); // the first term about 0, where the tail has lost its digits
  Expr small = lt(size, num(0x1p-10));
  Expr x = select(small, inner, start);
  for (int step = 0; step < 2; ++step) {
    Expr miss = select(lt(size, num(0.5)), sub(erf(x), size), sub(sub(num(1), size), erfc(x)));
    x = sub(x, mul(miss, div(num(std::sqrt(kPi) / 2), bell(x))));
  }
  x = select(eq(size, num(1)), num(kInfinity), x);
  x = select(eq(y, num(0)), size, x);
  return select(lt(y, num(0)), neg(x), x); // beyond 1, and of NaN: the logarithm of a negative number is NaN
}

Expr lgamma(const Expr& x) {
  Expr left = lt(x, num(0.5)), half = right_lgamma(select(left, sub(num(1), x), x));
  Expr mirrored = sub(sub(num(std::log(kPi)), log(abs(sine_of_turns(x)))), half);
  Expr value = select(left, mirrored, half);
  Expr pole = call(TS_I_MIN, call(TS_I_LE, x, num(0)), eq(call(TS_I_FLOOR, x), x));
  Expr infinite = call(TS_I_MAX, pole, eq(abs(x), num(kInfinity)));
  return select(infinite, num(kInfinity), value);
}

// Reflection below 0, the recurrence, then the asymptotic series (DLMF 5.11.2).
Expr digamma(const Expr& x) {
  static constexpr double kSeries[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760};
  constexpr int kSteps = 10;
  Expr left = lt(x, num(0)), z = select(left, sub(num(1), x), x), sum = num(0);
  for (int k = 0; k < kSteps; ++k) {
    Expr near = lt(z, num(10));
    sum = select(near, sub(sum, div(num(1), z)), sum);
    z = select(near, add(z, num(1)), z);
  }
  Expr inverse = div(num(1), z), square = mul(inverse, inverse), tail = num(0);
  for (size_t k = std::size(kSeries); k-- > 0;) tail = add(mul(tail, square), num(kSeries[k]));
  Expr right = add(sub(sub(log(z), mul(num(0.5), inverse)), mul(square, tail)), sum);
  Expr rest = mul(num(kPi), sub(x, call(TS_I_ROUND, x)));
  Expr mirrored = sub(right, div(num(kPi), div(call(TS_I_SIN, rest), call(TS_I_COS, rest))));
  Expr value = select(left, mirrored, right);
  Expr nan = sub(num(kInfinity), num(kInfinity));
  value = select(call(TS_I_MIN, left, eq(call(TS_I_FLOOR, x), x)), nan, value);
  Expr at_zero = div(num(-1), x); // of the sign opposite to 0's
  return select(eq(x, num(0)), at_zero, value);
}

} // namespace ts::pointwise::lowering
