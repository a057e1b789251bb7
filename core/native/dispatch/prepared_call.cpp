#include "dispatch/prepared_call.h"

namespace ts {

std::unique_ptr<PreparedCall> PreparedCall::make(const Backend& backend, const ts_kernel& kernel, const ts_call& call) {
  if (!kernel.prepare) return nullptr;
  std::unique_ptr<PreparedCall> made(new PreparedCall(kernel));
  const int status = kernel.prepare(&call, &made->step_);
  if (status != TS_OK) made->step_ = {};
  if (status != TS_OK && status != TS_DECLINED) backend.check(status, call.op);
  return made->step_.run ? std::move(made) : nullptr;
}

PreparedCall::~PreparedCall() {
  if (step_.destroy) step_.destroy(&step_);
}

int PreparedCall::run(const ts_call* call) {
  const auto& prepared = *static_cast<const PreparedCall*>(call->kernel_ctx);
  ts_call own = *call;
  own.kernel_ctx = prepared.of_.ctx;
  return prepared.step_.run(&prepared.step_, &own);
}

ts_kernel PreparedCall::kernel() const {
  ts_kernel kernel = of_;
  kernel.run = run;
  kernel.ctx = const_cast<PreparedCall*>(this);
  return kernel;
}

} // namespace ts
