// Functions that are cheap for most arguments: those of the others are put aside, computed together and put in place.
#ifndef TESSERACK_CPU_SPLIT_LOOP_H
#define TESSERACK_CPU_SPLIT_LOOP_H

#include <cmath>
#include <cstdint>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Near for arguments below `limit` in magnitude, Far for the others, NaN among them. `out` may be `in`.
template <auto Near, auto Far, typename T> inline void split_loop(T* out, const T* in, int64_t n, T limit) {
  constexpr int64_t kPart = 512, kLane = 8;
  alignas(64) T far[kPart + kLane];
  int64_t at[kPart + kLane];
  for (int64_t start = 0; start < n; start += kPart) {
    const int64_t end = n - start < kPart ? n - start : kPart;
    const T* const from = in + start;
    T* const to = out + start;
    int64_t count = 0, i = 0;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 8) {
      const __m512d bound = _mm512_set1_pd(limit);
      __m512i here = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
      for (; i + kLane <= end; i += kLane, here = _mm512_add_epi64(here, _mm512_set1_epi64(kLane))) {
        const __m512d x = _mm512_loadu_pd(from + i);
        const __mmask8 beyond = _mm512_cmp_pd_mask(_mm512_abs_pd(x), bound, _CMP_NLT_UQ);
        _mm512_storeu_pd(far + count, _mm512_maskz_compress_pd(beyond, x));
        _mm512_storeu_si512(at + count, _mm512_maskz_compress_epi64(beyond, here));
        count += __builtin_popcount(beyond);
      }
    }
#endif
    for (; i < end; ++i) {
      far[count] = from[i];
      at[count] = i;
      count += !(std::fabs(from[i]) < limit);
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < end; ++j) to[j] = Near(from[j]);
    if (count == 0) continue;
#pragma GCC ivdep
    for (int64_t j = 0; j < count; ++j) far[j] = Far(far[j]);
    for (int64_t j = 0; j < count; ++j) to[at[j]] = far[j];
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_SPLIT_LOOP_H
