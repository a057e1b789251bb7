// ARGMAX and ARGMIN of the entry point `reduce`.
#ifndef TESSERACK_CPU_REDUCE_ARG_H
#define TESSERACK_CPU_REDUCE_ARG_H

#include <tesserack/backend.hpp>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// out0 = first position of the extreme over the last dimensions, counted row-major; NaN wins.
void reduce_positions(const backend::Call& call, int n_reduced_dims, bool largest);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_REDUCE_ARG_H
