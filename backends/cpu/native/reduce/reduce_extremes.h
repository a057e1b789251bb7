// Maxima, minima, any and all over the last dimensions of a call's input.
#ifndef TESSERACK_CPU_REDUCE_EXTREMES_H
#define TESSERACK_CPU_REDUCE_EXTREMES_H

#include "storage.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

void reduce_extremes(const backend::Call& call, int n_reduced_dims, int op);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_REDUCE_EXTREMES_H
