// Where the core goes on by itself for long, it asks now and then whether the user has pressed Ctrl-C.
#pragma once
#include "runtime/interpreter.h"
#include "tensor/error.h"

namespace ts {

class AskForInterrupts {
public:
  // After a step over so many elements. Interrupted if the user wants it to end; `what` says what was under way.
  void after(int64_t elements, const char* what) {
    weight_ += 1 + (elements >> 4);
    if (weight_ >= 1024) [[unlikely]]
      ask(what);
  }

private:
  void ask(const char* what) {
    weight_ = 0;
    if (interpreter_hooks().interrupted && interpreter_hooks().interrupted())
      fail(ErrorKind::Interrupted, what, ": interrupted");
  }
  int64_t weight_ = 0;
};

} // namespace ts
