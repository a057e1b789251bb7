#include "isa.h"

#include <cstdlib>
#include <cstring>

namespace tesserack::cpu {
namespace {

int detect() {
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

int choose() {
  const int best = detect();
  const char* wanted = std::getenv("TESSERACK_CPU_ISA");
  if (wanted == nullptr) return best;
  for (int level = ISA_BASELINE; level < best; ++level)
    if (std::strcmp(wanted, isa_name(level)) == 0) return level;
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
