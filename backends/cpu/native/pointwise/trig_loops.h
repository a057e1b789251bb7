// Sine, cosine and tangent: the larger the argument, the longer its way. Which one an element takes follows from its
// own magnitude alone, so that its bits do not depend on what lies beside it, nor on where a tensor is divided.
#ifndef TESSERACK_CPU_TRIG_LOOPS_H
#define TESSERACK_CPU_TRIG_LOOPS_H

#include "op_loops.h"
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int64_t kTrigPart = 512; // elements

template <typename T> int64_t count_below(T limit, const T* a, int64_t n) {
  int64_t below = 0;
  for (int64_t i = 0; i < n; ++i) below += std::fabs(a[i]) < limit;
  return below;
}

// Fast below `limit`, the C library's Slow for the others, infinities and NaN among them. `from` is not `out`.
template <typename T, auto Fast, auto Slow> void trig_apart(T* out, const T* from, int64_t n, T limit) {
  unary_loop<T, Fast>(out, from, nullptr, nullptr, n);
  if (count_below(limit, from, n) == n) return;
  for (int64_t i = 0; i < n; ++i)
    if (!(std::fabs(from[i]) < limit)) out[i] = Slow(from[i]);
}

template <typename T, auto Fast, auto Slow> void trig_split(T* out, const T* a, int64_t n, T limit) {
  for (int64_t i = 0; i < n; i += kTrigPart) {
    const int64_t count = std::min(n - i, kTrigPart);
    if (count_below(limit, a + i, count) == count) {
      unary_loop<T, Fast>(out + i, a + i, nullptr, nullptr, count);
      continue;
    }
    alignas(64) T from[kTrigPart]; // `out` may be `a`
    std::copy_n(a + i, count, from);
    trig_apart<T, Fast, Slow>(out + i, from, count, limit);
  }
}

// The loop Short below `near`, the others as above.
template <typename T, auto Short, auto Fast, auto Slow>
void trig_split(T* out, const T* a, int64_t n, T near, T limit) {
  for (int64_t i = 0; i < n; i += kTrigPart) {
    const int64_t count = std::min(n - i, kTrigPart);
    const int64_t below = count_below(near, a + i, count);
    if (below == count) {
      Short(out + i, a + i, count);
      continue;
    }
    if (below == 0) {
      trig_split<T, Fast, Slow>(out + i, a + i, count, limit);
      continue;
    }
    alignas(64) T from[kTrigPart], far[kTrigPart];
    std::copy_n(a + i, count, from);
    Short(out + i, from, count);
    trig_apart<T, Fast, Slow>(far, from, count, limit);
    for (int64_t j = 0; j < count; ++j) out[i + j] = std::fabs(from[j]) < near ? out[i + j] : far[j];
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_TRIG_LOOPS_H
