#include "runtime/generator.h"
#include <map>
#include <memory>
#include <optional>

namespace ts {
namespace {
std::mutex g_mutex;
std::optional<uint64_t> g_seed;
std::map<int64_t, std::unique_ptr<Generator>>& generators() {
  static std::map<int64_t, std::unique_ptr<Generator>> all;
  return all;
}
} // namespace

Generator& default_generator(Device device) {
  std::lock_guard lock(g_mutex);
  auto& slot = generators()[device.pack()];
  if (!slot) {
    slot = std::make_unique<Generator>();
    slot->device = device;
    if (g_seed) slot->seed = *g_seed;
  }
  return *slot;
}

void manual_seed_all(uint64_t seed) {
  std::lock_guard lock(g_mutex);
  g_seed = seed;
  for (auto& [device, g] : generators()) g->manual_seed(seed);
}

} // namespace ts
