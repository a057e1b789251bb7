// What a thread that records work keeps: memory that the recording uses, and the random numbers it draws.
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

  virtual void keep(Storage* s); // new memory: as long as the recording lives
  virtual void note_draw(Generator& g, uint64_t before);
  // A kernel has run; the call is as the kernel got it.
  virtual void kernel_recorded(Backend& b, const ts_kernel& kernel, Device on, const ts_call& call, int64_t work) = 0;
  // The host waits for a device, or copies memory from or to it: refused where it is the recorded one.
  virtual void host_meets(Device on, const char* what);
  // What was done depends on more than the kernels that ran: on values that the host looked at, on code that is not
  // ours.
  virtual void depends_on_more() {}
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
  if (RecordingState* c = RecordingState::current()) [[unlikely]]
    c->host_meets(device, what);
}

// Before values of tensors decide what is done, or code that is not ours does something.
inline void note_hidden_dependence() {
  if (RecordingState* c = RecordingState::current()) [[unlikely]]
    c->depends_on_more();
}

} // namespace ts
