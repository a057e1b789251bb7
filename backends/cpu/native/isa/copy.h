// Copies between tensors of any dtype and strides, shared by copy_cast and cat.
#ifndef TESSERACK_CPU_COPY_H
#define TESSERACK_CPU_COPY_H

#include "geometry.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// operands[0] = cast(operands[1]) over `space`, which is normalised here. Complex to real drops the imaginary part.
void copy_space(Space& space);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_COPY_H
