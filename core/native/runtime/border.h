// Where C code calls the core and the core calls C code: exceptions become statuses, and the same exceptions again.
#pragma once
#include <exception>
#include <memory>
#include <string>

namespace ts {

// While a callback of a library runs. What its calls of the core raise meanwhile is kept, and raised again if the
// callback hands that failure on; a Python exception is taken off the interpreter until then.
class Border {
public:
  Border();
  ~Border();
  Border(const Border&) = delete;
  Border& operator=(const Border&) = delete;

  // Raises what a status other than TS_OK means; `who` begins the message of what was not raised by the core.
  void check(int status, const std::string& who);

private:
  friend int keep_failure() noexcept;
  Border* outer_;
  std::exception_ptr failure_;
  std::shared_ptr<void> exception_; // of the interpreter
  std::string message_;
};

enum class ErrorKind;
int status_of(ErrorKind kind); // TS_OUT_OF_MEMORY and so on

// In a catch block: the status of the exception, whose text becomes the last error.
int keep_failure() noexcept;

// Runs f, called from C.
template <class F> int to_status(F&& f) noexcept {
  try {
    f();
    return 0;
  } catch (...) {
    return keep_failure();
  }
}

} // namespace ts
