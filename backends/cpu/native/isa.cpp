#include "isa.h"

#include <cstdlib>
#include <cstring>

// Bit k: level k is built (TESSERACK_CPU_ISA in CMakeLists.txt).
#ifndef TESSERACK_CPU_BUILT
#define TESSERACK_CPU_BUILT 1
#endif

namespace tesserack::cpu {

int detected_isa() {
#if defined(__x86_64__) && defined(TESSERACK_CPU_ISA_VARIANTS)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  if (!avx2) return ISA_BASELINE;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return avx512 ? ISA_AVX512 : ISA_AVX2;
#else
  return ISA_BASELINE;
#endif
}

namespace {

constexpr bool is_built(int level) { return (TESSERACK_CPU_BUILT >> level & 1) != 0; }

int choose() {
  int best = detected_isa();
  while (best >= ISA_BASELINE && !is_built(best)) --best;
  const char* wanted = std::getenv("TESSERACK_CPU_ISA");
  if (wanted == nullptr) return best;
  for (int level = ISA_BASELINE; level < best; ++level)
    if (is_built(level) && std::strcmp(wanted, isa_name(level)) == 0) return level;
  return best;
}

} // namespace

const char* isa_name(int level) {
  constexpr const char* names[] = {"baseline", "avx2", "avx512"};
  return level >= ISA_BASELINE && level <= ISA_AVX512 ? names[level] : "unknown";
}

int active_isa() {
  static const int level = choose();
  return level;
}

} // namespace tesserack::cpu
