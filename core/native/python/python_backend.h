// Backends written in Python: the table of abi.h filled with calls of a class's methods.
#pragma once
#include "python/common.h"
#include "tesserack/abi.h"

namespace ts::py {

// Runs f under the interpreter lock; a Python error or C++ exception becomes a status and a message for the core.
template <class F> int callback(F&& f) noexcept;
int failed_status() noexcept; // of the Python error that is set

// The kernel `record` describes, as Backend._find_kernel returns it: (function, predicate or None, names of the call's
// fields it wants, dtype bits, layout). Lives for ever.
void fill_kernel(PyObject* record, ts_kernel* out);
void init_python_backend(PyObject* module);
void init_python_kernel(PyObject* module);

template <class F> int callback(F&& f) noexcept {
  if (interpreter_gone()) return TS_ERROR;
  GilGuard gil;
  try {
    return f();
  } catch (...) {
    set_error_from_exception();
    return failed_status();
  }
}

} // namespace ts::py
