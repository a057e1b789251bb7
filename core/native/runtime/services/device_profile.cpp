#include "runtime/services/device_profile.h"
#include "runtime/interpreter.h"
#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>

namespace ts {
namespace {

struct Profiled {
  std::mutex mutex; // never held while a backend is called
  bool on = false;
  uint64_t number = 0; // of profiles so far: what was begun in one is not ended in another
  std::vector<Device> devices, starting;
};
Profiled& profiled() {
  static auto* p = new Profiled; // threads may outlive static destruction
  return *p;
}
std::atomic<bool> g_on{false};

std::vector<Device> devices_now() {
  std::lock_guard lock(profiled().mutex);
  return profiled().devices;
}

struct Taking {
  Device device;
  std::vector<DeviceActivity>& into;
};

// Called by backends, which are plain C.
void take(void* to, const ts_activity* given) noexcept {
  if (!given || given->struct_size < offsetof(ts_activity, call)) return;
  ts_activity a{};
  std::memcpy(&a, given, std::min(given->struct_size, sizeof a));
  if (a.kind < 0 || a.kind >= TS_NUM_ACTIVITIES) return; // of a later version
  auto& taking = *static_cast<Taking*>(to);
  try {
    taking.into.push_back({a.kind, taking.device, a.name ? a.name : "", a.call, reinterpret_cast<uintptr_t>(a.stream),
                           a.begin, a.end, a.value});
  } catch (const std::bad_alloc&) { // this one is not told
  }
}

uint64_t number_now() {
  std::lock_guard lock(profiled().mutex);
  return profiled().number;
}

// Whether this thread is the one that starts the device.
bool claim(Device device) {
  std::lock_guard lock(profiled().mutex);
  Profiled& p = profiled();
  auto holds = [&](const std::vector<Device>& list) { return std::ranges::find(list, device) != list.end(); };
  if (!p.on || holds(p.devices) || holds(p.starting)) return false;
  p.starting.push_back(device);
  return true;
}

// False where what was started is of no use any more: the profile ended meanwhile.
bool settle(Device device, uint64_t number, bool started) {
  std::lock_guard lock(profiled().mutex);
  Profiled& p = profiled();
  std::erase(p.starting, device);
  if (!started || !p.on || p.number != number) return !started;
  p.devices.push_back(device);
  return true;
}

// One that declines is not profiled.
void start(Device device) {
  Backend& b = backend_of(device);
  const ts_backend& t = b.table();
  const uint64_t number = number_now();
  if (!t.profiler || !claim(device)) return;
  int status = t.profiler->start(t.ctx, device.index);
  if (!settle(device, number, status == TS_OK)) b.check(t.profiler->stop(t.ctx, device.index), "profiler.stop");
  if (status != TS_OK && status != TS_DECLINED) b.check(status, "profiler.start");
}

// Of each, though some fail; the first error is raised then.
template <class F> void each(const std::vector<Device>& devices, F&& f) {
  std::exception_ptr error;
  for (Device device : devices) try {
      f(device);
    } catch (const Error&) {
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

} // namespace

void start_device_profile() {
  {
    std::lock_guard lock(profiled().mutex);
    profiled().on = true;
    ++profiled().number;
    profiled().devices.clear();
  }
  g_on = true;
  SuspendInterpreter suspend(INT64_MAX);
  std::vector<Device> open;
  for (Backend* b : backends()) {
    if (!b->table().profiler || !b->probed()) continue;
    for (int k = 0; k < b->device_count(); ++k)
      if (b->opened(k)) open.push_back({b->id(), static_cast<int16_t>(k)});
  }
  try {
    for (Device device : open) start(device);
  } catch (const Error&) {
    stop_device_profile(); // none, rather than half of one
    throw;
  }
}

void profile_opened_device(Backend& b, int index) {
  if (g_on.load(std::memory_order_relaxed)) start({b.id(), static_cast<int16_t>(index)});
}

std::vector<DeviceActivity> collect_device_profile() {
  std::vector<DeviceActivity> all;
  SuspendInterpreter suspend(INT64_MAX);
  for (Device device : devices_now()) {
    Taking taking{device, all};
    Backend& b = backend_of(device);
    b.check(b.table().profiler->collect(b.table().ctx, device.index, take, &taking), "profiler.collect");
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return all;
}

void stop_device_profile() {
  g_on = false;
  std::vector<Device> devices;
  {
    std::lock_guard lock(profiled().mutex);
    profiled().on = false;
    devices.swap(profiled().devices);
  }
  SuspendInterpreter suspend(INT64_MAX);
  each(devices, [](Device device) {
    Backend& b = backend_of(device);
    b.check(b.table().profiler->stop(b.table().ctx, device.index), "profiler.stop");
  });
}

std::vector<DeviceRange> begin_device_range(const char* name) {
  std::vector<DeviceRange> begun;
  if (!g_on.load(std::memory_order_relaxed)) return begun;
  const uint64_t number = number_now();
  try {
    for (Device device : devices_now()) {
      Backend& b = backend_of(device);
      const ts_profiler& p = *b.table().profiler;
      if (!p.push_range) continue;
      void* stream = b.stream(device.index);
      b.check(p.push_range(b.table().ctx, device.index, name, stream), "profiler.push_range");
      begun.push_back({device, stream, number});
    }
  } catch (const Error&) {
    end_device_range(begun);
    throw;
  }
  return begun;
}

void end_device_range(const std::vector<DeviceRange>& range) {
  if (!g_on.load(std::memory_order_relaxed)) return; // ended with the profile
  const uint64_t number = number_now();
  for (auto at = range.rbegin(); at != range.rend(); ++at) {
    if (at->profile != number) continue; // another one's, likewise
    Backend& b = backend_of(at->device);
    b.check(b.table().profiler->pop_range(b.table().ctx, at->device.index, at->stream), "profiler.pop_range");
  }
}

} // namespace ts
