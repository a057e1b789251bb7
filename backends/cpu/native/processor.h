// What this processor is called.
#ifndef TESSERACK_CPU_PROCESSOR_H
#define TESSERACK_CPU_PROCESSOR_H

#include <string>

namespace tesserack::cpu {

// With the instruction set in use: "AMD EPYC 7R13 Processor (avx2)".
std::string processor_name();

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_PROCESSOR_H
