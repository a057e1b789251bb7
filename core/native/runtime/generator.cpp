#include "runtime/recording_state.h"
#include "runtime/services/draws.h"
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace ts {
namespace {
std::mutex g_generator_mutex;
std::optional<uint64_t> g_seed;
thread_local uint64_t t_draws = 0;
thread_local bool t_refuse_draws = false;
std::map<int64_t, std::unique_ptr<Generator>>& generators() {
  static std::map<int64_t, std::unique_ptr<Generator>> all;
  return all;
}
} // namespace

Generator& default_generator(Device device) {
  std::lock_guard lock(g_generator_mutex);
  auto& slot = generators()[device.pack()];
  if (!slot) {
    slot = std::make_unique<Generator>();
    slot->device = device;
    if (g_seed) slot->seed = *g_seed;
  }
  return *slot;
}

uint64_t draws() { return t_draws; }
bool refuse_draws(bool refuse) { return std::exchange(t_refuse_draws, refuse); }

uint64_t Generator::advance(uint64_t words) {
  TS_CHECK(!t_refuse_draws, "vmap: called random operation while in randomness error mode; pass randomness='same' or "
                            "'different', or draw outside of vmap");
  ++t_draws;
  std::lock_guard lock(mutex);
  uint64_t at = offset;
  offset += (words + 3) / 4 * 4;
  if (RecordingState* c = RecordingState::current()) c->note_draw(*this, at);
  return at;
}

void manual_seed_all(uint64_t seed) {
  std::lock_guard lock(g_generator_mutex);
  g_seed = seed;
  for (auto& [device, g] : generators()) g->manual_seed(seed);
}

} // namespace ts
