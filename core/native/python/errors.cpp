// Errors across the border, and what the core asks of the interpreter (locks, signals, warnings, source lines).
#include "python/common.h"
#include "runtime/interpreter.h"
#include "tensor/thread_state.h"
#include <chrono>
#include <cxxabi.h>
#include <frameobject.h> // PyFrame_GetBack, before Python 3.11
#include <new>
#include <pthread.h>
#include <unistd.h>

namespace ts::py {

PyObject* OutOfMemoryError = nullptr;
PyObject* DeviceLostError = nullptr;
PyObject* BackendUnavailableError = nullptr;
PyObject* LinAlgError = nullptr;
PyObject* OutOfBoundsError = nullptr;

// Python's own says nothing.
static void set_memory_error() {
  PyErr_SetString(PyExc_MemoryError, "out of host memory; free some, or work in smaller pieces");
}

// Whether the interpreter's own MemoryError is set, and not one that a program has worded.
static bool has_bare_memory_error() {
  if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_MemoryError)) return false;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* arguments = value && PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(PyExc_BaseException))
                            ? reinterpret_cast<PyBaseExceptionObject*>(value)->args
                            : nullptr;
  const bool bare = !arguments || !PyTuple_Check(arguments) || PyTuple_GET_SIZE(arguments) == 0;
  PyErr_Restore(type, value, trace);
  return bare;
}

void throw_python() {
  if (has_bare_memory_error()) set_memory_error();
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "tesserack: a Python call failed without an error");
  throw Error(ErrorKind::Python, "a Python exception is set");
}

namespace {
// Messages may carry bytes of a backend's that are no text.
void set_message(PyObject* type, const std::string& message) {
  PyObject* text = PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace");
  if (text) PyErr_SetObject(type, text);
  Py_XDECREF(text);
}
} // namespace

void raise(PyObject* type, const std::string& message) {
  set_message(type, message);
  throw Error(ErrorKind::Python, message);
}

namespace {

PyObject* exception_class(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::Value: return PyExc_ValueError;
  case ErrorKind::Type: return PyExc_TypeError;
  case ErrorKind::Index: return PyExc_IndexError;
  case ErrorKind::NotImplemented: return PyExc_NotImplementedError;
  case ErrorKind::OutOfMemory: return OutOfMemoryError;
  case ErrorKind::DeviceLost: return DeviceLostError;
  case ErrorKind::BackendUnavailable: return BackendUnavailableError;
  case ErrorKind::Interrupted: return PyExc_KeyboardInterrupt;
  case ErrorKind::LinAlg: return LinAlgError;
  default: return PyExc_RuntimeError;
  }
}

// The exception behind the last failure of a callback written in Python.
struct Cause {
  PyObject* exception = nullptr; // owned
  std::string text;
};
thread_local Cause t_cause;

PyObject* take_exception() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
}

// Hooks of runtime/border.h.
std::shared_ptr<void> take_for_core(std::string& text) {
  GilGuard gil;
  if (!PyErr_Occurred()) return nullptr;
  PyRef error = PyRef::steal(take_exception());
  PyRef message = PyRef::steal(PyObject_Str(error.get()));
  const char* said = message ? PyUnicode_AsUTF8(message.get()) : nullptr;
  text = type_name(error.get());
  if (said && *said) text = text + ": " + said;
  PyErr_Clear(); // of an exception whose text cannot be had
  return hold(error.get());
}
void put_for_core(const std::shared_ptr<void>& exception) {
  GilGuard gil;
  auto* error = static_cast<PyObject*>(exception.get());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
}

void attach_cause(const std::string& message) {
  PyObject* cause = std::exchange(t_cause.exception, nullptr);
  if (!cause) return;
  if (!message.ends_with(t_cause.text)) return Py_DECREF(cause); // another failure, which was dealt with
  PyObject* error = take_exception();
  PyException_SetCause(error, Py_NewRef(cause));
  PyException_SetContext(error, cause);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
}

void set_error(const Error& e) {
  bool reported = PyErr_Occurred() && (e.kind() == ErrorKind::Python || e.kind() == ErrorKind::Interrupted);
  if (reported) return;
  std::string_view said = e.what();
  bool beyond = e.kind() == ErrorKind::Index && said.find("is out of bounds for dimension") != said.npos;
  set_message(beyond ? OutOfBoundsError : exception_class(e.kind()),
              e.kind() == ErrorKind::Interrupted ? "" : e.what());
  attach_cause(e.what());
}

