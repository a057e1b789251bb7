// What devices did, and when, by their own clocks: from the backends whose tables have a profiler.
#pragma once
#include "runtime/backend.h"

namespace ts {

struct DeviceActivity {
  int32_t kind; // TS_A_*
  Device device;
  std::string name;
  uint64_t call; // the number of the kernel call it belongs to; 0: of none
  uint64_t stream;
  int64_t begin, end; // nanoseconds of the steady clock
  int64_t value;
};

// Devices in use, and those that are opened until the stop. One profile at a time.
void start_device_profile();
// What they did since the start or the last time; waits for them.
std::vector<DeviceActivity> collect_device_profile();
void stop_device_profile();
void profile_opened_device(Backend& b, int index);

// A range that a program names: where it was begun, to be ended there.
struct DeviceRange {
  Device device;
  void* stream;
  uint64_t profile; // number of
};
std::vector<DeviceRange> begin_device_range(const char* name);
void end_device_range(const std::vector<DeviceRange>& range);

} // namespace ts
