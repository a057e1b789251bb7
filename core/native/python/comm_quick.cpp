#include "python/comm_quick.h"
#include "python/calls/overrides.h"
#include "python/graph/traced_size.h"
#include "python/tensor/tensor_object.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include "tensor/thread_state.h"
#include <charconv>
#include <frameobject.h>
#include <limits>

namespace ts::py {
namespace {

using comm::Call;
using comm::Recorder;

constexpr const char* kCapsule = "tesserack.quick";

void append(std::string& text, int64_t n) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
}

// "float32[2, 3]"
void write_shape(std::string& text, const Tensor& t) {
  text.assign(name(t.dtype()));
  text += '[';
  for (size_t d = 0; d < t.sizes().size(); ++d) {
    if (d) text += ", ";
    append(text, t.sizes()[d]);
  }
  text += ']';
}

bool is_of_package(PyObject* frame_globals) {
  static PyObject* key = PyUnicode_InternFromString("__name__");
  PyObject* module = PyDict_GetItemWithError(frame_globals, key); // borrowed
  if (!module) PyErr_Clear();
  if (!module || !PyUnicode_Check(module)) return false;
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(module, &length);
  if (!text) PyErr_Clear();
  const std::string_view said = text ? std::string_view(text, static_cast<size_t>(length)) : "";
  return said.substr(0, said.find('.')) == "tesserack";
}

PyRef globals_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyRef::steal(PyFrame_GetGlobals(frame));
#else
  return checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_globals"));
#endif
}

// "file.py:12" of the innermost line that is not of this package.
void write_line(std::string& text) {
  text.clear();
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  PyRef held = PyRef::steal(reinterpret_cast<PyObject*>(frame));
  while (frame && is_of_package(globals_of(frame).get())) {
    frame = PyFrame_GetBack(frame);
    held = PyRef::steal(reinterpret_cast<PyObject*>(frame));
  }
  if (!frame) return;
  PyRef code = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const char* file = PyUnicode_AsUTF8(reinterpret_cast<PyCodeObject*>(code.get())->co_filename);
  if (!file) PyErr_Clear();
  text.assign(file ? file : "?");
  text += ':';
  append(text, PyFrame_GetLineNumber(frame));
}

// Whether some profiler writes down what ranks do, in whichever thread.
bool is_profiled() {
  static PyObject* module_name = PyUnicode_InternFromString("tesserack.utils.profiler._record");
  static PyObject* active_name = PyUnicode_InternFromString("_active");
  PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name); // borrowed
  if (!module) return PyErr_Occurred() != nullptr;
  PyRef active = PyRef::steal(PyObject_GetAttr(module, active_name));
  if (!active) PyErr_Clear();
  return !active || PyObject_IsTrue(active.get()) != 0;
}

// Nobody but the caller wants to know of this call.
bool is_unwatched() {
  const ThreadState& state = thread_state();
  return !state.include && !state.capture && !override_modes() && !is_tracing() && !is_profiled();
}

// A tensor whose memory the host reads and writes as it is.
bool is_plain(PyObject* object) {
  if (!is_plain_tensor(object)) return false;
  const Tensor& t = tensor_of(object);
  const KeySet own = key_bit(t.device().backend) | key_bit(key::Autograd);
  return !t.device().is_meta() && !(t->keys & ~own) && !t->payload && t.is_contiguous() && t.numel() > 0 &&
         !t->has(TensorImpl::kInference | TensorImpl::kConstantData) && !is_complex(t.dtype()) &&
         backend_of(t.device()).host_memory(t.device().index);
}

// The number of a reduction that the communicator itself does; -1 for others.
int code_of(PyObject* op) {
  static PyObject* name = PyUnicode_InternFromString("_code");
  PyRef code = PyRef::steal(PyObject_GetAttr(op, name));
  const long number = code ? PyLong_AsLong(code.get()) : -1;
  if (PyErr_Occurred()) PyErr_Clear();
  return number >= 0 && number <= static_cast<long>(comm::Reduction::Xor) ? static_cast<int>(number) : -1;
}

// Does a collective with the interpreter released, and writes down how it went.
template <class F> PyObject* noted(Recorder& recorder, Recorder::Entry& begun, F&& f) {
  const uint64_t serial = begun.serial;
  const std::string where = begun.where; // others may begin meanwhile
  recorder.start(begun);
  try {
    SuspendInterpreter released(std::numeric_limits<int64_t>::max());
    f(where.c_str());
  } catch (const std::exception& error) {
    if (Recorder::Entry* entry = recorder.find(serial)) {
      entry->error = error.what();
      recorder.end(*entry, true);
    }
    throw;
  }
  if (Recorder::Entry* entry = recorder.find(serial)) recorder.end(*entry, false);
  return Py_NewRef(Py_True);
}

Quick& quick_of(PyObject* capsule) { return *static_cast<Quick*>(PyCapsule_GetPointer(capsule, kCapsule)); }

PyObject* all_reduce(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    TS_CHECK_TYPE(n == 3, "all_reduce: expected 3 arguments, got ", static_cast<int64_t>(n));
    if (!is_plain(args[0]) || !is_unwatched()) return Py_NewRef(Py_False);
    const Tensor& t = tensor_of(args[0]);
    const int code = code_of(args[1]);
    const auto reduction = static_cast<comm::Reduction>(code);
    if (code < 0 || !comm::has_meaning(reduction, t.dtype())) return Py_NewRef(Py_False);
    void* data = t.data<char>();
    if (!data) return Py_NewRef(Py_False);
    const double seconds = PyFloat_AsDouble(args[2]);
    if (seconds == -1 && PyErr_Occurred()) throw_python();
    Quick& quick = quick_of(self);
    const Tensor held = t;
    Recorder::Entry& entry = quick.recorder->begin(false);
    entry.op = "all_reduce";
    write_shape(entry.of, t);
    write_line(entry.where);
    PyObject* done = noted(*quick.recorder, entry, [&](const char* where) {
      quick.group->all_reduce({"all_reduce", held.dtype(), seconds, where, 0, reduction}, data, data, held.numel());
    });
    held.impl()->bump_version();
    return done;
  });
}

PyObject* barrier(PyObject* self, PyObject* seconds_object) {
  return guarded([&] {
    if (!is_unwatched()) return Py_NewRef(Py_False);
    const double seconds = PyFloat_AsDouble(seconds_object);
    if (seconds == -1 && PyErr_Occurred()) throw_python();
    Quick& quick = quick_of(self);
    Recorder::Entry& entry = quick.recorder->begin(false);
    entry.op = "barrier";
    entry.of.clear();
    write_line(entry.where);
    return noted(*quick.recorder, entry, [&](const char* where) {
      quick.group->barrier({"barrier", DType::Undefined, seconds, where});
    });
  });
}

PyMethodDef g_all_reduce = {"all_reduce", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(all_reduce)),
                            METH_FASTCALL, nullptr};
PyMethodDef g_barrier = {"barrier", barrier, METH_O, nullptr};

} // namespace

PyObject* quick_calls(std::unique_ptr<Quick> quick) {
  PyRef self = checked(PyCapsule_New(quick.get(), kCapsule, [](PyObject* capsule) { delete &quick_of(capsule); }));
  quick.release();
  PyRef reduce = checked(PyCFunction_New(&g_all_reduce, self.get()));
  PyRef meet = checked(PyCFunction_New(&g_barrier, self.get()));
  return checked(PyTuple_Pack(2, reduce.get(), meet.get())).release();
}

} // namespace ts::py
