// Branch-free float64 functions written so that the compiler vectorises a loop over them, and the shorter ones that
// float32 results are rounded from. Polynomials are minimax fits made for these reductions.
#ifndef TESSERACK_CPU_MATH_F64_H
#define TESSERACK_CPU_MATH_F64_H

#include <tesserack/backend.hpp>

#include <bit>
#include <cstdint>

#define TS_INLINE inline __attribute__((always_inline))

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

TS_INLINE double fused(double a, double b, double c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kRound = 0x1.8p52; // adding it rounds to an integer, left in the low mantissa bits

TS_INLINE uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }
TS_INLINE double float_of(uint64_t x) { return std::bit_cast<double>(x); }

// exp(r) - 1 for |r| <= ln2 / 2, full and short (2^-34) precision
TS_INLINE double expm1_reduced(double r) {
  double q = 0x1.1f95478c9ef76p-29;
  q = fused(q, r, 0x1.af5ebcba2f3dcp-26);
  q = fused(q, r, 0x1.27e4c5b378841p-22);
  q = fused(q, r, 0x1.71ddf8550e1b7p-19);
  q = fused(q, r, 0x1.a01a01b0ae039p-16);
  q = fused(q, r, 0x1.a01a01afe4846p-13);
  q = fused(q, r, 0x1.6c16c16c1446ep-10);
  q = fused(q, r, 0x1.111111110f6b0p-7);
  q = fused(q, r, 0x1.555555555555ap-5);
  q = fused(q, r, 0x1.5555555555559p-3);
  q = fused(q, r, 0.5);
  return fused(q, r * r, r);
}
TS_INLINE double expm1_reduced_short(double r) {
  double q = 0x1.a1b7c961d74fbp-13;
  q = fused(q, r, 0x1.6d967fc8d5514p-10);
  q = fused(q, r, 0x1.11107d22c0b0cp-7);
  q = fused(q, r, 0x1.5554805fbd0b2p-5);
  q = fused(q, r, 0x1.55555597d5023p-3);
  q = fused(q, r, 0x1.00000042e337ap-1);
  return fused(q, r * r, r);
}

TS_INLINE double exp_f64(double x) {
  x = x < -746.0 ? -746.0 : x;
  x = x > 710.0 ? 710.0 : x;
  const double t = fused(x, kLog2E, kRound);
  const double n = t - kRound;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  // Halved as an unsigned number: AVX2 has no 64-bit arithmetic shift.
  const uint64_t i = bits_of(t) - bits_of(kRound) + 4096;
  const uint64_t half = i >> 1;
  const double first = float_of((half + 1023 - 2048) << 52);
  const double second = float_of((i - half + 1023 - 2048) << 52);
  return (expm1_reduced(r) + 1.0) * first * second;
}

// The same where the result is a normal number and so is every power of two on the way.
constexpr double kExpNear = 708.0;
TS_INLINE double exp_near_f64(double x) {
  const double t = fused(x, kLog2E, kRound), n = t - kRound;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  return (expm1_reduced(r) + 1.0) * float_of((bits_of(t) + 1023) << 52);
}

// exp(x) to 2^-34, for float32 results; saturates outside [-700, 700].
TS_INLINE double exp_short(double x) {
  x = x < -700.0 ? -700.0 : x;
  x = x > 700.0 ? 700.0 : x;
  const double t = fused(x, kLog2E, kRound);
  const double n = t - kRound;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  const double scale = float_of((bits_of(t) - bits_of(kRound) + 1023) << 52);
  return fused(scale, expm1_reduced_short(r), scale);
}
TS_INLINE double expm1_short(double x) {
  x = x < -100.0 ? -100.0 : x;
  x = x > 700.0 ? 700.0 : x;
  const double t = fused(x, kLog2E, kRound);
  const double n = t - kRound;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  const double scale = float_of((bits_of(t) - bits_of(kRound) + 1023) << 52);
  return fused(scale, expm1_reduced_short(r), scale - 1.0);
}

// exp(x) - 1 for -60 <= x <= 0
TS_INLINE double expm1_negative(double x) {
  const double t = fused(x, kLog2E, kRound);
  const double n = t - kRound;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  const double scale = float_of((bits_of(t) - bits_of(kRound) + 1023) << 52);
  return fused(scale, expm1_reduced(r), scale - 1.0);
}

// exp(x) - 1. Doubled last, as 2^1023 is the largest power of two; of a zero, x.
TS_INLINE double expm1_f64(double x) {
  double low = x < -40.0 ? -40.0 : x;
  low = low > 710.0 ? 710.0 : low;
  const double t = fused(low, kLog2E, kRound), n = t - kRound;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, low));
  const double half = float_of((bits_of(t) - bits_of(kRound) + 1022) << 52);
  const double y = 2.0 * fused(half, expm1_reduced(r), half - 0.5);
  return x == 0.0 ? x : y;
}

// Its argument's whole part is the exponent.
TS_INLINE double exp2_f64(double x) {
  x = x < -1080.0 ? -1080.0 : x;
  x = x > 1025.0 ? 1025.0 : x;
  const double t = x + kRound, n = t - kRound;
  const uint64_t i = bits_of(t) - bits_of(kRound) + 4096, half = i >> 1;
  const double first = float_of((half + 1023 - 2048) << 52), second = float_of((i - half + 1023 - 2048) << 52);
  return (expm1_reduced((x - n) * 0x1.62e42fefa39efp-1) + 1.0) * first * second;
}

