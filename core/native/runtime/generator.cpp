#include "runtime/recording_state.h"
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

uint64_t Generator::advance(uint64_t words) {
  std::lock_guard lock(mutex);
  uint64_t at = offset;
  offset += (words + 3) / 4 * 4;
  if (RecordingState* c = RecordingState::current()) c->note_draw(*this, at);
  return at;
}

void manual_seed_all(uint64_t seed) {
  std::lock_guard lock(g_mutex);
  g_seed = seed;
  for (auto& [device, g] : generators()) g->manual_seed(seed);
}

} // namespace ts
