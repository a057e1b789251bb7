// Walking several tensors of one shape together: the public header's, under its short name.
#ifndef TESSERACK_CPU_STRIDED_ROWS_H
#define TESSERACK_CPU_STRIDED_ROWS_H

#include <tesserack/backend.hpp>

#include <array>
#include <cstdint>
#include <span>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

using backend::kMaxDims;
using backend::StridedRows;

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_STRIDED_ROWS_H
