// sin and cos in float64, branch-free for the compiler to vectorise. The multiple of pi / 2 is taken off in three parts
// of 53 bits, which leaves what is near a zero of either as exact as all else up to kTrigLimitF64.
#ifndef TESSERACK_CPU_TRIG_F64_H
#define TESSERACK_CPU_TRIG_F64_H

#include "horner.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr double kTrigLimitF64 = 1.0e6; // with what fused operations find exact

#if defined(__FMA__)

// sin or cos of r + low, |r| <= pi / 4, by Taylor's series, whose remainders there are 2^-63 and 2^-67.
TS_INLINE double sin_reduced(double r, double low) {
  const double z = r * r;
  const double p = horner(z, 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                          1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  return r + fused(r * z, p, low * fused(z, -0.5, 1.0));
}
TS_INLINE double cos_reduced(double r, double low) {
  const double z = r * r, half = 0.5 * z, w = 1.0 - half;
  const double p = horner(z, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320,
                          -1.0 / 720, 1.0 / 24);
  return w + (((1.0 - w) - half) + fused(z * z, p, -r * low));
}

// x less a multiple of pi / 2, in two parts, and which multiple: the lowest bits of quadrant.
struct ReducedF64 {
  double r, low;
  uint64_t quadrant;
};
TS_INLINE ReducedF64 reduced_f64(double x) {
  const double t = fused(x, 0x1.45f306dc9c883p-1, kRound), n = t - kRound;
  const double first = fused(n, -0x1.921fb54442d18p+0, x); // exact
  const double product = n * 0x1.1a62633145c07p-54, lost = fused(n, 0x1.1a62633145c07p-54, -product);
  const double r = first - product, back = first - r;
  const double low = ((first - (r + back)) + (back - product)) - fused(n, -0x1.f1976b7ed8fbcp-110, lost);
  return {r, low, bits_of(t)};
}

TS_INLINE double sin_or_cos(double x, uint64_t shift) {
  const ReducedF64 a = reduced_f64(x);
  const uint64_t quadrant = a.quadrant + shift;
  const double y = (quadrant & 1) != 0 ? cos_reduced(a.r, a.low) : sin_reduced(a.r, a.low);
  return float_of(bits_of(y) ^ ((quadrant & 2) << 62));
}
TS_INLINE double sin_f64(double x) { return x == 0.0 ? x : sin_or_cos(x, 0); }
TS_INLINE double cos_f64(double x) { return sin_or_cos(x, 1); }
// The quotient's rounding and those of both: within two units in the last place.
TS_INLINE double tan_f64(double x) {
  const ReducedF64 a = reduced_f64(x);
  const double s = sin_reduced(a.r, a.low), c = cos_reduced(a.r, a.low);
  const bool odd = (a.quadrant & 1) != 0;
  return x == 0.0 ? x : (odd ? -c : s) / (odd ? s : c);
}

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_TRIG_F64_H
