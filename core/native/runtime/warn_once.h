// Warnings that would say the same at every call: given at the first, or always where the user asks for that.
#pragma once
#include "runtime/interpreter.h"
#include <atomic>

namespace ts {

// What set_warn_always() sets.
inline std::atomic<bool>& warn_always() {
  static std::atomic<bool> always{false};
  return always;
}

// `given` is the call site's own.
inline void warn_once(std::atomic<bool>& given, const std::string& message) {
  if (!given.exchange(true, std::memory_order_relaxed) || warn_always().load(std::memory_order_relaxed)) warn(message);
}

} // namespace ts
