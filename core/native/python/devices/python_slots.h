// What the slots of backends written in Python share: the methods behind them, and how they are called.
#pragma once
#include "python/devices/python_backend.h"
#include "python/types.h"

namespace ts::py {

// Methods of tesserack.backends.Backend that stand behind slots of the table.
enum Method {
  Probe,
  Properties,
  Alloc,
  Free,
  CopyFromHost,
  CopyToHost,
  CopyWithin,
  Synchronize,
  FindKernel,
  HostPointer,
  CopyPeer,
  StreamCreate,
  StreamDestroy,
  EventCreate,
  EventDestroy,
  EventRecord,
  EventQuery,
  EventSynchronize,
  EventElapsed,
  StreamWaitEvent,
  SetNumThreads,
  GetNumThreads,
  Shutdown,
  StreamQuery,
  Open,
  HostAlloc,
  HostFree,
  CopyFromPinned,
  CopyToPinned,
  CaptureBegin,
  CaptureEnd,
  CaptureReplay,
  CaptureDestroy,
  Trim,
  kMethods
};
inline constexpr const char* kMethodNames[kMethods] = {"_probe",
                                                       "_properties",
                                                       "alloc",
                                                       "free",
                                                       "copy_from_host",
                                                       "copy_to_host",
                                                       "copy_within",
                                                       "synchronize",
                                                       "_find_kernel",
                                                       "host_pointer",
                                                       "copy_peer",
                                                       "stream_create",
                                                       "stream_destroy",
                                                       "event_create",
                                                       "event_destroy",
                                                       "event_record",
                                                       "event_query",
                                                       "event_synchronize",
                                                       "event_elapsed",
                                                       "stream_wait_event",
                                                       "set_num_threads",
                                                       "get_num_threads",
                                                       "shutdown",
                                                       "stream_query",
                                                       "open",
                                                       "host_alloc",
                                                       "host_free",
                                                       "copy_from_pinned",
                                                       "copy_to_pinned",
                                                       "capture_begin",
                                                       "capture_end",
                                                       "capture_replay",
                                                       "capture_destroy",
                                                       "trim"};

struct PythonBackend : KernelOwner {
  PyRef methods[kMethods];
  std::string vendor, version;
  ts_backend table{};
  ts_capture capture{};
};
inline PythonBackend& self(void* ctx) { return *static_cast<PythonBackend*>(ctx); }

// Streams, events, opening and pinned memory, where the class has the methods.
void fill_stream_slots(PythonBackend& b);

inline PyRef number(long long v) { return checked(PyLong_FromLongLong(v)); }

inline PyRef object(void* ctx, void* handle) { return handle_ref(self(ctx), handle); }
template <class... Args> PyRef invoke(void* ctx, Method method, const Args&... args) {
  self(ctx).counters.slots.fetch_add(1, std::memory_order_relaxed);
  PyObject* list[] = {args.get()..., nullptr};
  return checked(PyObject_Vectorcall(self(ctx).methods[method].get(), list, sizeof...(args), nullptr));
}

// A handle that the core keeps: what the method returned.
inline void keep_handle(void* ctx, PyRef made, const char* what, void** out) {
  TS_CHECK_TYPE(made.get() != Py_None, what, " returned None; expected the handle of what it made");
  if (!self(ctx).raw_handles) {
    *out = made.release();
    return;
  }
  TS_CHECK_TYPE(PyLong_Check(made.get()), what, ": expected an int, since the backend sets raw_handles, got ",
                type_name(made.get()));
  *out = PyLong_AsVoidPtr(made.get());
  if (PyErr_Occurred()) throw_python();
  TS_CHECK_VALUE(*out, what, " returned 0, which stands for no handle");
}

// A handle that goes back to the method that ends it.
inline PyRef last_object(void* ctx, void* handle) {
  return self(ctx).raw_handles ? handle_ref(self(ctx), handle) : PyRef::steal(static_cast<PyObject*>(handle));
}

// There is nobody to tell of a failure here.
template <class F> void quietly(F&& f) {
  callback([&] {
    try {
      f();
    } catch (...) {
      set_error_from_exception();
      PyErr_WriteUnraisable(nullptr);
    }
    return TS_OK;
  });
}

} // namespace ts::py
