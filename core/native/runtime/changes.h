// What is worked out ahead relies on which kernels there are: this counts the times that any was replaced.
#pragma once
#include <atomic>
#include <cstdint>

namespace ts {

inline std::atomic<uint64_t> kernel_changes{0};

} // namespace ts
