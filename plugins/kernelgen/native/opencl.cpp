// The launcher of OpenCL kernels.
#include "launcher.h"
#include "opencl_recording.h"
#include "timed.h"
#include <algorithm>
#include <memory>
#include <mutex>

namespace ts::kernelgen {
namespace {

// The two functions of OpenCL that a launch needs, by their signatures in cl.h.
using SetArgument = int (*)(void* kernel, uint32_t index, size_t size, const void* value);
using Enqueue = int (*)(void* queue, void* kernel, uint32_t dims, const size_t* offset, const size_t* global,
                        const size_t* local, uint32_t n_events, void* const* events, void** event);

constexpr int kDeviceNotAvailable = -2;

struct Kernel {
  SetArgument set_argument;
  Enqueue enqueue;
  void* kernel;
  void* queue;      // of the default stream
  std::mutex mutex; // a cl_kernel holds one set of arguments
};

int launch(const ts_launch* l) {
  auto* k = static_cast<Kernel*>(l->kernel);
  size_t global[3], local[3];
  for (int axis = 0; axis < 3; ++axis) {
    local[axis] = l->group_size[axis];
    global[axis] = static_cast<size_t>(l->groups[axis]) * local[axis];
  }
  void* queue = l->stream ? l->stream : k->queue;
  if (recorded_queues.load(std::memory_order_acquire)) [[unlikely]]
    if (int status = record_launch(l, queue, k->kernel, global, local); status != TS_DECLINED) return status;
  std::lock_guard lock(k->mutex);
  for (int32_t i = 0; i < l->n_arguments; ++i) {
    const ts_launch_argument* a = TS_LAUNCH_ARGUMENT(l, i);
    if (int code = k->set_argument(k->kernel, static_cast<uint32_t>(i), a->size, a->value))
      return refused(l, "clSetKernelArg", code);
  }
  const bool timed = TimedLaunches::wanted(l, kOpenCL);
  void* event = nullptr;
  if (int code = k->enqueue(queue, k->kernel, 3, nullptr, global, local, 0, nullptr, timed ? &event : nullptr))
    return refused(l, "clEnqueueNDRangeKernel", code, code == kDeviceNotAvailable);
  if (event) TimedLaunches::add(l, kOpenCL, event, event);
  launches.fetch_add(1, std::memory_order_relaxed);
  return TS_OK;
}

} // namespace
} // namespace ts::kernelgen

// What a plan names as kernel; lives until the process ends.
TS_EXPORT void* tesserack_opencl_kernel(void* set_argument, void* enqueue, void* kernel, void* queue) {
  using namespace ts::kernelgen;
  auto made = std::make_unique<Kernel>();
  made->set_argument = reinterpret_cast<SetArgument>(set_argument);
  made->enqueue = reinterpret_cast<Enqueue>(enqueue);
  made->kernel = kernel;
  made->queue = queue;
  return made.release();
}

TS_EXPORT int tesserack_opencl_launch(const ts_launch* l) { return ts::kernelgen::launch(l); }

// Launches of profiled calls are timed from now on, or no more.
TS_EXPORT void tesserack_time_launches(int family, int on) {
  if (family >= 0 && family < ts::kernelgen::kFamilies) ts::kernelgen::TimedLaunches::on(family) = on != 0;
}
// The next timed launch of a device, as launcher.py reads it; 0: none is left. The events are the caller's.
struct TimedLaunchOut {
  char op[64];
  uint64_t number;
  void* stream;
  void* events[2];
};
TS_EXPORT int tesserack_timed_launch(int family, int32_t device, TimedLaunchOut* out) {
  ts::kernelgen::TimedLaunch one;
  if (!ts::kernelgen::TimedLaunches::take(family, device, one)) return 0;
  *out = {};
  one.op.copy(out->op, sizeof out->op - 1);
  out->number = one.number;
  out->stream = one.stream;
  std::copy_n(one.events, 2, out->events);
  return 1;
}
TS_EXPORT uint64_t tesserack_kernelgen_launches() { return ts::kernelgen::launches.load(); }
