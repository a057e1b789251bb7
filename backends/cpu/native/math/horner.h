// Polynomials with their coefficients in one line, highest power first.
#ifndef TESSERACK_CPU_HORNER_H
#define TESSERACK_CPU_HORNER_H

#include "math_f32.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Unrolled as it is parsed: a loop over coefficients keeps the compiler from making vectors of the loop around it.
template <typename T, typename... C> TS_INLINE T horner(T x, T first, C... rest) {
  ((first = fused(first, x, T(rest))), ...);
  return first;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_HORNER_H
