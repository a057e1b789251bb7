// Sine, cosine, tangent, arc sine and arc cosine of float32 in float32 alone, branch-free for the compiler to
// vectorise: twice as many at once as through float64. They stand on fused operations. Minimax fits; largest errors,
// over some millions of float32: sine 0.85 ulp, cosine 0.87, tangent 1.2, arcs 1.2.
#ifndef TESSERACK_CPU_TRIG_SHORT_H
#define TESSERACK_CPU_TRIG_SHORT_H

#include "horner.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

#if defined(__FMA__)

// A right angle in three parts. Of n below 2^12 times the first, what is left of x is exact. The second has so few bits
// that its multiples are taken off exactly too where little is left, and elsewhere what is lost is exact.
constexpr float kRightHigh = 0x1.921fb6p+0f, kRightMiddle = -0x1.778p-25f, kRightLow = 0x1.68c234p-39f;
constexpr float kShortTrigLimit = 4096.0f;

// x less n right angles, in two parts; n's last bits are the quadrant's. |x| below the limit.
struct ShortReduced {
  float r, low;
  uint32_t quadrant;
};
TS_INLINE ShortReduced short_reduced(float x) {
  const float t = fused(x, 0x1.45f306p-1f, kRoundF), n = t - kRoundF;
  const float first = fused(n, -kRightHigh, x), r = fused(n, -kRightMiddle, first);
  const float lost = fused(n, -kRightMiddle, first - r);
  return {r, fused(n, -kRightLow, lost), bits_of(t)};
}

TS_INLINE float short_sin_or_cos(float x, uint32_t turn) {
  const ShortReduced a = short_reduced(x);
  const uint32_t quadrant = a.quadrant + turn;
  const float z = a.r * a.r, half = 0.5f * z, near = 1.0f - half; // 1 - z / 2, and what it lost
  const float p = horner(z, 0x1.6c5dc4p-19f, -0x1.a00d84p-13f, 0x1.111106p-7f, -0x1.555556p-3f);
  const float sine = a.r + fused(a.r * z, p, a.low);
  const float q = horner(z, 0x1.99771ap-16f, -0x1.6c0aa4p-10f, 0x1.555548p-5f);
  const float lost = fused(-a.r, a.low, (1.0f - near) - half);
  const float cosine = near + fused(z * z, q, lost);
  const float y = (quadrant & 1) != 0 ? cosine : sine;
  return float_of(bits_of(y) ^ ((quadrant & 2) << 30));
}
TS_INLINE float short_sin(float x) { return x == 0.0f ? x : short_sin_or_cos(x, 0); } // 0 keeps its sign
TS_INLINE float short_cos(float x) { return short_sin_or_cos(x, 1); }

// The tangent of the rest in two parts; in odd quadrants its reciprocal, corrected by what the division left.
TS_INLINE float short_tan(float x) {
  const ShortReduced a = short_reduced(x);
  const float z = a.r * a.r;
  const float p = horner(z, 0x1.2013a0p-8f, 0x1.a4bedep-15f, 0x1.64160ap-7f, 0x1.5c7daap-6f, 0x1.bae0bcp-5f,
                         0x1.110d72p-3f, 0x1.555560p-2f);
  const float tail = fused(a.r * z, p, fused(a.low, z, a.low));
  const float high = a.r + tail, low = (a.r - high) + tail;
  const float q = -1.0f / high, rest = fused(high, q, 1.0f);
  const float y = (a.quadrant & 1) != 0 ? fused(q, fused(low, q, rest), q) : high;
  return x == 0.0f ? x : y;
}

constexpr float kRightLowF = -0x1.777a5cp-25f, kHalfTurnF = 0x1.921fb6p+1f; // what kRightHigh lacks; two right angles

// Of x itself up to 1/2, beyond by the root of (1 - |x|) / 2: the lesser of both squares. tail is asin(s) - s of the
// root s. A bool among them keeps the compiler from making vectors.
struct ShortArc {
  float a, half, square, s, tail;
  bool upper() const { return half < square; }
};
TS_INLINE ShortArc short_arc(float x) {
  const float a = __builtin_fabsf(x), half = 0.5f * (1.0f - a), square = a * a;
  const float z = half < square ? half : square, s = __builtin_sqrtf(z);
  const float p =
      horner(z, 0x1.3361a6p-5f, 0x1.d8fd34p-7f, 0x1.0493f0p-5f, 0x1.6cae8ap-5f, 0x1.33387ep-4f, 0x1.55554cp-3f);
  return {a, half, square, s, s * z * p};
}
TS_INLINE float short_asin(float x) {
  const ShortArc arc = short_arc(x);
  const float twice = arc.s + arc.s, high = kRightHigh - twice, lost = (kRightHigh - high) - twice;
  const float outer = high + (lost + (kRightLowF - 2.0f * arc.tail)), inner = arc.a + arc.tail;
  return __builtin_copysignf(arc.upper() ? outer : inner, x);
}
TS_INLINE float short_acos(float x) {
  const ShortArc arc = short_arc(x);
  const float twice = arc.s + arc.s, tail = arc.tail + arc.tail;
  const float inner = (kRightHigh - x) + (kRightLowF - __builtin_copysignf(arc.tail, x));
  const float below = (kHalfTurnF - twice) + (2.0f * kRightLowF - tail), above = twice + tail;
  const float outer = x < 0.0f ? below : above;
  return arc.upper() ? outer : inner;
}

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_TRIG_SHORT_H
