// Instruction sets the sources named .isa.cpp are compiled for, and the one chosen when the library loads.
#ifndef TESSERACK_CPU_ISA_H
#define TESSERACK_CPU_ISA_H

namespace tesserack::cpu {

// Values of TESSERACK_VARIANT_LEVEL.
enum IsaLevel { ISA_BASELINE = 0, ISA_AVX2 = 1, ISA_AVX512 = 2 };

// The best level of this processor that is built, lowered by the environment variable TESSERACK_CPU_ISA to another that
// is. Fixed at first use; -1 where the processor has none of them.
int active_isa();
const char* isa_name(int level);
// The best level of this processor, built or not.
int detected_isa();

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ISA_H
