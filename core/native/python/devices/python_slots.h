// What the slots of backends written in Python share: the methods behind them, and how they are called.
#pragma once
#include "python/devices/python_backend.h"
#include "python/types.h"

namespace ts::py {

// Methods of tesserack.backends.Backend, each with its enumerator. Plain ones have the slot's name, take its arguments
// and return nothing: a slot of that kind is one line here. What is made, asked or measured has a function of its own.
// Its layout of these lists would change with each run of it.
// clang-format off
#define TS_EACH_PLAIN_METHOD(X)                                                                                        \
  X(EventRecord, event_record) X(EventSynchronize, event_synchronize) X(StreamWaitEvent, stream_wait_event)            \
  X(SetNumThreads, set_num_threads) X(Shutdown, shutdown) X(Open, open) X(Trim, trim)
#define TS_EACH_SERVICE_METHOD(X)                                                                                      \
  X(ProfileStart, profile_start) X(ProfileCollect, _profile_collect) X(ProfileStop, profile_stop)                      \
  X(ProfilePush, profile_push) X(ProfilePop, profile_pop) X(ExportMemory, export_memory)                               \
  X(ImportMemory, import_memory) X(ReleaseImported, release_imported) X(Identify, _identify) X(Link, _link)            \
  X(Recover, recover) X(HostRegister, host_register) X(HostUnregister, host_unregister) X(Claim, _claim)               \
  X(CompilePart, _compile_part) X(SerializePart, serialize_part) X(DeserializePart, _deserialize_part)
#define TS_EACH_METHOD(X)                                                                                              \
  X(Probe, _probe) X(Properties, _properties) X(Alloc, alloc) X(Free, free) X(CopyFromHost, copy_from_host)            \
  X(CopyToHost, copy_to_host) X(CopyWithin, copy_within) X(Synchronize, synchronize) X(FindKernel, _find_kernel)       \
  X(HostPointer, host_pointer) X(CopyPeer, copy_peer) X(StreamCreate, stream_create)                                   \
  X(StreamDestroy, stream_destroy) X(EventCreate, event_create) X(EventDestroy, event_destroy)                         \
  X(EventQuery, event_query) X(EventElapsed, event_elapsed) X(GetNumThreads, get_num_threads)                          \
  X(StreamQuery, stream_query) X(HostAlloc, host_alloc) X(HostFree, host_free) X(CopyFromPinned, copy_from_pinned)     \
  X(CopyToPinned, copy_to_pinned) X(CaptureBegin, capture_begin) X(CaptureEnd, capture_end)                            \
  X(CaptureReplay, capture_replay) X(CaptureDestroy, capture_destroy) TS_EACH_SERVICE_METHOD(X)                        \
  TS_EACH_PLAIN_METHOD(X)
// clang-format on

enum Method {
#define TS_ENUMERATOR(id, name) id,
  TS_EACH_METHOD(TS_ENUMERATOR)
#undef TS_ENUMERATOR
      kMethods
};
inline constexpr const char* kMethodNames[kMethods] = {
#define TS_NAME(id, name) #name,
    TS_EACH_METHOD(TS_NAME)
#undef TS_NAME
};

struct PythonBackend : KernelOwner {
  PyRef methods[kMethods];
  std::string vendor, version;
  bool capture_streams = false; // its recordings span streams
  ts_backend table{};
  ts_capture capture{};
  ts_profiler profiler{};
  ts_sharing sharing{};
  ts_compiler compiler{};
};
inline PythonBackend& self(void* ctx) { return *static_cast<PythonBackend*>(ctx); }

// Plain slots, streams, events and pinned memory, where the class has the methods.
void fill_optional_slots(PythonBackend& b);
// Profiling, shared memory, identity and recovery, likewise.
void fill_service_slots(PythonBackend& b);
// Graph compilers, likewise.
void fill_compiler_slots(PythonBackend& b);

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

// A plain slot: its arguments as objects, handles as what they stand for.
inline PyRef argument(void*, int32_t v) { return number(v); }
inline PyRef argument(void* ctx, void* handle) { return object(ctx, handle); }
template <Method M, class Slot> struct Plain;
template <Method M, class... Args> struct Plain<M, int (*)(void*, Args...)> {
  static int run(void* ctx, Args... args) {
    return callback([&] {
      invoke(ctx, M, argument(ctx, args)...);
      return TS_OK;
    });
  }
};
template <Method M, class... Args> struct Plain<M, void (*)(void*, Args...)> {
  static void run(void* ctx, Args... args) {
    quietly([&] { invoke(ctx, M, argument(ctx, args)...); });
  }
};

} // namespace ts::py
