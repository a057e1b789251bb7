#include "python/devices/python_slots.h"
#include "runtime/backend.h"
#include <cstring>
#include <map>

namespace ts::py {
namespace {

// By name, kept for the life of the process.
struct Registered {
  PyObject* instance;
  KernelOwner* owner;
};
std::map<std::string, Registered>& python_backends() {
  static auto* all = new std::map<std::string, Registered>;
  return *all;
}

// --- values for Python -------------------------------------------------------------------------------------------

// Whether the handles of this backend are Python objects.
bool is_object(const char* backend) {
  auto found = python_backends().find(backend);
  return found != python_backends().end() && !found->second.owner->raw_handles;
}

// Host memory lent for the length of one call.
class LentMemory {
public:
  LentMemory(void* memory, size_t bytes, int access)
      : view_(checked(PyMemoryView_FromMemory(static_cast<char*>(memory), static_cast<Py_ssize_t>(bytes), access))) {}
  PyObject* get() const { return view_.get(); }
  void take_back(const char* what) {
    // NumPy holds a second view of the same buffer, which releasing the first one does not notice.
    bool alone = reinterpret_cast<PyMemoryViewObject*>(view_.get())->mbuf->exports == 1;
    PyRef done = PyRef::steal(PyObject_CallMethod(view_.get(), "release", nullptr));
    if (done && alone) return;
    PyErr_Clear();
    fail(ErrorKind::Runtime, what, " kept a view of host memory that was lent for the call alone; copy the bytes");
  }

private:
  PyRef view_;
};

int64_t to_int(const PyRef& o) {
  long long v = PyLong_AsLongLong(o.get());
  if (v == -1 && PyErr_Occurred()) throw_python();
  return v;
}

// --- runtime slots -----------------------------------------------------------------------------------------------

int probe(void* ctx, int32_t* count, char* reason, size_t capacity) {
  return callback([&] {
    PyRef answer = invoke(ctx, Probe);
    const char* text = nullptr;
    if (!PyArg_ParseTuple(answer.get(), "is:probe", count, &text)) throw_python();
    std::snprintf(reason, capacity, "%s", text);
    return TS_OK;
  });
}

int properties(void* ctx, int32_t device, ts_properties* out) {
  return callback([&] {
    PyRef answer = invoke(ctx, Properties, number(device));
    const char* name = nullptr;
    unsigned long long total = 0, available = 0, dtypes = 0, largest = 0;
    int max_ndim = 0, units = 0;
    unsigned int alignment = 0, flags = 0;
    unsigned long long words[TS_INSTRUCTION_WORDS];
    static_assert(TS_INSTRUCTION_WORDS == 4);
    if (!PyArg_ParseTuple(answer.get(), "sKKKiiKII(KKKK):properties", &name, &total, &available, &dtypes, &max_ndim,
                          &units, &largest, &alignment, &flags, &words[0], &words[1], &words[2], &words[3]))
      throw_python();
    std::snprintf(out->name, sizeof out->name, "%s", name);
    out->total_memory = total;
    out->free_memory = available;
    out->dtypes = dtypes;
    out->max_ndim = max_ndim;
    out->compute_units = units;
    out->max_allocation = largest;
    out->alignment = alignment;
    out->flags = flags;
    std::copy(std::begin(words), std::end(words), out->instructions);
    return TS_OK;
  });
}

int alloc(void* ctx, int32_t device, size_t bytes, void* stream, void** handle) {
  return callback([&] {
    PyRef size = checked(PyLong_FromSize_t(bytes));
    keep_handle(ctx, invoke(ctx, Alloc, number(device), size, object(ctx, stream)), "alloc", handle);
    return TS_OK;
  });
}

void release_handle(void* ctx, int32_t device, void* handle, size_t bytes, void* stream) {
  quietly([&] {
    PyRef owned = last_object(ctx, handle);
    PyRef size = checked(PyLong_FromSize_t(bytes));
    if (self(ctx).methods[Free]) invoke(ctx, Free, number(device), owned, size, object(ctx, stream));
  });
}

int copy_from_host(void* ctx, int32_t device, void* dst, int64_t offset, const void* src, size_t bytes, void* stream) {
  return callback([&] {
    LentMemory memory(const_cast<void*>(src), bytes, PyBUF_READ);
    invoke(ctx, CopyFromHost, number(device), object(ctx, dst), number(offset), memory, object(ctx, stream));
    memory.take_back("copy_from_host");
    return TS_OK;
  });
}

int copy_to_host(void* ctx, int32_t device, void* dst, const void* src, int64_t offset, size_t bytes, void* stream) {
  return callback([&] {
    LentMemory memory(dst, bytes, PyBUF_WRITE);
    invoke(ctx, CopyToHost, number(device), memory, object(ctx, const_cast<void*>(src)), number(offset),
           object(ctx, stream));
    memory.take_back("copy_to_host");
    return TS_OK;
  });
}

int copy_within(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, int64_t src_offset,
                size_t bytes, void* stream) {
  return callback([&] {
    PyRef size = checked(PyLong_FromSize_t(bytes));
    invoke(ctx, CopyWithin, number(device), object(ctx, dst), number(dst_offset), object(ctx, const_cast<void*>(src)),
           number(src_offset), size, object(ctx, stream));
    return TS_OK;
  });
}

int synchronize_stream(void* ctx, int32_t device, void* stream) {
  return callback([&] {
    invoke(ctx, Synchronize, number(device), object(ctx, stream));
    return TS_OK;
  });
}

int get_kernel(void* ctx, int32_t device, const char* op, ts_kernel* out) {
  return callback([&] {
    PyRef record = invoke(ctx, FindKernel, to_python(std::string(op)), number(device));
    if (record.get() == Py_None) return static_cast<int>(TS_DECLINED);
    fill_kernel(record.get(), self(ctx), out);
    return static_cast<int>(TS_OK);
  });
}

void* host_pointer(void* ctx, int32_t device, void* handle) {
  void* address = nullptr;
  quietly([&] {
    PyRef answer = invoke(ctx, HostPointer, number(device), object(ctx, handle));
    if (answer.get() != Py_None) address = PyLong_AsVoidPtr(answer.get());
    if (PyErr_Occurred()) throw_python();
  });
  return address;
}

int copy_peer(void* ctx, int32_t device, void* dst, int64_t dst_offset, const char* src_backend, int32_t src_device,
              const void* src, int64_t src_offset, size_t bytes, void* stream) {
  return callback([&] {
    void* handle = const_cast<void*>(src);
    PyRef source =
        is_object(src_backend) ? PyRef::borrow(static_cast<PyObject*>(handle)) : checked(PyLong_FromVoidPtr(handle));
    PyRef size = checked(PyLong_FromSize_t(bytes));
    PyRef done =
        invoke(ctx, CopyPeer, number(device), object(ctx, dst), number(dst_offset), to_python(std::string(src_backend)),
               number(src_device), source, number(src_offset), size, object(ctx, stream));
    return static_cast<int>(done.get() == Py_NotImplemented ? TS_DECLINED : TS_OK);
  });
}

int32_t get_num_threads(void* ctx) {
  int32_t n = 1;
  quietly([&] { n = static_cast<int32_t>(to_int(invoke(ctx, GetNumThreads))); });
  return n;
}

// --- registration ------------------------------------------------------------------------------------------------

std::string text_attribute(PyObject* backend, const char* name) {
  PyRef value = checked(PyObject_GetAttrString(backend, name));
  TS_CHECK_TYPE(PyUnicode_Check(value.get()), "Backend.", name, ": expected str, got ", type_name(value.get()));
  return to_utf8(value.get());
}

bool true_attribute(PyObject* backend, const char* name) {
  int truth = PyObject_IsTrue(checked(PyObject_GetAttrString(backend, name)).get());
  checked_status(truth);
  return truth;
}

void find_methods(PyObject* backend, PythonBackend& b) {
  for (int m = 0; m < kMethods; ++m) {
    PyObject* found = PyObject_GetAttrString(backend, kMethodNames[m]);
    if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) {
      PyErr_Clear(); // an optional one, as None is
      continue;
    }
    PyRef method = checked(found);
    if (method.get() == Py_None) continue;
    TS_CHECK_TYPE(PyCallable_Check(method.get()), "Backend.", kMethodNames[m], ": expected a method, got ",
                  type_name(method.get()));
    b.methods[m] = std::move(method);
  }
}

void fill_optional(PythonBackend& b) {
  ts_backend& t = b.table;
  auto has = [&](Method m) { return static_cast<bool>(b.methods[m]); };
  if (has(HostPointer)) t.host_pointer = host_pointer;
  if (has(CopyPeer)) t.copy_peer = copy_peer;
  if (has(GetNumThreads)) t.get_num_threads = get_num_threads;
  fill_optional_slots(b);
  fill_service_slots(b);
  fill_compiler_slots(b);
}

void fill_table(PythonBackend& b, bool own_allocator) {
  ts_backend& t = b.table;
  t.struct_size = sizeof t;
  t.abi_major = TS_ABI_MAJOR;
  t.abi_minor_needed = TS_ABI_MINOR;
  t.name = b.name.c_str();
  t.vendor = b.vendor.c_str();
  t.version = b.version.c_str();
  t.ctx = &b;
  t.probe = probe;
  t.properties = properties;
  t.alloc = alloc;
  t.free = release_handle;
  t.copy_from_host = copy_from_host;
  t.copy_to_host = copy_to_host;
  t.copy_within = copy_within;
  t.synchronize = synchronize_stream;
  t.get_kernel = get_kernel;
  t.flags = own_allocator ? TS_B_OWN_ALLOCATOR : 0;
  fill_optional(b);
}

// A table that the backend made itself, by its address.
const ts_communicator* communicator_of(PyObject* backend) {
  PyRef address = checked(PyObject_GetAttrString(backend, "communicator_table"));
  TS_CHECK_TYPE(PyLong_Check(address.get()), "Backend.communicator_table: expected an address as an int, got ",
                type_name(address.get()));
  void* table = PyLong_AsVoidPtr(address.get());
  if (PyErr_Occurred()) throw_python();
  return static_cast<const ts_communicator*>(table);
}

// _register_python_backend(backend, source) -> name
PyObject* register_python_backend(PyObject*, PyObject* args) {
  PyObject* backend;
  const char* source;
  if (!PyArg_ParseTuple(args, "Os:_register_python_backend", &backend, &source)) return nullptr;
  return guarded([&] {
    auto b = std::make_unique<PythonBackend>();
    b->name = text_attribute(backend, "name");
    b->vendor = text_attribute(backend, "vendor");
    b->version = text_attribute(backend, "version");
    find_methods(backend, *b);
    b->raw_handles = true_attribute(backend, "raw_handles");
    b->capture_streams = true_attribute(backend, "capture_streams");
    fill_table(*b, true_attribute(backend, "own_allocator"));
    b->table.communicator = communicator_of(backend);
    register_backend(&b->table, source);
    python_backends()[b->name] = {Py_NewRef(backend), b.get()};
    return to_python(b.release()->name).release(); // the table outlives every use of it
  });
}

// _python_backend(name) -> the instance, or None for a backend that is not written in Python
PyObject* python_backend(PyObject*, PyObject* args) {
  const char* name;
  if (!PyArg_ParseTuple(args, "s:_python_backend", &name)) return nullptr;
  return guarded([&] {
    auto it = python_backends().find(name);
    return Py_NewRef(it == python_backends().end() ? Py_None : it->second.instance);
  });
}

// _launch_counters(name) -> what is counted of a backend in Python, or None for others
PyObject* launch_counters(PyObject*, PyObject* args) {
  const char* name;
  if (!PyArg_ParseTuple(args, "s:_launch_counters", &name)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto it = python_backends().find(name);
    if (it == python_backends().end()) return none();
    const LaunchCounters& c = it->second.owner->counters;
    auto count = [](const std::atomic<uint64_t>& n) { return static_cast<unsigned long long>(n.load()); };
    return checked(Py_BuildValue("{s:K,s:K,s:K,s:K}", "plans", count(c.plans), "by_plan",
                                 static_cast<unsigned long long>(c.traffic.by_plan()), "kernels_in_python",
                                 count(c.kernels), "slots_in_python", count(c.slots)))
        .release();
  });
}

