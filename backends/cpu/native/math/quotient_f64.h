// What two float64 numbers make by their quotient or by the longer of them: fmod, Python's % and //, atan2 and hypot,
// branch-free for the compiler to vectorise. They take products whole, so that they are for processors with FMA.
#ifndef TESSERACK_CPU_QUOTIENT_F64_H
#define TESSERACK_CPU_QUOTIENT_F64_H

#include "arc_f64.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

#if defined(__FMA__)

struct DivisionF64 {
  double quotient, rest; // towards zero
};

constexpr double kQuotientLimitF64 = 0x1p51; // below it a quotient's whole part is off by one at most

TS_INLINE bool divides_f64(double a, double b) {
  return (__builtin_fabs(a / b) < kQuotientLimitF64) & (__builtin_fabs(b) < __builtin_inf());
}

// The quotient may round up to the next whole number; what is left then has the other sign. It is exact either way.
TS_INLINE DivisionF64 divide_f64(double a, double b) {
  const double q = __builtin_trunc(a / b), r = fused(-q, b, a);
  const bool over = (r != 0.0) & ((r < 0.0) != (a < 0.0));
  const double back = __builtin_copysign(b, a), one = (a < 0.0) != (b < 0.0) ? -1.0 : 1.0;
  return {over ? q - one : q, over ? r + back : r};
}

TS_INLINE double fmod_f64(double a, double b) { return __builtin_copysign(divide_f64(a, b).rest, a); }

TS_INLINE double mod_f64(double a, double b) {
  const double r = fmod_f64(a, b);
  return (r != 0.0) & ((b < 0.0) != (r < 0.0)) ? r + b : r;
}
TS_INLINE double floordiv_f64(double a, double b) {
  const DivisionF64 d = divide_f64(a, b);
  const double q = (d.rest != 0.0) & ((b < 0.0) != (d.rest < 0.0)) ? d.quotient - 1.0 : d.quotient;
  return q == 0.0 ? __builtin_copysign(0.0, a / b) : q;
}

// Both by a power of two, so that neither their squares nor sums leave the range.
struct Scaled {
  double small, large, back; // what to divide by afterwards
};
TS_INLINE Scaled scaled(double a, double b, double above, double down) {
  const double x = __builtin_fabs(a), y = __builtin_fabs(b), large = x > y ? x : y, small = x > y ? y : x;
  const bool far = large > above, near = large < 1.0 / above;
  const double by = far ? down : near ? 1.0 / down : 1.0;
  return {small * by, large * by, far ? 1.0 / down : near ? down : 1.0};
}

// The root's own rounding and that of what it was taken from come back, after Borges, "An improved algorithm for
// hypot(a, b)" (2019).
TS_INLINE double hypot_f64(double a, double b) {
  const Scaled s = scaled(a, b, 0x1p500, 0x1p-600);
  const double square = s.large * s.large, sum = fused(s.small, s.small, square), h = __builtin_sqrt(sum);
  const double hh = h * h;
  const double off = fused(-s.small, s.small, hh - square) + fused(h, h, -hh) - fused(s.large, s.large, -square);
  const double better = h - off / (h + h);
  const bool infinite = (__builtin_fabs(a) == __builtin_inf()) | (__builtin_fabs(b) == __builtin_inf());
  const double r = (s.large == 0.0 ? 0.0 : better) * s.back;
  return infinite ? __builtin_inf() : a != a ? a : b != b ? b : r;
}

// As atan has it, of the smaller by the larger: less the angle whose tangent is 1/2 or 1.
TS_INLINE double atan2_f64(double y, double x) {
  const double a = __builtin_fabs(y), b = __builtin_fabs(x);
  const bool steep = a > b, equal = a == b; // both may be infinite, or zero
  Scaled s = scaled(a, b, 0x1p1000, 0x1p-60);
  const bool infinite = s.large == __builtin_inf();
  s.small = equal ? (a == 0.0 ? 0.0 : 1.0) : infinite ? 0.0 : s.small;
  s.large = equal | infinite ? 1.0 : s.large;
  const bool none = s.small < 0x1.cp-2 * s.large, one = s.small >= 0x1.6p-1 * s.large;
  const double c = none ? 0.0 : one ? 1.0 : 0.5;
  const double t = fused(-c, s.large, s.small) / fused(c, s.small, s.large);
  const double base = none ? 0.0 : one ? 0x1.921fb54442d18p-1 : 0x1.dac670561bb4fp-2;
  const double rest = none ? 0.0 : one ? 0x1.1a62633145c07p-55 : 0x1.a2b7f222f65e2p-56;
  const double tail = fused(t * (t * t), atan_tail(t * t), rest);
  // Of the angle base + t + tail: itself, or what it leaves of a quarter turn; and of that, what it leaves of half a
  // one.
  const double sign = steep ? -1.0 : 1.0;
  double high = (steep ? kQuarterTurn : 0.0) + sign * base, low = (steep ? kQuarterTurnLow : 0.0) + sign * tail;
  const bool behind = (bits_of(x) >> 63) != 0;
  const double over = behind ? -1.0 : 1.0;
  high = (behind ? 2.0 * kQuarterTurn : 0.0) + over * high, low = (behind ? 2.0 * kQuarterTurnLow : 0.0) + over * low;
  const double angle = high + (over * sign * t + low);
  return x != x ? x : y != y ? y : __builtin_copysign(angle, y);
}

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_QUOTIENT_F64_H
