// tesserack.Stream and tesserack.Event, and the thread's current stream.
#include "python/bound.h"
#include "python/devices/runtime_bindings.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include "runtime/stream.h"
#include "runtime/transfer_guard.h"
#include <nanobind/stl/shared_ptr.h>

namespace ts::py {
namespace {

using StreamPtr = std::shared_ptr<Stream>;

Device device_or_default(const nb::object& o) {
  Device d = o.is_none() ? default_device() : expect_device(o.ptr(), "device");
  TS_CHECK(!d.is_meta(), "Stream: meta tensors have no data, and no streams");
  return d;
}
nb::object device_of(Device d) { return given_back(checked(device_object(d))); }

// Waiting must not stop other Python threads; a callback written in Python takes the lock itself.
template <class F> void without_interpreter(F&& f) {
  SuspendInterpreter suspend(kSuspendThreshold + 1);
  f();
}

void wait_event(const Stream& s, const Event& e) {
  without_interpreter([&] { e.wait_on(s); });
}
void wait_stream(const Stream& s, const Stream& other) {
  Event e(other.device(), false);
  e.record(other);
  wait_event(s, e);
}

StreamPtr stream_arg(const nb::object& o, const char* what) {
  TS_CHECK_TYPE(nb::isinstance<Stream>(o), what, ": expected a Stream, got ", type_name(o.ptr()));
  return nb::cast<StreamPtr>(o);
}

Event& event_arg(const nb::object& o, const char* what) {
  TS_CHECK_TYPE(nb::isinstance<Event>(o), what, ": expected an Event, got ", type_name(o.ptr()));
  return nb::cast<Event&>(o);
}

// A new event where none is given, as in PyTorch.
nb::object record_event(const Stream& s, const nb::object& event) {
  nb::object recorded = event;
  if (event.is_none()) recorded = nb::cast(new Event(s.device(), false), nb::rv_policy::take_ownership);
  Event& e = event_arg(recorded, "record_event");
  without_interpreter([&] { e.record(s); });
  return recorded;
}

// What this thread's streams were before blocks that it has entered.
std::vector<StreamPtr>& entered() {
  thread_local std::vector<StreamPtr> before;
  return before;
}

const StreamPtr& enter(const StreamPtr& s) {
  entered().push_back(current_stream(s->device()));
  set_current_stream(s);
  return s;
}

void leave(const Stream&, const nb::args&) {
  TS_CHECK(!entered().empty(), "Stream.__exit__: this thread has entered no stream");
  set_current_stream(entered().back());
  entered().pop_back();
}

// They stand for something of this process. What is inherited would make an empty object.
void refuse_pickling(const nb::object& self, int) {
  raise(PyExc_TypeError, std::string("cannot pickle '") + type_name(self.ptr()) + "' object");
}

void define_streams(nb::module_& m) {
  nb::class_<Stream>(m, "Stream", nb::is_weak_referenceable(),
                     "A queue of work on a device: what is given to one stream runs in order.")
      .def(nb::new_([](const nb::object& device, int priority) {
             return Stream::make(device_or_default(device), priority);
           }),
           nb::arg("device") = nb::none(), nb::arg("priority") = 0)
      .def_prop_ro("device", [](const Stream& s) { return device_of(s.device()); })
      .def_prop_ro("stream_id", [](const Stream& s) { return reinterpret_cast<uintptr_t>(s.handle()); })
      .def(
          "synchronize", [](const Stream& s) { without_interpreter([&] { s.synchronize(); }); },
          "Wait until everything given to the stream is done.")
      .def("query", &Stream::query, "Whether everything given to the stream is done.")
      .def(
          "wait_event", [](const Stream& s, const nb::object& e) { wait_event(s, event_arg(e, "wait_event")); },
          nb::arg("event"), "Later work of the stream waits for the event.")
      .def(
          "wait_stream", [](const Stream& s, const nb::object& o) { wait_stream(s, *stream_arg(o, "wait_stream")); },
          nb::arg("stream"), "Later work waits for what the other stream has been given.")
      .def("record_event", record_event, nb::arg("event") = nb::none(),
           "Mark in an event, by default a new one, what the stream has been given so far; returns the event.")
      .def("__enter__", enter, "This thread's work on the device goes to the stream until the block ends.")
      .def("__exit__", leave)
      .def("__reduce_ex__", refuse_pickling, nb::arg("protocol"))
      .def("__reduce__", [](const nb::object& self) { refuse_pickling(self, 0); })
      .def("__eq__",
           [](const Stream& a, const nb::object& o) {
             if (!nb::isinstance<Stream>(o)) return false;
             const Stream& b = nb::cast<const Stream&>(o);
             return a.device() == b.device() && a.handle() == b.handle();
           })
      .def("__hash__",
           [](const Stream& s) { return std::hash<void*>()(s.handle()) ^ static_cast<size_t>(s.device().pack()); })
      .def("__repr__", [](const Stream& s) {
        return concat("<tesserack.Stream device=", s.device(), " id=", reinterpret_cast<uintptr_t>(s.handle()), ">");
      });
}

void define_events(nb::module_& m) {
  nb::class_<Event>(m, "Event", nb::is_weak_referenceable(),
                    "A mark in a stream, to wait for and to measure time between.")
      .def(
          "__init__",
          [](Event* made, const nb::object& device, const nb::object& timing) {
            const int on = PyObject_IsTrue(timing.ptr());
            checked_status(on);
            new (made) Event(device_or_default(device), on == 1);
          },
          nb::arg("device") = nb::none(), nb::arg("enable_timing") = false)
      .def_prop_ro("device", [](const Event& e) { return device_of(e.device()); })
      .def("__reduce_ex__", refuse_pickling, nb::arg("protocol"))
      .def("__reduce__", [](const nb::object& self) { refuse_pickling(self, 0); })
      .def(
          "record",
          [](Event& e, const nb::object& stream) {
            StreamPtr s = stream.is_none() ? current_stream(e.device()) : stream_arg(stream, "Event.record");
            without_interpreter([&] { e.record(*s); });
          },
          nb::arg("stream") = nb::none(), "Mark what the stream has been given so far; the current one by default.")
      .def(
          "wait",
          [](const Event& e, const nb::object& stream) {
            StreamPtr s = stream.is_none() ? current_stream(e.device()) : stream_arg(stream, "Event.wait");
            wait_event(*s, e);
          },
          nb::arg("stream") = nb::none(), "Later work of the stream waits for the event.")
      .def("query", &Event::query, "Whether the marked work is done.")
      .def(
          "synchronize", [](const Event& e) { without_interpreter([&] { e.synchronize(); }); },
          "Wait until the marked work is done.")
      .def(
          "elapsed_time",
          [](const Event& e, const nb::object& end) { return e.elapsed_ms(event_arg(end, "elapsed_time")); },
          nb::arg("end_event"), "Milliseconds between this event and a later one; both made with enable_timing=True.");
}

} // namespace

void init_streams(PyObject* module) {
  auto m = nb::borrow<nb::module_>(module);
  define_streams(m);
  define_events(m);
  m.def(
      "current_stream", [](const nb::object& device) { return current_stream(device_or_default(device)); },
      nb::arg("device") = nb::none(), "The stream this thread gives its work on the device to.");
  m.def(
      "default_stream", [](const nb::object& device) { return Stream::default_of(device_or_default(device)); },
      nb::arg("device") = nb::none(), "The stream work goes to unless another was chosen.");
  m.def(
      "set_stream", [](const nb::object& s) { set_current_stream(stream_arg(s, "set_stream")); }, nb::arg("stream"),
      "Make a stream the current one of this thread.");
  m.def("_external_stream", [](const nb::object& device, uintptr_t handle) {
    return Stream::external(device_or_default(device), reinterpret_cast<void*>(handle));
  });
  m.def("_record_stream", [](const nb::object& tensor, const nb::object& stream) {
    Storage* s = expect_tensor(tensor.ptr(), "record_stream")->storage;
    std::shared_ptr<Stream> given = stream_arg(stream, "record_stream");
    TS_CHECK(!s || given->device() == s->device, "record_stream: expected a stream of ", s->device, ", got one of ",
             given->device());
    if (s) backend_of(s->device).allocator(s->device.index).record_stream(*s, given->handle());
  });
  m.def("_transfer_guard", [](int kind, int mode) {
    auto k = static_cast<Transfer>(kind);
    int old = static_cast<int>(guard_mode(k));
    set_guard_mode(k, static_cast<GuardMode>(mode));
    return old;
  });
}

} // namespace ts::py
