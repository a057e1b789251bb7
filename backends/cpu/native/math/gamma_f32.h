// log |gamma| and its derivative for float32, computed in float64 without branches so that loops over them are vectors.
#ifndef TESSERACK_CPU_GAMMA_F32_H
#define TESSERACK_CPU_GAMMA_F32_H

#include "math_f32.h"
#include "math_f64.h"
#include "special.h"

#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// (lgamma(2 + u)) / u for |u| <= 1/2: 1 - gamma, then (-1)^k (zeta(k) - 1) / k (DLMF 5.7.3), to 2^-36.
TS_INLINE double log_gamma_about_two(double u) {
  double q = -0x1.e2600d93cfd2fp-22; // k = 17
  q = fused(q, u, 0x1.0064cdeb22f0fp-20);
  q = fused(q, u, -0x1.11b2eb7679541p-19);
  q = fused(q, u, 0x1.2597a39f34aacp-18);
  q = fused(q, u, -0x1.3cbc963ce2243p-17);
  q = fused(q, u, 0x1.580dcee66eb02p-16);
  q = fused(q, u, -0x1.78de5bd7c81efp-15);
  q = fused(q, u, 0x1.a127b0f17d65ap-14);
  q = fused(q, u, -0x1.d3fd4c76d2fc8p-13);
  q = fused(q, u, 0x1.0b36af86396e9p-11);
  q = fused(q, u, -0x1.38ac5c2bf8e08p-10);
  q = fused(q, u, 0x1.7add6eadb6c30p-9);
  q = fused(q, u, -0x1.e404fc218f5f2p-8);
  q = fused(q, u, 0x1.51322ac7d8483p-6);
  q = fused(q, u, -0x1.13e001a557607p-4);
  q = fused(q, u, 0x1.4a34cc4a60fa6p-2);
  return fused(q, u, 0x1.b0ee6072093cep-2);
}

// For x >= 0. Below 9/2 a product of two factors at most leads to 2 + u; above, Stirling's series (DLMF 5.11.1). Each
// takes one logarithm.
TS_INLINE double log_gamma_positive(double x) {
  const bool small = x < 4.5;
  const bool up2 = x < 0.5, up1 = x < 1.5, down1 = x >= 2.5, down2 = x >= 3.5;
  const double u = x - (up2 ? 0.0 : up1 ? 1.0 : down2 ? 4.0 : down1 ? 3.0 : 2.0);
  double factors = up2 ? x * (x + 1.0) : up1 ? x : 1.0;
  factors = down1 ? x - 1.0 : factors;
  factors = down2 ? (x - 1.0) * (x - 2.0) : factors;
  const double log = log_f64(small ? factors : x);
  const double near = u * log_gamma_about_two(u) + (up1 ? -log : log);
  const double y = 1.0 / x, z = y * y;
  double series = -691.0 / 360360;
  series = fused(series, z, 1.0 / 1188);
  series = fused(series, z, -1.0 / 1680);
  series = fused(series, z, 1.0 / 1260);
  series = fused(series, z, -1.0 / 360);
  series = fused(series, z, 1.0 / 12);
  const double far = fused(x - 0.5, log, 0x1.d67f1c864beb5p-1 - x) + series * y; // log(2 pi) / 2
  const double result = small ? near : far;
  return x == __builtin_inf() ? x : result;
}

// log(pi / |sin(pi x)|) for x <= 0, which lgamma(x) is together with -lgamma(1 - x) (DLMF 5.5.3).
TS_INLINE double log_gamma_mirror(double x) {
  const double r = __builtin_fabs(x - __builtin_rint(x)); // up to 1/2, and exact
  const bool near = r <= 0.25;
  const SinCos of = sin_cos(M_PI * (near ? r : 0.5 - r));
  return log_f64(M_PI / (near ? of.sin : of.cos));
}

// lgamma as a vector on both sides of zero. Only next to its zeros on the left, where both parts cancel, and where it
// is no number does it go through the C library. A block at a time since out may be a.
inline int log_gamma_loop(float* out, const float* a, const float*, const float*, int64_t n) {
  constexpr int64_t kBlock = 64;
  constexpr double kCancelled = 0.0625;
  float kept[kBlock];
  double right[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    int others = 0;
    for (int64_t i = 0; i < count; ++i) others |= (kept[i] = a[at + i]) <= 0.0F;
    for (int64_t i = 0; i < count; ++i) {
      const double x = kept[i];
      right[i] = log_gamma_positive(x <= 0.0 ? 1.0 - x : x);
    }
    if (others == 0) {
      for (int64_t i = 0; i < count; ++i) out[at + i] = static_cast<float>(right[i]);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      const double x = kept[i];
      right[i] = x <= 0.0 ? log_gamma_mirror(x) - right[i] : right[i];
    }
    for (int64_t i = 0; i < count; ++i) out[at + i] = static_cast<float>(right[i]);
    for (int64_t i = 0; i < count; ++i)
      if (kept[i] <= 0.0F && !(std::fabs(right[i]) > kCancelled))
        out[at + i] = static_cast<float>(log_gamma(static_cast<double>(kept[i])));
  }
  return 0;
}

// For x > 0, as digamma(double), with the ten steps of the recurrence as one quotient.
TS_INLINE double digamma_positive(double x) {
  const bool small = x < 10.0;
  double product = x, slope = 1.0; // of x (x + 1) ... (x + k), and its derivative
#pragma GCC unroll 9
  for (int k = 1; k < 10; ++k) {
    const double factor = x + k;
    slope = fused(slope, factor, product);
    product *= factor;
  }
  const double y = small ? x + 10.0 : x, steps = (small ? slope : 0.0) / (small ? product : 1.0);
  const double inverse = 1.0 / y, z = inverse * inverse;
  double series = -1.0 / 12;
  series = fused(series, z, 691.0 / 32760);
  series = fused(series, z, -1.0 / 132);
  series = fused(series, z, 1.0 / 240);
  series = fused(series, z, -1.0 / 252);
  series = fused(series, z, 1.0 / 120);
  series = fused(series, z, -1.0 / 12);
  return log_f64(y) - 0.5 * inverse + z * series - steps;
}

// `Fast` where the argument is above zero (or NaN), `Slow` elsewhere, a block at a time since out may be a.
template <auto Fast, auto Slow> int positive_loop(float* out, const float* a, const float*, const float*, int64_t n) {
  constexpr int64_t kBlock = 64;
  float kept[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    int others = 0;
    for (int64_t i = 0; i < count; ++i) others |= (kept[i] = a[at + i]) <= 0.0F;
    for (int64_t i = 0; i < count; ++i) out[at + i] = static_cast<float>(Fast(static_cast<double>(kept[i])));
    for (int64_t i = 0; others != 0 && i < count; ++i)
      if (kept[i] <= 0.0F) out[at + i] = static_cast<float>(Slow(static_cast<double>(kept[i])));
  }
  return 0;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_GAMMA_F32_H
