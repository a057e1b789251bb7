// Who watches the calls of kernels: the profiler and recordings of a device's work. One word tells call_kernel whether
// anybody does.
#pragma once
#include "runtime/backend.h"
#include <string>
#include <vector>

namespace ts {

enum Watcher : uint32_t { kWatchProfile = 1, kWatchRecording = 2, kWatchTrace = 4, kWatchChecks = 1u << 31 };
// Bits of Watcher; recordings count, so that a thread's end does not hide another's.
extern std::atomic<uint32_t> kernel_watchers;

// One call of a kernel, or a copy, in any thread.
struct KernelEvent {
  const char* op;
  Device device;
  uint64_t thread;    // as Python's threading.get_ident
  int64_t start, end; // nanoseconds of the steady clock; on an asynchronous device of the queueing
  int64_t elements;
  int status;
  uint64_t number; // ts_call.number: what devices tell of it comes with this
};
void start_kernel_profile();
std::vector<KernelEvent> stop_kernel_profile(); // what was seen since the start
std::vector<KernelEvent> take_kernel_events();  // so far; goes on

// Checked mode (checked_mode), on or off; whether it was on.
bool set_checked(bool on);

// The same in the flags of every call: TS_C_*.
extern std::atomic<uint32_t> call_flags;

// What use_deterministic_algorithms asks of an operator without a deterministic form, and whether memory that nobody
// wrote is filled then.
enum class Determinism : uint8_t { Any, Warn, Fail };
extern std::atomic<Determinism> determinism;
extern std::atomic<bool> fills_new_memory;

// Of graph/tracer.h, while some thread writes a program down: told of kernels that ran.
extern void (*kernel_hook)(const ts_call& call);
extern void (*draw_hook)(); // and of kernels that are about to draw

// From one to the other, what this thread does is recorded.
struct RecordingState;
void enter_recording(RecordingState& recording);
void leave_recording() noexcept;

// Runs the kernel with everybody watching. The call is as the kernel gets it.
int run_watched(Backend& b, const ts_kernel& kernel, Device device, ts_call& call, int64_t work);

} // namespace ts
