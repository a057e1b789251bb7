// exp of a run and its sum, for softmax and attention.
#ifndef TESSERACK_CPU_EXP_SUM_H
#define TESSERACK_CPU_EXP_SUM_H

#include "exp_avx2.h"
#include "exp_avx512.h"
#include "nn/rows.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

TS_INLINE float exp_of(float x) { return exp_f32(x); }
TS_INLINE double exp_of(double x) { return exp_f64(x); }

// y = exp(x - shift); returns the sum. Summed a cache-resident part at a time.
template <typename T> double exp_and_sum(const T* x, T shift, int64_t n, T* y, [[maybe_unused]] const Soon<T>& soon) {
  double total = 0.0;
  constexpr int64_t kPart = 1024;
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t part = n - first < kPart ? n - first : kPart;
    const T* from = x + first;
    T* to = y + first;
#if defined(TESSERACK_CPU_EXP_AVX512) || defined(TESSERACK_CPU_EXP_AVX2)
    if constexpr (std::is_same_v<T, float>) {
      total += static_cast<double>(exp_and_sum_part(from, shift, part, to, soon.from(first)));
      continue;
    }
#endif
#pragma GCC ivdep
    for (int64_t i = 0; i < part; ++i) to[i] = exp_of(from[i] - shift);
    total += static_cast<double>(fold_run<SumFold<T>>(to, part));
  }
  return total;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_EXP_SUM_H
