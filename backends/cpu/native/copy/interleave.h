// Two runs into one, turn by turn: the parts of complex numbers, or pieces of one element each.
#ifndef TESSERACK_CPU_INTERLEAVE_H
#define TESSERACK_CPU_INTERLEAVE_H

#include <cstdint>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

template <typename T>
__attribute__((noinline)) void interleave(T* __restrict to, const T* __restrict a, const T* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_INTERLEAVE_H
