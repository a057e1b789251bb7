// Counts the tensors that were made to share memory but not its version (`.data`): writes through one are not seen in
// the version of another. Who keeps what was computed of a tensor compares this too.
#pragma once
#include <atomic>
#include <cstdint>

namespace ts {

extern std::atomic<uint64_t> unversioned_aliases;

} // namespace ts
