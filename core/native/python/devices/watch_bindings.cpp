// What watches kernels: the profiler and recordings of a device's work, and what every call asks of a kernel.
#include "dispatch/launch.h"
#include "dispatch/recording.h"
#include "ops/pointwise/expr.h"
#include "python/bound.h"
#include "python/devices/runtime_bindings.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/services/device_profile.h"

NB_MAKE_OPAQUE(std::vector<ts::DeviceRange>)

namespace ts::py_runtime {
namespace {

// (operator, device, thread, start, end, elements, number): times in nanoseconds of time.perf_counter_ns's clock.
nb::list event_tuples(const std::vector<KernelEvent>& events) {
  nb::list all;
  for (const KernelEvent& e : events)
    all.append(nb::make_tuple(e.op, to_string(e.device), e.thread, e.start, e.end, e.elements, e.number));
  return all;
}

// (kind, name, device, stream, start, end, value, number of the kernel call), times as above.
nb::list activity_tuples(const std::vector<DeviceActivity>& activities) {
  nb::list all;
  for (const DeviceActivity& a : activities) {
    nb::object name = ts::py::given_back(ts::py::to_python(a.name));
    all.append(nb::make_tuple(a.kind, name, to_string(a.device), a.stream, a.begin, a.end, a.value, a.call));
  }
  return all;
}

// The kernel itself, which the core does not ask for what it knows without: products over no elements. False where it
// declines.
bool run_matmul_kernel(const nb::object& out, const nb::object& a, const nb::object& b, const nb::object& add) {
  static const KernelId kMatmul("matmul");
  constexpr const char* op = "matmul";
  const Tensor &y = ts::py::expect_tensor(out.ptr(), op), &x = ts::py::expect_tensor(a.ptr(), op),
               &z = ts::py::expect_tensor(b.ptr(), op);
  TS_CHECK(y.ndim() == 2 && x.ndim() == 2 && z.ndim() == 2 && x.size(0) == y.size(0) && z.size(1) == y.size(1) &&
               x.size(1) == z.size(0),
           op, ": expected matrices of which the first is the product of the others, got ", y.sizes(), ", ", x.sizes(),
           " and ", z.sizes());
  Launch launch(kMatmul, y.device());
  launch.out(y).in(x).in(z);
  if (!add.is_none()) {
    const Tensor& w = ts::py::expect_tensor(add.ptr(), op);
    TS_CHECK(w.ndim() == 2 && w.size(0) == y.size(0) && w.size(1) == y.size(1), op, ": expected a third of the sizes ",
             y.sizes(), ", got ", w.sizes());
    launch.in(w);
  }
  return launch.compute(accumulate_type(y.dtype())).run();
}

} // namespace

void define_watch(nb::module_& m) {
  m.def("_run_matmul_kernel", run_matmul_kernel);
  m.def("_start_kernel_profile", start_kernel_profile);
  m.def("_stop_kernel_profile", [] { return event_tuples(stop_kernel_profile()); });
  m.def("_take_kernel_events", [] { return event_tuples(take_kernel_events()); });
  m.def("_start_device_profile", start_device_profile);
  m.def("_take_device_activities", [] { return activity_tuples(collect_device_profile()); });
  m.def("_stop_device_profile", stop_device_profile);
  nb::class_<std::vector<DeviceRange>>(m, "_DeviceRange", nb::is_weak_referenceable()).def("end", end_device_range);
  m.def("_begin_device_range", [](const std::string& name) { return begin_device_range(name.c_str()); });
  m.def("_set_call_flags", [](uint32_t flags) { call_flags.store(flags); });
  m.def("_set_determinism", [](int asked, bool fill) {
    determinism.store(static_cast<Determinism>(asked));
    fills_new_memory.store(fill);
  });
  m.def("_is_recording", [] { return RecordingState::current() != nullptr; });
  m.def("_call_flags", [] { return call_flags.load(); });
  m.def("_instructions", [] {
    std::vector<std::string> names;
    for (int k = 0; k < TS_NUM_INSTRUCTIONS; ++k)
      names.emplace_back(pointwise::instruction_name(static_cast<uint16_t>(k)));
    return names;
  });
  nb::class_<Recording>(m, "_Recording", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Recording* made, const nb::object& device, uint64_t pool) {
            new (made) Recording(ts::py::expect_device(device.ptr(), "record"), pool);
          },
          nb::arg("device"), nb::arg("pool") = 0)
      .def("begin", &Recording::begin)
      .def("end", &Recording::end, nb::arg("run") = true)
      .def("cancel", &Recording::cancel)
      .def("replay", &Recording::replay)
      .def_prop_ro("steps", &Recording::steps)
      .def_prop_ro("prepared", &Recording::prepared)
      .def_prop_ro("by_launches", [](const Recording& c) { return c.by_launches; });
}

} // namespace ts::py_runtime