// --- interpreter hooks -------------------------------------------------------------------------------------------

pthread_t g_main_thread;

void* suspend() {
  ThreadState& tls = thread_state();
  if (tls.released_gil || !PyGILState_Check()) return nullptr;
  tls.released_gil = true;
  return PyEval_SaveThread();
}
void resume(void* token) {
#ifdef __GLIBCXX__
  try {
    PyEval_RestoreThread(static_cast<PyThreadState*>(token));
  } catch (abi::__forced_unwind&) {
    // The interpreter is going and ends this thread. Its kernel cannot be unwound: it sleeps until the process ends.
    for (;;) pause();
  }
#else
  PyEval_RestoreThread(static_cast<PyThreadState*>(token));
#endif
  thread_state().released_gil = false;
}

// Only the main thread sees signals, so only it asks; others would wait for a lock that their team's master may hold.
bool interrupted() {
  if (!pthread_equal(pthread_self(), g_main_thread)) return false;
  if (!thread_state().released_gil) return PyGILState_Check() && PyErr_CheckSignals() != 0;
  using Clock = std::chrono::steady_clock;
  static Clock::time_point next_check;
  Clock::time_point now = Clock::now();
  if (now < next_check) return false;
  next_check = now + std::chrono::milliseconds(20);
  GilGuard gil;
  return PyErr_CheckSignals() != 0;
}

PyObject* warning_class(const std::string& category) {
  if (category == "RuntimeWarning") return PyExc_RuntimeWarning;
  if (category == "DeprecationWarning") return PyExc_DeprecationWarning;
  if (category == "FutureWarning") return PyExc_FutureWarning;
  return PyExc_UserWarning;
}
void warn_user(const char* message, const char* category) {
  GilGuard gil;
  PyObject *type, *value, *trace; // of an error already on its way: a warning must not replace it
  PyErr_Fetch(&type, &value, &trace);
  int status = PyErr_WarnEx(warning_class(category), message, 1);
  if (type) return PyErr_Restore(type, value, trace);
  // Under "error" filters the warning is an exception: it stays set and unwinds the operator.
  if (status < 0) throw_python();
}

bool inside_package(const std::string& file) { return file.find("/tesserack/") != std::string::npos; }

std::string describe_frame(PyFrameObject* frame) {
  PyRef code = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  auto* c = reinterpret_cast<PyCodeObject*>(code.get());
  return to_utf8(c->co_filename) + ":" + std::to_string(PyFrame_GetLineNumber(frame)) + ", in " + to_utf8(c->co_name);
}

// The innermost frame outside the package; failing that, the innermost of all.
std::string location() {
  GilGuard gil;
  PyRef frame = PyRef::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string innermost;
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.get());
    std::string text = describe_frame(f);
    if (!inside_package(text)) return text;
    if (innermost.empty()) innermost = text;
    frame = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return innermost.empty() ? "unknown location" : innermost;
}

struct Attached {
  PyGILState_STATE state;
  PyThreadState* thread;
};
void* attach() {
  PyGILState_STATE state = PyGILState_Ensure();
  return new Attached{state, PyEval_SaveThread()};
}
void detach(void* token) {
  std::unique_ptr<Attached> attached(static_cast<Attached*>(token));
  PyEval_RestoreThread(attached->thread);
  PyGILState_Release(attached->state);
}

// As traceback.format_stack() has them, in one text.
std::string calls() {
  GilGuard gil;
  PyRef module = checked(PyImport_ImportModule("traceback"));
  PyRef lines = checked(PyObject_CallMethod(module.get(), "format_stack", nullptr));
  PyRef text = checked(PyObject_CallMethod(checked(PyUnicode_FromString("")).get(), "join", "O", lines.get()));
  return to_utf8(text.get());
}

