// Memory of the host's tensors that no allocator gave, and that counts as allocated all the same.
#pragma once
#include <atomic>
#include <cstdint>

namespace ts {

inline std::atomic<int64_t> outside_bytes{0}; // of device 0 of the backend below
inline std::atomic<int> outside_backend{-1};

} // namespace ts
