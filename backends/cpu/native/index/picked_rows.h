// The copy of picked rows, in the best instruction set (index/picked_rows.isa.cpp).
#ifndef TESSERACK_CPU_PICKED_ROWS_H
#define TESSERACK_CPU_PICKED_ROWS_H

#include "isa_pick.h"

#include <cstdint>

namespace tesserack::cpu {

TS_ISA_FUNCTION(void, copy_picked_rows,
                (char* to, const char* from, const int64_t* offsets, int64_t count, int64_t bytes));

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_PICKED_ROWS_H
