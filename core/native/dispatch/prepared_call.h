// Calls of kernels that are worked out ahead, to be run many times: ts_kernel.prepare.
#pragma once
#include "runtime/backend.h"
#include <memory>

namespace ts {

class PreparedCall {
public:
  // NULL where the kernel does not prepare such calls.
  static std::unique_ptr<PreparedCall> make(const Backend& backend, const ts_kernel& kernel, const ts_call& call);
  ~PreparedCall();
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  // What is run instead, as long as this lives.
  ts_kernel kernel() const;

private:
  explicit PreparedCall(const ts_kernel& of) : of_(of) { step_.struct_size = sizeof step_; }
  static int run(const ts_call* call);

  ts_kernel of_; // whose own context the step gets back
  ts_step step_{};
};

} // namespace ts
