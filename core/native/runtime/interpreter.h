// What the core asks of a host language, if there is one. All default to nothing: libtesserack runs without Python.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace ts {

struct InterpreterHooks {
  void* (*suspend)() = nullptr; // let other threads of the interpreter run; result goes to resume
  void (*resume)(void*) = nullptr;
  // A thread of the core's own has one state of the interpreter for as long as it lives, not one for each visit: what
  // is raised in one visit is there in the next. The result of the first goes to the second.
  void* (*attach)() = nullptr;
  void (*detach)(void*) = nullptr;
  bool (*interrupted)() = nullptr; // the user pressed Ctrl-C; may be called while suspended
  void (*warn)(const char* message, const char* category) = nullptr;
  void (*log)(int level, const char* message) = nullptr; // 0 debug, 1 info, 2 warning
  std::string (*location)() = nullptr;                   // "file.py:12" of the user's innermost frame
  std::string (*calls)() = nullptr;                      // all of them with their lines, as tracebacks show them
  // The exception of the interpreter that is on its way, taken off it, with its text; and put back.
  std::shared_ptr<void> (*take_exception)(std::string& text) = nullptr;
  void (*put_exception)(const std::shared_ptr<void>& exception) = nullptr;
};
InterpreterHooks& interpreter_hooks();
void warn(const std::string& message, const char* category = "UserWarning");

// Kernels over more elements than this run with the interpreter released (releasing costs about 30 ns).
inline constexpr int64_t kSuspendThreshold = 16384;

class SuspendInterpreter {
public:
  explicit SuspendInterpreter(int64_t work) {
    if (work > kSuspendThreshold && interpreter_hooks().suspend) token_ = interpreter_hooks().suspend();
  }
  ~SuspendInterpreter() {
    if (token_) interpreter_hooks().resume(token_);
  }
  SuspendInterpreter(const SuspendInterpreter&) = delete;
  SuspendInterpreter& operator=(const SuspendInterpreter&) = delete;

private:
  void* token_ = nullptr;
};

} // namespace ts