void log_message(int level, const char* message) {
  if (interpreter_gone()) return;
  GilGuard gil;
  PyObject *type, *value, *trace; // of an error already on its way
  PyErr_Fetch(&type, &value, &trace);
  PyRef logging = PyRef::steal(PyImport_ImportModule("logging"));
  PyRef logger = PyRef::steal(logging ? PyObject_CallMethod(logging.get(), "getLogger", "s", "tesserack") : nullptr);
  PyRef done =
      PyRef::steal(logger ? PyObject_CallMethod(logger.get(), "log", "iss", 10 * (level + 1), "%s", message) : nullptr);
  if (!done) PyErr_WriteUnraisable(nullptr);
  PyErr_Restore(type, value, trace);
}

} // namespace

bool interpreter_gone() {
#if PY_VERSION_HEX >= 0x030d0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

std::string keep_cause() {
  Py_XDECREF(t_cause.exception);
  t_cause.exception = take_exception();
  PyRef message = PyRef::steal(PyObject_Str(t_cause.exception));
  t_cause.text = type_name(t_cause.exception);
  if (message && PyUnicode_GetLength(message.get()) > 0) t_cause.text += ": " + to_utf8(message.get());
  PyErr_Clear();
  return t_cause.text;
}

void set_error_from_exception() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    set_error(e);
  } catch (const std::bad_alloc&) {
    set_memory_error();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "tesserack: unknown C++ exception");
  }
}

void release_anywhere(PyObject* object) {
  if (!object || interpreter_gone()) return;
  GilGuard gil;
  Py_DECREF(object);
}

std::shared_ptr<PyObject> hold(PyObject* object) {
  Py_XINCREF(object);
  return std::shared_ptr<PyObject>(object, release_anywhere);
}

std::string to_utf8(PyObject* text) {
  Py_ssize_t n = 0;
  const char* s = PyUnicode_AsUTF8AndSize(text, &n);
  if (!s) throw_python();
  return std::string(s, static_cast<size_t>(n));
}

std::string type_name(PyObject* object) {
  const char* full = Py_TYPE(object)->tp_name;
  const char* dot = std::char_traits<char>::length(full) ? strrchr(full, '.') : nullptr;
  return dot ? dot + 1 : full;
}

void init_errors(PyObject* module) {
  OutOfMemoryError =
      checked(PyErr_NewExceptionWithDoc("tesserack.OutOfMemoryError", "A device has no memory left for an allocation.",
                                        PyExc_RuntimeError, nullptr))
          .release();
  DeviceLostError = checked(PyErr_NewExceptionWithDoc("tesserack.DeviceLostError",
                                                      "A device answers no more, or what it held is gone.",
                                                      PyExc_RuntimeError, nullptr))
                        .release();
  BackendUnavailableError =
      checked(PyErr_NewExceptionWithDoc("tesserack.BackendUnavailableError",
                                        "A device was named whose backend is not installed or failed to load.",
                                        PyExc_RuntimeError, nullptr))
          .release();
  PyRef bounds = checked(PyTuple_Pack(2, PyExc_IndexError, PyExc_RuntimeError));
  OutOfBoundsError =
      checked(PyErr_NewExceptionWithDoc("tesserack.OutOfBoundsError",
                                        "An index beyond what there is. PyTorch raises IndexError or RuntimeError, by "
                                        "operator; this is both.",
                                        bounds.get(), nullptr))
          .release();
  LinAlgError = checked(PyErr_NewExceptionWithDoc("tesserack.linalg.LinAlgError",
                                                  "A matrix is singular, not positive-definite, or its decomposition "
                                                  "did not converge.",
                                                  PyExc_RuntimeError, nullptr))
                    .release();
  add_object(module, "OutOfMemoryError", OutOfMemoryError);
  add_object(module, "DeviceLostError", DeviceLostError);
  add_object(module, "BackendUnavailableError", BackendUnavailableError);
  add_object(module, "_LinAlgError", LinAlgError);
  add_object(module, "OutOfBoundsError", OutOfBoundsError);
}

void init_interpreter_hooks() {
  g_main_thread = pthread_self();
  InterpreterHooks& hooks = interpreter_hooks();
  hooks.suspend = suspend;
  hooks.resume = resume;
  hooks.attach = attach;
  hooks.detach = detach;
  hooks.interrupted = interrupted;
  hooks.warn = warn_user;
  hooks.log = log_message;
  hooks.location = location;
  hooks.calls = calls;
  hooks.take_exception = take_for_core;
  hooks.put_exception = put_for_core;
}

} // namespace ts::py
