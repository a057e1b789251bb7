// Profiling, shared memory, identity and recovery of backends written in Python.
#include "python/devices/python_slots.h"
#include <cstring>

namespace ts::py {
namespace {

// --- profiling ---------------------------------------------------------------------------------------------------

template <Method M> int of_device(void* ctx, int32_t device) {
  return callback([&] {
    invoke(ctx, M, number(device));
    return TS_OK;
  });
}

// Tuples of (kind, name, call, stream, begin, end, value).
int profile_collect(void* ctx, int32_t device, void (*take)(void* to, const ts_activity* activity), void* to) {
  return callback([&] {
    PyRef list = invoke(ctx, ProfileCollect, number(device));
    TS_CHECK_TYPE(PyList_Check(list.get()), "profile_collect: expected a list, got ", type_name(list.get()));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k) {
      ts_activity a{};
      a.struct_size = sizeof a;
      unsigned long long call = 0, stream = 0;
      long long begin = 0, end = 0, value = 0;
      if (!PyArg_ParseTuple(PyList_GET_ITEM(list.get(), k), "isKKLLL:profile_collect", &a.kind, &a.name, &call, &stream,
                            &begin, &end, &value))
        throw_python();
      a.call = call;
      a.stream = reinterpret_cast<void*>(static_cast<uintptr_t>(stream));
      a.begin = begin;
      a.end = end;
      a.value = value;
      take(to, &a);
    }
    return TS_OK;
  });
}

int profile_push(void* ctx, int32_t device, const char* name, void* stream) {
  return callback([&] {
    invoke(ctx, ProfilePush, number(device), to_python(std::string(name)), object(ctx, stream));
    return TS_OK;
  });
}

int profile_pop(void* ctx, int32_t device, void* stream) {
  return callback([&] {
    invoke(ctx, ProfilePop, number(device), object(ctx, stream));
    return TS_OK;
  });
}

// --- memory shared between processes -------------------------------------------------------------------------------

int export_memory(void* ctx, int32_t device, void* handle, void* name, size_t* bytes) {
  return callback([&] {
    PyRef told = invoke(ctx, ExportMemory, number(device), object(ctx, handle));
    if (told.get() == Py_NotImplemented) return static_cast<int>(TS_DECLINED);
    char* text = nullptr;
    Py_ssize_t length = 0;
    checked_status(PyBytes_AsStringAndSize(told.get(), &text, &length));
    auto size = static_cast<size_t>(length);
    if (size <= *bytes) std::memcpy(name, text, size);
    *bytes = size;
    return static_cast<int>(TS_OK);
  });
}

int import_memory(void* ctx, int32_t device, const void* name, size_t bytes, void** handle) {
  return callback([&] {
    PyRef text = checked(PyBytes_FromStringAndSize(static_cast<const char*>(name), static_cast<Py_ssize_t>(bytes)));
    keep_handle(ctx, invoke(ctx, ImportMemory, number(device), text), "import_memory", handle);
    return TS_OK;
  });
}

void release_imported(void* ctx, int32_t device, void* handle) {
  quietly([&] { invoke(ctx, ReleaseImported, number(device), last_object(ctx, handle)); });
}

// --- what the device is ----------------------------------------------------------------------------------------------

int identify(void* ctx, int32_t device, ts_identity* out) {
  return callback([&] {
    PyRef told = invoke(ctx, Identify, number(device));
    const char *uuid = nullptr, *bus = nullptr;
    Py_ssize_t length = 0;
    int node = -1;
    if (!PyArg_ParseTuple(told.get(), "y#si:identify", &uuid, &length, &bus, &node)) throw_python();
    TS_CHECK_VALUE(length == sizeof out->uuid && std::strlen(bus) < sizeof out->bus,
                   "identify: expected a uuid of 16 bytes and a bus of at most 31, got ", length, " and ",
                   std::strlen(bus));
    std::memcpy(out->uuid, uuid, sizeof out->uuid);
    std::snprintf(out->bus, sizeof out->bus, "%s", bus);
    out->numa_node = node;
    return TS_OK;
  });
}

int link_between(void* ctx, int32_t device, int32_t peer, ts_link* out) {
  return callback([&] {
    PyRef told = invoke(ctx, Link, number(device), number(peer));
    int direct = 0;
    unsigned long long bandwidth = 0;
    if (!PyArg_ParseTuple(told.get(), "pK:link", &direct, &bandwidth)) throw_python();
    out->flags = direct ? uint32_t{TS_LINK_DIRECT} : 0U;
    out->bandwidth = bandwidth;
    return TS_OK;
  });
}

} // namespace

void fill_service_slots(PythonBackend& b) {
  auto has = [&](Method m) { return static_cast<bool>(b.methods[m]); };
  if (has(ProfileStart)) {
    b.profiler = {sizeof b.profiler,
                  of_device<ProfileStart>,
                  has(ProfileCollect) ? profile_collect : nullptr,
                  has(ProfileStop) ? of_device<ProfileStop> : nullptr,
                  has(ProfilePush) ? profile_push : nullptr,
                  has(ProfilePop) ? profile_pop : nullptr};
    b.table.profiler = &b.profiler;
  }
  if (has(ExportMemory)) {
    b.sharing = {sizeof b.sharing, export_memory, has(ImportMemory) ? import_memory : nullptr,
                 has(ReleaseImported) ? release_imported : nullptr};
    b.table.sharing = &b.sharing;
  }
  if (has(Identify)) b.table.identify = identify;
  if (has(Link)) b.table.link = link_between;
  if (has(Recover)) b.table.recover = of_device<Recover>;
}

} // namespace ts::py
