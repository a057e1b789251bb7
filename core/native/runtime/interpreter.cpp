#include "runtime/interpreter.h"
#include <cstdio>

namespace ts {

InterpreterHooks& interpreter_hooks() {
  static InterpreterHooks hooks;
  return hooks;
}

void warn(const std::string& message, const char* category) {
  if (interpreter_hooks().warn)
    interpreter_hooks().warn(message.c_str(), category);
  else
    std::fprintf(stderr, "%s: %s\n", category, message.c_str());
}

} // namespace ts