TS_INLINE double tanh_f64(double x) {
  double a = __builtin_fabs(x);
  a = a > 20.0 ? 20.0 : a;
  const double e = expm1_negative(-2.0 * a);
  return __builtin_copysign(-e / (e + 2.0), x);
}

TS_INLINE double sigmoid_f64(double x) {
  const double z = exp_f64(-__builtin_fabs(x));
  const double numerator = x >= 0.0 ? 1.0 : z;
  return numerator / (1.0 + z);
}

struct Split {
  double exponent, f; // x = 2^exponent * (1 + f), 1 + f from sqrt(1/2) to sqrt(2)
};
// For normal positive x.
TS_INLINE Split split_f64(double x) {
  const uint64_t t = bits_of(x) - 0x3fe6a09e667f3bcdull + (uint64_t{1023} << 52);
  const uint64_t mantissa = (t & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull;
  // The biased exponent as a double without a 64-bit conversion, which AVX2 lacks.
  const double exponent = float_of((t >> 52) | 0x4330000000000000ull) - (0x1p52 + 1023.0);
  return {exponent, float_of(mantissa) - 1.0};
}

TS_INLINE double log_limits(double x, double y) {
  y = x < __builtin_inf() ? y : x; // +inf, NaN
  y = x == 0.0 ? -__builtin_inf() : y;
  return x < 0.0 ? __builtin_nan("") : y;
}

// What log(1 + f) is, of s = f / (2 + f) and z = s * s: f - f^2 / 2 + s * (f^2 / 2 + z * this).
TS_INLINE double log_tail_f64(double z) {
  double p = 0x1.0f62d78097da8p-3;
  p = fused(p, z, 0x1.0f5cd0265343cp-3);
  p = fused(p, z, 0x1.3b20ab347844cp-3);
  p = fused(p, z, 0x1.745cde3801528p-3);
  p = fused(p, z, 0x1.c71c7258f4bf6p-3);
  p = fused(p, z, 0x1.249249242b4a6p-2);
  p = fused(p, z, 0x1.9999999999dfep-2);
  return fused(p, z, 0x1.5555555555555p-1);
}

TS_INLINE double log_f64(double x) {
  const bool tiny = x < 0x1p-1022;
  const Split a = split_f64(tiny ? x * 0x1p54 : x);
  const double e = a.exponent - (tiny ? 54.0 : 0.0), f = a.f;
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double low = fused(e, kLn2Low, s * (half + z * log_tail_f64(z)));
  return log_limits(x, fused(e, kLn2High, f - (half - low)));
}

// The same of normal positive x.
TS_INLINE double log_normal_f64(double x) {
  const Split a = split_f64(x);
  const double f = a.f, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double low = fused(a.exponent, kLn2Low, s * (half + z * log_tail_f64(z)));
  return fused(a.exponent, kLn2High, f - (half - low));
}

// log(1 + f) in two parts, high of half the bits so that its product with as few is exact.
struct LogParts {
  double exponent, high, low;
};
TS_INLINE LogParts log_parts_f64(double x) {
  const bool tiny = x < 0x1p-1022;
  const Split a = split_f64(tiny ? x * 0x1p54 : x);
  const double f = a.f, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double high = float_of(bits_of(f - half) & 0xffffffff00000000u);
  return {a.exponent - (tiny ? 54.0 : 0.0), high, ((f - high) - half) + s * fused(z, log_tail_f64(z), half)};
}

// The exponent and what it leaves, by the base's logarithm in two parts: whole powers of 2 are exact, after fdlibm
// (Sun 1993).
TS_INLINE double log2_f64(double x) {
  const LogParts a = log_parts_f64(x);
  const double product = a.high * 0x1.71547652p+0;
  const double low = fused(a.low + a.high, 0x1.705fc2eefa2p-33, a.low * 0x1.71547652p+0);
  const double sum = a.exponent + product;
  return log_limits(x, sum + (low + ((a.exponent - sum) + product)));
}
TS_INLINE double log10_f64(double x) {
  const LogParts a = log_parts_f64(x);
  const double product = a.high * 0x1.bcb7b152p-2, whole = a.exponent * 0x1.34413509f78p-2;
  const double rest = fused(a.low + a.high, 0x1.b9438ca9aadd5p-36, a.low * 0x1.bcb7b152p-2);
  const double low = fused(a.exponent, 0x1.fef311f12b358p-46, rest);
  const double sum = whole + product;
  return log_limits(x, sum + (low + ((whole - sum) + product)));
}

// What rounding 1 + x lost comes back as its share of the logarithm's slope.
TS_INLINE double log1p_f64(double x) {
  const double u = 1.0 + x, lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x), y = log_f64(u);
  const double corrected = (u > 0.0) & (u < __builtin_inf()) ? y + lost / u : y;
  return __builtin_fabs(x) < 0x1p-54 ? x : corrected;
}

// log(x) to 2^-36 relative, for float32 arguments (whose subnormals are normal here)
TS_INLINE double log_short(double x) {
  const Split a = split_f64(x);
  const double f = a.f, s = f / (2.0 + f), z = s * s;
  double p = 0x1.e2f6e15f04923p-3;
  p = fused(p, z, 0x1.2438d6039deb6p-2);
  p = fused(p, z, 0x1.999a7a8721416p-2);
  p = fused(p, z, 0x1.555554fda6e4ep-1);
  const double y = fused(a.exponent, kLn2High, fused(a.exponent, kLn2Low, fused(s * z, p, s + s)));
  return log_limits(x, y);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MATH_F64_H
