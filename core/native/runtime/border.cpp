#include "runtime/border.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include <new>

namespace ts {

int status_of(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::Value: return TS_VALUE_ERROR;
  case ErrorKind::Index: return TS_INDEX_ERROR;
  case ErrorKind::OutOfMemory: return TS_OUT_OF_MEMORY;
  case ErrorKind::DeviceLost: return TS_DEVICE_LOST;
  case ErrorKind::Interrupted: return TS_INTERRUPTED;
  default: return TS_ERROR;
  }
}

namespace {

thread_local Border* t_border = nullptr;

struct Failure {
  int status = TS_ERROR;
  std::string message;
  std::shared_ptr<void> exception;
};

Failure current_failure() {
  Failure f;
  try {
    throw;
  } catch (const Error& e) {
    f.status = status_of(e.kind());
    f.message = e.what();
    bool in_interpreter = e.kind() == ErrorKind::Python || e.kind() == ErrorKind::Interrupted;
    if (in_interpreter && interpreter_hooks().take_exception)
      f.exception = interpreter_hooks().take_exception(f.message);
  } catch (const std::bad_alloc&) {
    f.status = TS_OUT_OF_MEMORY;
    f.message = "out of host memory";
  } catch (const std::exception& e) {
    f.message = e.what();
  } catch (...) {
    f.message = "unknown C++ exception";
  }
  return f;
}

} // namespace

Border::Border() : outer_(t_border) { t_border = this; }

Border::~Border() {
  t_border = outer_;
  if (failure_) take_last_error(); // was dealt with, or raised
}

int keep_failure() noexcept {
  try {
    std::exception_ptr error = std::current_exception();
    Failure f = current_failure();
    set_last_error(f.message.c_str());
    if (t_border) {
      t_border->failure_ = std::move(error);
      t_border->exception_ = std::move(f.exception);
      t_border->message_ = std::move(f.message);
    }
    return f.status;
  } catch (...) {
    return TS_OUT_OF_MEMORY;
  }
}

void Border::check(int status, const std::string& who) {
  if (status == TS_OK) return;
  std::string said = take_last_error();
  if (failure_ && (said.empty() || said == message_)) {
    if (exception_) interpreter_hooks().put_exception(exception_);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  if (status == TS_DECLINED) fail(ErrorKind::NotImplemented, who, ": there is no kernel for this case");
  if (said.empty()) said = concat("failed with status ", status, ", and gave no message");
  set_last_error(said.c_str());
  fail_status(status, who, who.c_str());
}

} // namespace ts
