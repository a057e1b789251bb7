// What every file of the binding uses: owned references, the interpreter lock, and errors in both directions.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/error.h"
#include <memory>
#include <string>
#include <utility>

namespace ts::py {

// An owned reference to a Python object, or NULL.
class PyRef {
public:
  PyRef() = default;
  static PyRef steal(PyObject* p) { return PyRef(p); }
  static PyRef borrow(PyObject* p) {
    Py_XINCREF(p);
    return PyRef(p);
  }
  PyRef(const PyRef& o) : p_(o.p_) { Py_XINCREF(p_); }
  PyRef(PyRef&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  PyRef& operator=(PyRef o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~PyRef() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  PyObject* release() { return std::exchange(p_, nullptr); }
  explicit operator bool() const { return p_ != nullptr; }

private:
  explicit PyRef(PyObject* p) : p_(p) {}
  PyObject* p_ = nullptr;
};

class GilGuard {
public:
  GilGuard() : state_(PyGILState_Ensure()) {}
  ~GilGuard() { PyGILState_Release(state_); }
  GilGuard(const GilGuard&) = delete;
  GilGuard& operator=(const GilGuard&) = delete;

private:
  PyGILState_STATE state_;
};

// Unwinds C++ while the Python error indicator is set.
[[noreturn]] void throw_python();
// Raises a Python exception of the given class and unwinds.
[[noreturn, gnu::cold]] void raise(PyObject* type, const std::string& message);
// Turns the exception in flight into a Python error. Only inside a catch block.
[[gnu::cold]] void set_error_from_exception() noexcept;

// A new reference, or an exception if p is NULL (the Python error is set).
inline PyRef checked(PyObject* p) {
  if (!p) [[unlikely]]
    throw_python();
  return PyRef::steal(p);
}
inline void checked_status(int status) {
  if (status < 0) [[unlikely]]
    throw_python();
}

// Runs f (returning PyObject* or int) at the border to C: C++ exceptions become Python errors.
template <class F> inline auto guarded(F&& f) noexcept -> decltype(f()) {
  using R = decltype(f());
  try {
    return f();
  } catch (...) {
    set_error_from_exception();
    if constexpr (std::is_pointer_v<R>)
      return nullptr;
    else
      return static_cast<R>(-1);
  }
}

// The interpreter has ended or is ending: nothing of it may be touched.
bool interpreter_gone();
// Takes the Python error that is set as the cause of the error a callback is about to report, and returns its text,
// "ValueError: ...". The error that reaches the user with that text has it as __cause__.
std::string keep_cause();
// Shares a Python object with C++ code that may let go of it on any thread.
std::shared_ptr<PyObject> hold(PyObject* object);
// Decref from any thread; leaks once the interpreter is gone.
void release_anywhere(PyObject* object);

std::string to_utf8(PyObject* text); // UTF-8 of a str
std::string type_name(PyObject* object);
inline PyObject* none() { return Py_NewRef(Py_None); }
inline PyRef to_python(const std::string& s) {
  return checked(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

// Exception classes of the package.
extern PyObject* OutOfMemoryError;
extern PyObject* DeviceLostError;
extern PyObject* BackendUnavailableError;
extern PyObject* OutOfBoundsError; // tesserack.OutOfBoundsError
extern PyObject* LinAlgError;      // tesserack.linalg.LinAlgError
void init_errors(PyObject* module);
void init_interpreter_hooks();

// A static type object with nothing filled in but its head.
inline PyTypeObject blank_type(const char* name, size_t instance_size, const char* doc) {
  PyVarObject head = {PyObject_HEAD_INIT(nullptr) 0};
  PyTypeObject t{};
  reinterpret_cast<PyVarObject&>(t) = head;
  t.tp_name = name;
  t.tp_basicsize = static_cast<Py_ssize_t>(instance_size);
  t.tp_flags = Py_TPFLAGS_DEFAULT;
  t.tp_doc = doc;
  return t;
}

// Adds a new reference to the module under `name`.
inline void add_object(PyObject* module, const char* name, PyObject* object) {
  checked_status(PyModule_AddObjectRef(module, name, object));
}

} // namespace ts::py
