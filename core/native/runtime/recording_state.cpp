#include "runtime/recording_state.h"

namespace ts {

void let_go(Storage* s) {
  if (s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) Storage::destroy(s);
}

RecordingState::~RecordingState() {
  for (Storage* s : kept) let_go(s);
}

void RecordingState::keep(Storage* s) {
  if (!(s->device == device)) return;
  s->refs.fetch_add(1, std::memory_order_relaxed);
  kept.push_back(s);
}

void RecordingState::host_meets(Device on, const char* what) {
  if (on == device) refuse(what);
}

void RecordingState::note_draw(Generator& g, uint64_t before) {
  for (Draws& d : draws)
    if (d.generator == &g) {
      d.end = g.offset;
      return;
    }
  if (draws_at(g.seed, before)) return; // numbers of another's, made by one that stands where that one stood
  draws.push_back({&g, before, g.offset, {}});
}

RecordingState::Draws* RecordingState::draws_at(uint64_t seed, uint64_t position) {
  for (Draws& d : draws)
    if (d.generator->seed == seed && position >= d.begin && position < d.end) return &d;
  return nullptr;
}

void RecordingState::refuse(const char* what) const {
  fail(ErrorKind::Runtime, "record: expected work of ", to_string(device), " alone, got ", what,
       ", which every replay would leave out; do it before or after the recording");
}

} // namespace ts
