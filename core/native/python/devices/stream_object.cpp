// tesserack.Stream and tesserack.Event, and the thread's current stream.
#include <pybind11/pybind11.h>

#include "python/devices/runtime_bindings.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include "runtime/stream.h"
#include "runtime/transfer_guard.h"

namespace pb = pybind11;

namespace ts::py {
namespace {

using StreamPtr = std::shared_ptr<Stream>;

Device device_or_default(const pb::object& o) {
  Device d = o.is_none() ? default_device() : expect_device(o.ptr(), "device");
  TS_CHECK(!d.is_meta(), "Stream: meta tensors have no data, and no streams");
  return d;
}
pb::object device_of(Device d) { return pb::reinterpret_steal<pb::object>(checked(device_object(d)).release()); }

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

StreamPtr stream_arg(const pb::object& o, const char* what) {
  TS_CHECK_TYPE(pb::isinstance<Stream>(o), what, ": expected a Stream, got ", type_name(o.ptr()));
  return o.cast<StreamPtr>();
}

std::shared_ptr<Event> event_arg(const pb::object& o, const char* what) {
  TS_CHECK_TYPE(pb::isinstance<Event>(o), what, ": expected an Event, got ", type_name(o.ptr()));
  return o.cast<std::shared_ptr<Event>>();
}

// A new event where none is given, as in PyTorch.
std::shared_ptr<Event> record_event(const Stream& s, const pb::object& event) {
  auto e = event.is_none() ? std::make_shared<Event>(s.device(), false) : event_arg(event, "record_event");
  without_interpreter([&] { e->record(s); });
  return e;
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

void leave(const Stream&, const pb::args&) {
  TS_CHECK(!entered().empty(), "Stream.__exit__: this thread has entered no stream");
  set_current_stream(entered().back());
  entered().pop_back();
}

// They stand for something of this process. What pybind11 inherits would end it: it makes an empty base object.
void refuse_pickling(const pb::object& self, int) {
  raise(PyExc_TypeError, std::string("cannot pickle '") + type_name(self.ptr()) + "' object");
}

void define_streams(pb::module_& m) {
  pb::class_<Stream, StreamPtr>(m, "Stream", pb::module_local(),
                                "A queue of work on a device: what is given to one stream runs in order.")
      .def(pb::init([](const pb::object& device, int priority) {
             return Stream::make(device_or_default(device), priority);
           }),
           pb::arg("device") = pb::none(), pb::arg("priority") = 0)
      .def_property_readonly("device", [](const Stream& s) { return device_of(s.device()); })
      .def_property_readonly("stream_id", [](const Stream& s) { return reinterpret_cast<uintptr_t>(s.handle()); })
      .def(
          "synchronize", [](const Stream& s) { without_interpreter([&] { s.synchronize(); }); },
          "Wait until everything given to the stream is done.")
      .def("query", &Stream::query, "Whether everything given to the stream is done.")
      .def(
          "wait_event", [](const Stream& s, const pb::object& e) { wait_event(s, *event_arg(e, "wait_event")); },
          pb::arg("event"), "Later work of the stream waits for the event.")
      .def(
          "wait_stream", [](const Stream& s, const pb::object& o) { wait_stream(s, *stream_arg(o, "wait_stream")); },
          pb::arg("stream"), "Later work waits for what the other stream has been given.")
      .def("record_event", record_event, pb::arg("event") = pb::none(),
           "Mark in an event, by default a new one, what the stream has been given so far; returns the event.")
      .def("__enter__", enter, "This thread's work on the device goes to the stream until the block ends.")
      .def("__exit__", leave)
      .def("__reduce_ex__", refuse_pickling, pb::arg("protocol"))
      .def("__reduce__", [](const pb::object& self) { refuse_pickling(self, 0); })
      .def("__eq__",
           [](const Stream& a, const pb::object& o) {
             if (!pb::isinstance<Stream>(o)) return false;
             const Stream& b = o.cast<const Stream&>();
             return a.device() == b.device() && a.handle() == b.handle();
           })
      .def("__hash__",
           [](const Stream& s) { return std::hash<void*>()(s.handle()) ^ static_cast<size_t>(s.device().pack()); })
      .def("__repr__", [](const Stream& s) {
        return concat("<tesserack.Stream device=", s.device(), " id=", reinterpret_cast<uintptr_t>(s.handle()), ">");
      });
}

void define_events(pb::module_& m) {
  pb::class_<Event, std::shared_ptr<Event>>(m, "Event", pb::module_local(),
                                            "A mark in a stream, to wait for and to measure time between.")
      .def(pb::init([](const pb::object& device, bool timing) {
             return std::make_shared<Event>(device_or_default(device), timing);
           }),
           pb::arg("device") = pb::none(), pb::arg("enable_timing") = false)
      .def_property_readonly("device", [](const Event& e) { return device_of(e.device()); })
      .def("__reduce_ex__", refuse_pickling, pb::arg("protocol"))
      .def("__reduce__", [](const pb::object& self) { refuse_pickling(self, 0); })
      .def(
          "record",
          [](Event& e, const pb::object& stream) {
            StreamPtr s = stream.is_none() ? current_stream(e.device()) : stream_arg(stream, "Event.record");
            without_interpreter([&] { e.record(*s); });
          },
          pb::arg("stream") = pb::none(), "Mark what the stream has been given so far; the current one by default.")
      .def(
          "wait",
          [](const Event& e, const pb::object& stream) {
            StreamPtr s = stream.is_none() ? current_stream(e.device()) : stream_arg(stream, "Event.wait");
            wait_event(*s, e);
          },
          pb::arg("stream") = pb::none(), "Later work of the stream waits for the event.")
      .def("query", &Event::query, "Whether the marked work is done.")
      .def(
          "synchronize", [](const Event& e) { without_interpreter([&] { e.synchronize(); }); },
          "Wait until the marked work is done.")
      .def(
          "elapsed_time",
          [](const Event& e, const pb::object& end) { return e.elapsed_ms(*event_arg(end, "elapsed_time")); },
          pb::arg("end_event"), "Milliseconds between this event and a later one; both made with enable_timing=True.");
}

} // namespace

void init_streams(PyObject* module) {
  auto m = pb::reinterpret_borrow<pb::module_>(module);
  define_streams(m);
  define_events(m);
  m.def(
      "current_stream", [](const pb::object& device) { return current_stream(device_or_default(device)); },
      pb::arg("device") = pb::none(), "The stream this thread gives its work on the device to.");
  m.def(
      "default_stream", [](const pb::object& device) { return Stream::default_of(device_or_default(device)); },
      pb::arg("device") = pb::none(), "The stream work goes to unless another was chosen.");
  m.def(
      "set_stream", [](const pb::object& s) { set_current_stream(stream_arg(s, "set_stream")); }, pb::arg("stream"),
      "Make a stream the current one of this thread.");
  m.def("_external_stream", [](const pb::object& device, uintptr_t handle) {
    return Stream::external(device_or_default(device), reinterpret_cast<void*>(handle));
  });
  m.def("_record_stream", [](const pb::object& tensor, const pb::object& stream) {
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