// Whether a method or kernel of a backend in Python runs in this thread.
PyObject* within_backend(PyObject*, PyObject*) { return PyBool_FromLong(backend_depth > 0); }

PyMethodDef g_python_backend_functions[] = {
    {"_register_python_backend", register_python_backend, METH_VARARGS, nullptr},
    {"_launch_counters", launch_counters, METH_VARARGS, nullptr},
    {"_python_backend", python_backend, METH_VARARGS, nullptr},
    {"_within_backend", within_backend, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

int failed_status() noexcept {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return TS_INTERRUPTED; // stays set
  int status = TS_ERROR;
  if (PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(OutOfMemoryError))
    status = TS_OUT_OF_MEMORY;
  else if (PyErr_ExceptionMatches(DeviceLostError))
    status = TS_DEVICE_LOST;
  else if (PyErr_ExceptionMatches(PyExc_IndexError))
    status = TS_INDEX_ERROR;
  else if (PyErr_ExceptionMatches(PyExc_ValueError))
    status = TS_VALUE_ERROR;
  try {
    set_last_error(keep_cause().c_str());
  } catch (...) {
    PyErr_Clear();
  }
  return status;
}

void init_python_backend(PyObject* module) {
  checked_status(PyModule_AddFunctions(module, g_python_backend_functions));
}

} // namespace ts::py
