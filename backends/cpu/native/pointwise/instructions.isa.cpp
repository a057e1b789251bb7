// Which scalar instructions have a loop: the core writes others in those.
#include "ops.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

void instruction_bits(uint64_t* words) {
  const OpTable<double>& reals = op_table<double>();
  const OpTable<int64_t>& integers = op_table<int64_t>();
  for (int op = 0; op < TS_NUM_INSTRUCTIONS; ++op)
    if (reals.fn[op][0] != nullptr || integers.fn[op][0] != nullptr) words[op / 64] |= uint64_t{1} << (op % 64);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
