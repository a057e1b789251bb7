// Launches that are profiled, with the driver's events that time them, until their backend asks.
#pragma once
#include "launcher.h"
#include <deque>
#include <mutex>
#include <string>

namespace ts::kernelgen {

struct TimedLaunch {
  std::string op;
  uint64_t number;
  void* stream;
  void* events[2]; // when it began and ended; of OpenCL one, which knows both
  int32_t device;
  int family;
};
enum Family { kOpenCL = 0, kCuda = 1, kFamilies = 2 };

class TimedLaunches {
public:
  // Whether this launch is to be timed: somebody profiles, and its backend reads the times.
  static bool wanted(const ts_launch* l, int family) {
    constexpr size_t told = offsetof(ts_launch, number) + sizeof(uint64_t);
    return l->struct_size >= told && l->number != 0 && on(family).load(std::memory_order_relaxed);
  }
  static std::atomic<bool>& on(int family) {
    static std::atomic<bool> values[kFamilies];
    return values[family];
  }
  static void add(const ts_launch* l, int family, void* begin, void* end) {
    TimedLaunch one{l->op ? l->op : "kernel", l->number, l->stream, {begin, end}, l->device_index, family};
    std::lock_guard lock(mutex());
    queue().push_back(std::move(one));
  }
  // The next one of a device; false: none is left.
  static bool take(int family, int32_t device, TimedLaunch& out) {
    std::lock_guard lock(mutex());
    for (auto at = queue().begin(); at != queue().end(); ++at) {
      if (at->device != device || at->family != family) continue;
      out = std::move(*at);
      queue().erase(at);
      return true;
    }
    return false;
  }

private:
  static std::mutex& mutex() {
    static auto* m = new std::mutex; // threads may outlive static destruction
    return *m;
  }
  static std::deque<TimedLaunch>& queue() {
    static auto* q = new std::deque<TimedLaunch>;
    return *q;
  }
};

} // namespace ts::kernelgen
