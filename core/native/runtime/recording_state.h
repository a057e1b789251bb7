// What a thread that records a device's work keeps: memory that the recording uses, and the random numbers it draws.
#pragma once
#include "runtime/backend.h"
#include "runtime/generator.h"

namespace ts {

struct RecordingState {
  explicit RecordingState(Device d) : device(d) {}
  virtual ~RecordingState();
  RecordingState(const RecordingState&) = delete;
  RecordingState& operator=(const RecordingState&) = delete;
  static RecordingState* current() { return static_cast<RecordingState*>(thread_state().capture); }

  void keep(Storage* s); // as long as the recording lives
  void note_draw(Generator& g, uint64_t before);
  // Where in a generator's draws of this recording a position lies.
  struct Draws {
    Generator* generator;
    uint64_t begin, end; // positions when the recording began drawing, and now
    Tensor state;        // two uint64 on the device that kernels read: the key, and the position counted from
  };
  Draws* draws_at(uint64_t seed, uint64_t position);
  virtual void copy_recorded(Device on, void* dst, int64_t dst_offset, void* src, int64_t src_offset, size_t bytes) = 0;
  // RuntimeError: what cannot be recorded for the device.
  [[noreturn]] void refuse(const char* what) const;

  Device device;
  bool by_launches = false; // written down by the card itself, not call by call
  std::vector<Storage*> kept;
  std::vector<Draws> draws;
};

// Lets go of scratch memory, which a recording may have kept.
void let_go(Storage* s);

// Before the device is waited for, or memory of the host is copied from or to it.
inline void check_recordable(Device device, const char* what) {
  if (RecordingState* c = RecordingState::current(); c && c->device == device) [[unlikely]]
    c->refuse(what);
}

} // namespace ts
