#include "processor.h"
#include "isa.h"

#include <cstdio>
#include <cstring>

namespace tesserack::cpu {

std::string processor_name() {
  std::string name = "cpu";
  if (std::FILE* file = std::fopen("/proc/cpuinfo", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::strncmp(line, "model name", 10) != 0) continue;
      if (const char* value = std::strchr(line, ':')) name.assign(value + 2, std::strcspn(value + 2, "\n"));
      break;
    }
    std::fclose(file);
  }
  return name + " (" + isa_name(active_isa()) + ")";
}

} // namespace tesserack::cpu
