// Plain slots, streams, events and pinned memory of backends written in Python.
#include "python/devices/python_slots.h"

namespace ts::py {
namespace {

int stream_create(void* ctx, int32_t device, int32_t priority, void** stream) {
  return callback([&] {
    keep_handle(ctx, invoke(ctx, StreamCreate, number(device), number(priority)), "stream_create", stream);
    return TS_OK;
  });
}

template <Method M> void destroy(void* ctx, int32_t device, void* handle) {
  quietly([&] {
    PyRef owned = last_object(ctx, handle);
    if (self(ctx).methods[M]) invoke(ctx, M, number(device), owned);
  });
}

int event_create(void* ctx, int32_t device, uint32_t flags, void** event) {
  return callback([&] {
    PyRef timing = checked(PyBool_FromLong(flags & 1));
    keep_handle(ctx, invoke(ctx, EventCreate, number(device), timing), "event_create", event);
    return TS_OK;
  });
}

template <Method M> int with_two(void* ctx, int32_t device, void* first, void* second) {
  return callback([&] {
    invoke(ctx, M, number(device), object(ctx, first), object(ctx, second));
    return TS_OK;
  });
}

template <Method M> int query(void* ctx, int32_t device, void* handle, int32_t* done) {
  return callback([&] {
    int truth = PyObject_IsTrue(invoke(ctx, M, number(device), object(ctx, handle)).get());
    checked_status(truth);
    *done = truth;
    return TS_OK;
  });
}

int event_elapsed(void* ctx, int32_t device, void* begin, void* end, double* ms) {
  return callback([&] {
    *ms = PyFloat_AsDouble(invoke(ctx, EventElapsed, number(device), object(ctx, begin), object(ctx, end)).get());
    if (PyErr_Occurred()) throw_python();
    return TS_OK;
  });
}

// --- opening, and pinned memory ----------------------------------------------------------------------------------

PyRef address(const void* p) { return checked(PyLong_FromVoidPtr(const_cast<void*>(p))); }

int host_alloc(void* ctx, size_t bytes, void** out) {
  return callback([&] {
    PyRef made = invoke(ctx, HostAlloc, checked(PyLong_FromSize_t(bytes)));
    TS_CHECK_TYPE(PyLong_Check(made.get()), "host_alloc: expected an address as an int, got ", type_name(made.get()));
    *out = PyLong_AsVoidPtr(made.get());
    if (PyErr_Occurred()) throw_python();
    return TS_OK;
  });
}

void host_free(void* ctx, void* memory, size_t bytes) {
  quietly([&] { invoke(ctx, HostFree, address(memory), checked(PyLong_FromSize_t(bytes))); });
}

int copy_from_pinned(void* ctx, int32_t device, void* dst, int64_t offset, const void* src, size_t bytes,
                     void* stream) {
  return callback([&] {
    PyRef size = checked(PyLong_FromSize_t(bytes));
    invoke(ctx, CopyFromPinned, number(device), object(ctx, dst), number(offset), address(src), size,
           object(ctx, stream));
    return TS_OK;
  });
}

int copy_to_pinned(void* ctx, int32_t device, void* dst, const void* src, int64_t offset, size_t bytes, void* stream) {
  return callback([&] {
    PyRef size = checked(PyLong_FromSize_t(bytes));
    invoke(ctx, CopyToPinned, number(device), address(dst), object(ctx, const_cast<void*>(src)), number(offset), size,
           object(ctx, stream));
    return TS_OK;
  });
}

int host_register(void* ctx, void* memory, size_t bytes) {
  return callback([&] {
    PyRef said = invoke(ctx, HostRegister, address(memory), checked(PyLong_FromSize_t(bytes)));
    return said.get() == Py_NotImplemented ? TS_DECLINED : TS_OK;
  });
}

void host_unregister(void* ctx, void* memory, size_t bytes) {
  quietly([&] { invoke(ctx, HostUnregister, address(memory), checked(PyLong_FromSize_t(bytes))); });
}

// --- recorded launches -------------------------------------------------------------------------------------------

int capture_begin(void* ctx, int32_t device, void* stream) {
  return callback([&] {
    invoke(ctx, CaptureBegin, number(device), object(ctx, stream));
    return TS_OK;
  });
}

int capture_end(void* ctx, int32_t device, void* stream, void** recording) {
  return callback([&] {
    keep_handle(ctx, invoke(ctx, CaptureEnd, number(device), object(ctx, stream)), "capture_end", recording);
    return TS_OK;
  });
}

} // namespace

void fill_optional_slots(PythonBackend& b) {
  ts_backend& t = b.table;
  auto has = [&](Method m) { return static_cast<bool>(b.methods[m]); };
#define TS_FILL(id, name)                                                                                              \
  if (has(id)) t.name = Plain<id, decltype(t.name)>::run;
  TS_EACH_PLAIN_METHOD(TS_FILL)
#undef TS_FILL
  if (has(StreamCreate)) {
    t.stream_create = stream_create;
    t.stream_destroy = destroy<StreamDestroy>;
  }
  if (has(EventCreate)) {
    t.event_create = event_create;
    t.event_destroy = destroy<EventDestroy>;
  }
  if (has(EventQuery)) t.event_query = query<EventQuery>;
  if (has(EventElapsed)) t.event_elapsed = event_elapsed;
  if (has(StreamQuery)) t.stream_query = query<StreamQuery>;
  if (has(HostAlloc)) t.host_alloc = host_alloc;
  if (has(HostFree)) t.host_free = host_free;
  if (has(CopyFromPinned)) t.copy_from_pinned = copy_from_pinned;
  if (has(CopyToPinned)) t.copy_to_pinned = copy_to_pinned;
  if (has(HostRegister)) t.host_register = host_register;
  if (has(HostUnregister)) t.host_unregister = host_unregister;
  if (!has(CaptureBegin)) return;
  b.capture = {sizeof b.capture,
               capture_begin,
               has(CaptureEnd) ? capture_end : nullptr,
               has(CaptureReplay) ? with_two<CaptureReplay> : nullptr,
               destroy<CaptureDestroy>,
               b.capture_streams ? uint32_t{TS_CAPTURE_STREAMS} : 0,
               0};
  t.capture = &b.capture;
}

} // namespace ts::py
