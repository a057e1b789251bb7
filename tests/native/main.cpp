#include "harness.h"
#include <cstring>

// Runs all cases, or those whose name contains the argument.
int main(int argc, char** argv) {
  int passed = 0, failed = 0;
  for (const harness::Case& c : harness::cases()) {
    if (argc > 1 && !std::strstr(c.name, argv[1])) continue;
    std::string error = harness::error_of(c.run);
    if (error.empty())
      ++passed;
    else
      std::cerr << "FAILED " << c.name << ": " << error << "\n", ++failed;
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed != 0;
}
