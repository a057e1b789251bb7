// Functions of .isa.cpp files that plain sources call: declared once per instruction set, chosen by the processor.
#ifndef TESSERACK_CPU_ISA_PICK_H
#define TESSERACK_CPU_ISA_PICK_H

#include "isa.h"

// TS_ISA_FUNCTION(void, name, (int a)) inside namespace tesserack::cpu declares pick_name(), which returns the
// best copy. The .isa.cpp file defines `void name(int a)` in namespace tesserack::cpu::TESSERACK_VARIANT.
#ifdef TESSERACK_CPU_ISA_VARIANTS
// Weak: of a set that this build leaves out the declaration stays undefined; active_isa() never names it.
#define TS_ISA_FUNCTION(result, name, parameters)                                                                      \
  namespace baseline {                                                                                                 \
  __attribute__((weak)) result name parameters;                                                                        \
  }                                                                                                                    \
  namespace avx2 {                                                                                                     \
  __attribute__((weak)) result name parameters;                                                                        \
  }                                                                                                                    \
  namespace avx512 {                                                                                                   \
  __attribute__((weak)) result name parameters;                                                                        \
  }                                                                                                                    \
  inline auto pick_##name() {                                                                                          \
    const int level = active_isa();                                                                                    \
    return level == ISA_AVX512 ? &avx512::name : level == ISA_AVX2 ? &avx2::name : &baseline::name;                    \
  }                                                                                                                    \
  static_assert(true)
#else
#define TS_ISA_FUNCTION(result, name, parameters)                                                                      \
  namespace baseline {                                                                                                 \
  result name parameters;                                                                                              \
  }                                                                                                                    \
  inline auto pick_##name() { return &baseline::name; }                                                                \
  static_assert(true)
#endif

#endif // TESSERACK_CPU_ISA_PICK_H
