// Copies between tensors of any dtype and strides, shared by copy_cast and cat.
#ifndef TESSERACK_CPU_COPY_H
#define TESSERACK_CPU_COPY_H

#include "pointwise/geometry.h"

#include <complex>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// operands[0] = cast(operands[1]) over `space`, which is normalised here. Complex to real drops the imaginary part.
void copy_space(Space& space);

// One number as an element of any dtype. Of real ones it is the real part; 64-bit integers pass through float64.
void write_number(char* at, int32_t dtype, std::complex<double> z);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_COPY_H
