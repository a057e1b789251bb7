#include "runtime/computed_dtypes.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace ts {
namespace {

// Devices without float32, which are few: the others need not be looked for.
struct Lacking {
  Device device;
  uint64_t dtypes;
};
std::atomic<bool> some_lack{false};
std::shared_mutex mutex;
std::vector<Lacking>& lacking() {
  static std::vector<Lacking> found;
  return found;
}
constexpr uint64_t bit(DType t) { return uint64_t{1} << static_cast<int>(t); }

} // namespace

void note_computed_dtypes(Device device, uint64_t dtypes) {
  std::lock_guard lock(mutex);
  std::erase_if(lacking(), [&](const Lacking& one) { return one.device == device; });
  if (dtypes && !(dtypes & bit(DType::Float32))) lacking().push_back({device, dtypes});
  some_lack = !lacking().empty();
}

bool computes_with(Device device, DType t) {
  if (!some_lack.load(std::memory_order_relaxed)) [[likely]]
    return true;
  std::shared_lock lock(mutex);
  for (const Lacking& one : lacking())
    if (one.device == device) return one.dtypes & bit(t);
  return true;
}

} // namespace ts
