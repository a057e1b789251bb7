#include "runtime/services/device_profile.h"
#include "runtime/interpreter.h"
#include <algorithm>
#include <cstring>

namespace ts {
namespace {

struct Profiled {
  std::mutex mutex; // never held while a backend is called
  bool on = false;
  std::vector<Device> devices;
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

// Whether the device takes part; one that declines is not profiled.
void start(Device device) {
  Backend& b = backend_of(device);
  const ts_backend& t = b.table();
  if (!t.profiler) return;
  int status = t.profiler->start(t.ctx, device.index);
  if (status == TS_DECLINED) return;
  b.check(status, "profiler.start");
  std::lock_guard lock(profiled().mutex);
  if (profiled().on) profiled().devices.push_back(device);
}

} // namespace

void start_device_profile() {
  {
    std::lock_guard lock(profiled().mutex);
    profiled().on = true;
    profiled().devices.clear();
  }
  g_on = true;
  SuspendInterpreter suspend(INT64_MAX);
  for (Backend* b : backends()) {
    if (!b->table().profiler || !b->probed()) continue;
    for (int k = 0; k < b->device_count(); ++k)
      if (b->opened(k)) start({b->id(), static_cast<int16_t>(k)});
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
  for (Device device : devices) {
    Backend& b = backend_of(device);
    b.check(b.table().profiler->stop(b.table().ctx, device.index), "profiler.stop");
  }
}

std::vector<DeviceRange> begin_device_range(const char* name) {
  std::vector<DeviceRange> begun;
  if (!g_on.load(std::memory_order_relaxed)) return begun;
  for (Device device : devices_now()) {
    Backend& b = backend_of(device);
    const ts_profiler& p = *b.table().profiler;
    if (!p.push_range) continue;
    void* stream = b.stream(device.index);
    b.check(p.push_range(b.table().ctx, device.index, name, stream), "profiler.push_range");
    begun.push_back({device, stream});
  }
  return begun;
}

void end_device_range(const std::vector<DeviceRange>& range) {
  if (!g_on.load(std::memory_order_relaxed)) return; // ended with the profile
  for (auto at = range.rbegin(); at != range.rend(); ++at) {
    Backend& b = backend_of(at->device);
    b.check(b.table().profiler->pop_range(b.table().ctx, at->device.index, at->stream), "profiler.pop_range");
  }
}

} // namespace ts
