// What a thread wants to hear of: copies between devices, hidden waits for a device, kernels run on the cpu instead.
#pragma once
#include "tensor/tensor.h"
#include "tensor/thread_state.h"
#include <string>

namespace ts {

enum class Transfer : uint8_t { Copy, Synchronize, Fallback };
enum class GuardMode : uint8_t { Off, Log, Error };

inline GuardMode guard_mode(Transfer kind) {
  return static_cast<GuardMode>(thread_state().transfer_guard[static_cast<size_t>(kind)]);
}
void set_guard_mode(Transfer kind, GuardMode mode);
[[gnu::cold]] void report_transfer(Transfer kind, const std::string& what); // logs, or RuntimeError

// `what` builds the message; it names the operator, the tensors and the devices.
template <class F> inline void guard_transfer(Transfer kind, F&& what) {
  if (guard_mode(kind) != GuardMode::Off) [[unlikely]]
    report_transfer(kind, what());
}

} // namespace ts
