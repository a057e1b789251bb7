#include "dispatch/watch.h"
#include "dispatch/launch.h"
#include "runtime/recording_state.h"
#include <chrono>
#include <mutex>
#include <pthread.h>

namespace ts {

std::atomic<uint32_t> kernel_watchers{checked_at_start() ? uint32_t{kWatchChecks} : 0U};
void (*kernel_hook)(const ts_call& call) = nullptr;
void (*draw_hook)() = nullptr;
std::atomic<uint32_t> call_flags{0};
std::atomic<Determinism> determinism{Determinism::Any};
std::atomic<bool> fills_new_memory{false};

namespace {

std::atomic<int> g_recording{0}; // threads

struct Profile {
  std::mutex mutex;
  std::vector<KernelEvent> events;
};
Profile& profile() {
  static auto* p = new Profile; // threads may outlive static destruction
  return *p;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int run_quietly(Backend& b, const ts_kernel& kernel, Device device, ts_call& call, int64_t work) {
  if (b.is_async(device.index)) return call_async_kernel(b, kernel, device, call, work);
  SuspendInterpreter suspend(work);
  return kernel.run(&call);
}

} // namespace

void start_kernel_profile() {
  std::lock_guard lock(profile().mutex);
  profile().events.clear();
  kernel_watchers.fetch_or(kWatchProfile);
}

std::vector<KernelEvent> take_kernel_events() {
  std::lock_guard lock(profile().mutex);
  return std::exchange(profile().events, {});
}

std::vector<KernelEvent> stop_kernel_profile() {
  kernel_watchers.fetch_and(~uint32_t{kWatchProfile});
  return take_kernel_events();
}

bool set_checked(bool on) {
  on ? kernel_watchers.fetch_or(kWatchChecks) : kernel_watchers.fetch_and(~uint32_t{kWatchChecks});
  return checked_mode.exchange(on);
}

void enter_recording(RecordingState& recording) {
  thread_state().capture = &recording;
  g_recording.fetch_add(1);
  kernel_watchers.fetch_or(kWatchRecording);
}

void leave_recording() noexcept {
  thread_state().capture = nullptr;
  if (g_recording.fetch_sub(1) == 1) kernel_watchers.fetch_and(~uint32_t{kWatchRecording});
}

int run_watched(Backend& b, const ts_kernel& kernel, Device device, ts_call& call, int64_t work) {
  uint32_t watchers = kernel_watchers.load(std::memory_order_acquire);
  bool profiled = watchers & kWatchProfile;
  static std::atomic<uint64_t> count{0};
  if (profiled) call.number = ++count;
  int64_t start = profiled ? now() : 0;
  int status = run_quietly(b, kernel, device, call, work);
  if ((watchers & kWatchChecks) && status == TS_OK) status = static_cast<CallMemory*>(call.core)->check(call.op);
  if (profiled && status != TS_DECLINED) {
    KernelEvent event{call.op, device, static_cast<uint64_t>(pthread_self()), start, now(), work, status, call.number};
    std::lock_guard lock(profile().mutex);
    profile().events.push_back(event);
  }
  if (status == TS_OK)
    if (RecordingState* recording = RecordingState::current())
      recording->kernel_recorded(b, kernel, device, call, work);
  if (status == TS_OK && (watchers & kWatchTrace)) kernel_hook(call);
  return status;
}

} // namespace ts
