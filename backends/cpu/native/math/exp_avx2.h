// exp, exp2 and the logistic function for AVX2, where no lane is far from zero: no clamping, and one scaling by a power
// of two. Registers with a far lane go through exp_f32 and sigmoid_f32.
#ifndef TESSERACK_CPU_EXP_AVX2_H
#define TESSERACK_CPU_EXP_AVX2_H

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
#define TESSERACK_CPU_EXP_AVX2 1

#include "copy/stream.h"
#include "math_f32.h"
#include "reduce/fold.h"

#include <cstring>
#include <immintrin.h>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr float kNearF = 87.0f; // up to here exp(x) and exp(-x) are normal numbers

// Whether a lane of either has |x| > kNearF or is NaN.
TS_INLINE bool any_far(__m256 x, __m256 y) {
  const __m256 sign = _mm256_set1_ps(-0.0f), near = _mm256_set1_ps(kNearF);
  const __m256 x_far = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), near, _CMP_NLE_UQ);
  const __m256 y_far = _mm256_cmp_ps(_mm256_andnot_ps(sign, y), near, _CMP_NLE_UQ);
  return _mm256_movemask_ps(_mm256_or_ps(x_far, y_far)) != 0;
}

// exp(x) = scale + scale * rest for |x| <= kNearF, as exp_parts computes it.
struct ExpNear {
  __m256 scale, rest;
};
TS_INLINE ExpNear exp_near_parts(__m256 x) {
  const __m256 round = _mm256_set1_ps(kRoundF);
  const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(kLog2EF), round), n = _mm256_sub_ps(t, round);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2HighF), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2LowF), r);
  __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(0x1.6d9970p-10f), r, _mm256_set1_ps(0x1.1227f8p-7f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.555486p-5f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.5554b0p-3f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.5f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  const __m256i scale = _mm256_add_epi32(exponent, _mm256_castps_si256(_mm256_set1_ps(1.0f)));
  return {_mm256_castsi256_ps(scale), _mm256_fmadd_ps(q, _mm256_mul_ps(r, r), r)};
}

TS_INLINE __m256 exp_near(__m256 x) {
  const ExpNear e = exp_near_parts(x);
  return _mm256_fmadd_ps(e.scale, e.rest, e.scale);
}

// 2^n times 2^r, |r| <= 1 / 2: exact where x is whole.
TS_INLINE __m256 exp2_near(__m256 x) {
  const __m256 round = _mm256_set1_ps(kRoundF), t = _mm256_add_ps(x, round);
  const __m256 r = _mm256_sub_ps(x, _mm256_sub_ps(t, round));
  __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(0x1.446a18p-13f), r, _mm256_set1_ps(0x1.5f08b2p-10f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.3b29e6p-7f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.c6af6cp-5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.ebfbe0p-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.62e430p-1f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  const __m256i scale = _mm256_add_epi32(exponent, _mm256_castps_si256(_mm256_set1_ps(1.0f)));
  return _mm256_mul_ps(_mm256_castsi256_ps(scale), _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f)));
}

// At most 2 ulp, found by running over every float32. 1 joins the smaller summand, where its rounding counts less.
TS_INLINE __m256 sigmoid_near(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const ExpNear e = exp_near_parts(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
  return _mm256_div_ps(one, _mm256_add_ps(e.scale, _mm256_fmadd_ps(e.scale, e.rest, one)));
}

TS_INLINE __m256 silu_near(__m256 x) { return _mm256_mul_ps(x, sigmoid_near(x)); }

// 16 results: Near where |a| <= kNearF, else Far. A number's result does not depend on its neighbours.
template <__m256 (*Near)(__m256), float (*Far)(float)>
__attribute__((noinline)) void near_or_far(float* out, const float* a) {
  float x[16], y[16];
  std::memcpy(x, a, sizeof x);
  _mm256_storeu_ps(y, Near(_mm256_loadu_ps(x)));
  _mm256_storeu_ps(y + 8, Near(_mm256_loadu_ps(x + 8)));
#pragma GCC ivdep
  for (int j = 0; j < 16; ++j) out[j] = __builtin_fabsf(x[j]) <= kNearF ? y[j] : Far(x[j]);
}

// out[i] = Near(a[i]), two registers in flight; where any lane of the two is far, by near_or_far.
template <__m256 (*Near)(__m256), float (*Far)(float)>
int loop_avx2(float* out, const float* a, const float*, const float*, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 first = _mm256_loadu_ps(a + i), second = _mm256_loadu_ps(a + i + 8);
    if (any_far(first, second)) [[unlikely]] {
      near_or_far<Near, Far>(out + i, a + i);
      continue;
    }
    _mm256_storeu_ps(out + i, Near(first));
    _mm256_storeu_ps(out + i + 8, Near(second));
  }
  if (i < n) {
    float rest[16] = {};
    const size_t bytes = static_cast<size_t>(n - i) * sizeof(float);
    std::memcpy(rest, a + i, bytes);
    near_or_far<Near, Far>(rest, rest);
    std::memcpy(out + i, rest, bytes);
  }
  return 0;
}

// y = exp(x - shift); returns the sum of n <= kRun values.
inline float exp_and_sum_part(const float* x, float shift, int64_t n, float* y, const Soon<float>& soon) {
  const __m256 centre = _mm256_set1_ps(shift);
  __m256 a = _mm256_setzero_ps(), b = a;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    soon.ask(i, 16);
    __m256 first = _mm256_sub_ps(_mm256_loadu_ps(x + i), centre);
    __m256 second = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8), centre);
    if (any_far(first, second)) [[unlikely]] {
#pragma GCC ivdep
      for (int64_t j = i; j < i + 16; ++j) y[j] = exp_f32(x[j] - shift);
      first = _mm256_loadu_ps(y + i);
      second = _mm256_loadu_ps(y + i + 8);
    } else {
      first = exp_near(first);
      second = exp_near(second);
      _mm256_storeu_ps(y + i, first);
      _mm256_storeu_ps(y + i + 8, second);
    }
    a = _mm256_add_ps(a, first);
    b = _mm256_add_ps(b, second);
  }
  float total = sum_lanes<float>(_mm256_add_ps(a, b));
  for (; i < n; ++i) {
    y[i] = exp_f32(x[i] - shift);
    total += y[i];
  }
  return total;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_EXP_AVX2_H
