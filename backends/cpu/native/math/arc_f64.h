// asin, acos and atan in float64, branch-free for the compiler to vectorise, divided as in fdlibm (Sun 1993): asin and
// acos of x itself up to 1/2, beyond by the root of (1 - |x|) / 2, whose rounding comes back; atan by the angle to the
// nearest of five. The polynomials are of Chebyshev's places; to 2^-57 and 2^-60.
#ifndef TESSERACK_CPU_ARC_F64_H
#define TESSERACK_CPU_ARC_F64_H

#include "horner.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr double kQuarterTurn = 0x1.921fb54442d18p+0, kQuarterTurnLow = 0x1.1a62633145c07p-54;

struct Arc {
  bool small;        // |x| < 1/2
  double ratio;      // (asin(s) - s) / s of s, x or the root
  double root, lost; // root + lost is that of (1 - |x|) / 2
};

TS_INLINE Arc arc_of(double x) {
  const double a = __builtin_fabs(x);
  const bool small = a < 0.5;
  const double z = small ? x * x : 0.5 * (1.0 - a);
  const double p = horner(z, 0x1.d72b2bc8155f8p-6, -0x1.e6aaa8a0a04ccp-7, 0x1.1d189408314eep-6, 0x1.65a9c4dfcf8b2p-8,
                          0x1.52420b04b37bep-7, 0x1.782651caa6547p-7, 0x1.c9cf07674736ap-7, 0x1.1c4d35cf95421p-6,
                          0x1.6e8bb1c8209a2p-6, 0x1.f1c71c1db0623p-6, 0x1.6db6db6e31f13p-5, 0x1.3333333332ecap-4,
                          0x1.5555555555556p-3);
  const double s = __builtin_sqrt(z);
#if defined(__FMA__)
  // A few digits do, as it is less than a unit in the root's last place.
  const double root = s, lost = static_cast<double>(static_cast<float>(fused(-s, s, z)) / static_cast<float>(s + s));
#else
  const double root = float_of(bits_of(s) & 0xffffffff00000000u), lost = (z - root * root) / (s + root);
#endif
  return {small, z * p, root, s == 0.0 ? 0.0 : lost};
}

TS_INLINE double asin_f64(double x) {
  const Arc arc = arc_of(x);
  const double quarter = 0.5 * kQuarterTurn, twice = 2.0 * arc.root;
  const double high = quarter - twice, rest = (quarter - high) - twice; // what is lost of the difference
  const double low = (twice + 2.0 * arc.lost) * arc.ratio - (kQuarterTurnLow - 2.0 * arc.lost) - rest;
  const double large = quarter + (high - low);
  return arc.small ? x + x * arc.ratio : __builtin_copysign(large, x);
}

TS_INLINE double acos_f64(double x) {
  const Arc arc = arc_of(x);
  const double s = arc.root + arc.lost;
  const double above = 2.0 * (arc.root + (arc.ratio * s + arc.lost));
  const double below = 2.0 * (kQuarterTurn - (arc.root + (arc.ratio * s + arc.lost - kQuarterTurnLow)));
  const double middle = kQuarterTurn - (x - (kQuarterTurnLow - x * arc.ratio));
  const double large = x < 0.0 ? below : above;
  return arc.small ? middle : large;
}

// (atan(t) / t - 1) / z of z = t * t, up to 7/16.
TS_INLINE double atan_tail(double z) {
  return horner(z, 0x1.e4167464d3de8p-7, -0x1.0f62bba6a2558p-5, 0x1.7001816fd063fp-5, -0x1.ab59b417b2d3fp-5,
                0x1.e170800a46210p-5, -0x1.110c9ce7b0572p-4, 0x1.3b1375ce5bdc6p-4, -0x1.745d154c84f7ap-4,
                0x1.c71c71bd2b8bcp-4, -0x1.2492492485503p-3, 0x1.99999999998c5p-3, -0x1.5555555555555p-2);
}

// Less the angle whose tangent is 1/2, 1, 3/2 or infinite, what is left has a tangent of at most 7/16.
TS_INLINE double atan_f64(double x) {
  const double a = __builtin_fabs(x);
  const bool one = a >= 0x1.6p-1, more = a >= 0x1.3p+0, far = a >= 0x1.38p+1; // 11/16, 19/16, 39/16
  const bool none = a < 0x1.cp-2;                                             // 7/16
  const double middle = more ? 1.5 : one ? 1.0 : 0.5, c = none ? 0.0 : middle;
  const double base = more ? 0x1.f730bd281f69bp-1 : one ? 0x1.921fb54442d18p-1 : 0x1.dac670561bb4fp-2;
  const double rest = more ? 0x1.007887af0cbbdp-56 : one ? 0x1.1a62633145c07p-55 : 0x1.a2b7f222f65e2p-56;
  const double t = (far ? -1.0 : a - c) / (far ? a : fused(a, c, 1.0)), z = t * t;
  const double whole = far ? kQuarterTurn : none ? 0.0 : base, low = far ? kQuarterTurnLow : none ? 0.0 : rest;
  return __builtin_copysign(whole + (t + fused(t * z, atan_tail(z), low)), x);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ARC_F64_H
