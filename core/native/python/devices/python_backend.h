// Backends written in Python: the table of abi.h filled with calls of a class's methods.
#pragma once
#include "dispatch/launch_plan.h"
#include "python/common.h"

namespace ts::py {

// Runs f under the interpreter lock; a Python error or C++ exception becomes a status and a message for the core.
template <class F> int callback(F&& f) noexcept;
int failed_status() noexcept; // of the Python error that is set

struct LaunchCounters {
  std::atomic<uint64_t> plans{0};   // made
  PlanTraffic traffic;              // kernel calls that entered no Python
  std::atomic<uint64_t> kernels{0}; // kernel calls that did
  std::atomic<uint64_t> slots{0};   // calls of other methods
};

// What the kernels of a backend share.
struct KernelOwner {
  std::string name;
  bool raw_handles = false; // handles of storages, streams and events are ints, not objects
  LaunchCounters counters;
};

inline PyRef handle_ref(const KernelOwner& owner, void* handle) {
  if (!handle) return PyRef::borrow(Py_None);
  return owner.raw_handles ? checked(PyLong_FromVoidPtr(handle)) : PyRef::borrow(static_cast<PyObject*>(handle));
}

// The kernel `record` describes, as Backend._find_kernel returns it: (function, predicate or None, names of the call's
// fields it wants, dtype bits, layout, changing parameters, flags). Kernels of operators live for ever.
void fill_kernel(PyObject* record, KernelOwner& owner, ts_kernel* out);
void drop_kernel(const ts_kernel& kernel);
PyObject* function_of(const ts_kernel& kernel); // that it calls; borrowed
// What a call is but for its memory: (opcode, compute dtype, program, prologue, epilogue, deterministic, precision,
// inputs, params); for lists of tensors the range of inputs that they are.
PyRef call_object(const KernelOwner& owner, const ts_call& call);

// Whether what a kernel returned is a tesserack.backends.LaunchPlan; and its native form, checked against the call.
// TypeError or ValueError naming the part of the plan that is wrong.
bool is_plan(PyObject* result);
std::shared_ptr<const LaunchPlan> read_plan(PyObject* result, const ts_call& call, uint64_t changing,
                                            const KernelOwner& owner);
void init_python_backend(PyObject* module);
void init_python_kernel(PyObject* module);

// An error that is on its way: the call that failed lets go of tensors, whose memory goes back through here.
class KeepError {
public:
  KeepError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~KeepError() {
    if (type_) PyErr_Restore(type_, value_, traceback_);
  }
  KeepError(const KeepError&) = delete;
  KeepError& operator=(const KeepError&) = delete;

private:
  PyObject *type_, *value_, *traceback_;
};

// How deep this thread is in methods and kernels of backends: what runs there is no part of any program.
inline thread_local int backend_depth = 0;
struct WithinBackend {
  WithinBackend() { ++backend_depth; }
  ~WithinBackend() { --backend_depth; }
};

template <class F> int callback(F&& f) noexcept {
  if (interpreter_gone()) return TS_ERROR;
  GilGuard gil;
  KeepError kept;
  WithinBackend within;
  try {
    return f();
  } catch (...) {
    set_error_from_exception();
    return failed_status();
  }
}

} // namespace ts::py
