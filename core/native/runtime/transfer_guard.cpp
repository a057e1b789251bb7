#include "runtime/transfer_guard.h"
#include "runtime/interpreter.h"

namespace ts {

void set_guard_mode(Transfer kind, GuardMode mode) {
  thread_state().transfer_guard[static_cast<size_t>(kind)] = static_cast<uint8_t>(mode);
}

void report_transfer(Transfer kind, const std::string& what) {
  const InterpreterHooks& hooks = interpreter_hooks();
  std::string message = what;
  if (hooks.location) message += " (at " + hooks.location() + ")";
  TS_CHECK(guard_mode(kind) != GuardMode::Error, message,
           "; refused by transfer_guard(\"error\"): do it outside the guard, or allow it with transfer_guard(\"off\")");
  if (hooks.log)
    hooks.log(2, message.c_str());
  else
    warn(message, "RuntimeWarning");
}

} // namespace ts
