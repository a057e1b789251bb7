// Cutting extents into parts, for tiles of the float32 matrix product.
#ifndef TESSERACK_CPU_STRIPS_H
#define TESSERACK_CPU_STRIPS_H

#include "pointwise/geometry.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// body(first, rows) for strips of nearly equal height, at most `highest`.
template <class Body> void each_strip(int64_t m, int64_t highest, const Body& body) {
  const int64_t strips = ceil_div(m, highest), rows = m / strips, taller = m % strips;
  for (int64_t s = 0, i = 0; s < strips; ++s) {
    const int64_t here = rows + (s < taller);
    body(i, here);
    i += here;
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_STRIPS_H
