// tesserack.device: a backend's name and an index; as context manager or decorator it sets the default device.
#include "python/types.h"
#include "runtime/backend.h"
#include "runtime/default_device.h"
#include "runtime/device_names.h"

namespace ts::py {
namespace {

// A device, and whether it was made with an index: 'cpu:0' and 'cpu' are the same place, and say so differently.
struct NamedDevice {
  DeviceObject device;
  bool numbered;
};

bool& is_numbered(PyObject* o) { return reinterpret_cast<NamedDevice*>(o)->numbered; }

Device device_value(PyObject* o) { return reinterpret_cast<DeviceObject*>(o)->value; }

std::string backend_name(Device d) {
  if (d.is_meta()) return "meta";
  return is_absent(d) ? absent_device_type(d) : shown_device_name(backend_of(d).name());
}

// A device by its text; one that no backend has, where the name alone is allowed.
Device named_device(const std::string& text) {
  try {
    return parse_device(text);
  } catch (const Error& e) {
    bool told = PyErr_Occurred() != nullptr;
    if (e.kind() == ErrorKind::Interrupted || (told && !PyErr_ExceptionMatches(PyExc_RuntimeError))) throw;
    std::optional<Device> named = name_absent_device(text);
    if (!named) throw;
    if (told) PyErr_Clear();
    return *named;
  }
}

PyObject* numbered_device(const std::string& text) {
  PyObject* made = device_object(named_device(text));
  is_numbered(made) = text.find(':') != std::string::npos;
  return made;
}

std::string device_text(PyObject* self) {
  Device d = device_value(self);
  std::string text = to_string(d);
  return is_numbered(self) && text.find(':') == std::string::npos ? text + ":" + std::to_string(d.index) : text;
}

// device("acme:1"), device("acme", 1), device(type="acme", index=1), device(device)
PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"type", "index", nullptr};
  PyObject *type = nullptr, *index = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", const_cast<char**>(names), &type, &index))
    return nullptr;
  return guarded([&] {
    if (!index || index == Py_None) {
      if (is_device(type)) return Py_NewRef(type);
      return PyUnicode_Check(type) ? numbered_device(to_utf8(type)) : device_object(expect_device(type, "device"));
    }
    TS_CHECK_TYPE(PyUnicode_Check(type), "device: expected the backend's name as str, got ", type_name(type));
    std::string text = to_utf8(type);
    TS_CHECK(text.find(':') == std::string::npos, "device: '", text, "' names an index already; leave out index=");
    Py_ssize_t i = PyNumber_AsSsize_t(index, PyExc_OverflowError);
    if (i == -1 && PyErr_Occurred()) throw_python();
    TS_CHECK(i >= 0, "device: expected an index of at least 0, got ", i);
    return numbered_device(text + ":" + std::to_string(i));
  });
}

void device_dealloc(PyObject* self) { PyObject_Free(self); }

PyObject* device_str(PyObject* self) {
  return guarded([&] { return to_python(device_text(self)).release(); });
}
PyObject* device_repr(PyObject* self) {
  return guarded([&] {
    Device d = device_value(self);
    std::string text = device_text(self), out = "device(type='" + backend_name(d) + "'";
    if (text.find(':') != std::string::npos) out += ", index=" + std::to_string(d.index);
    return to_python(out + ")").release();
  });
}
Py_hash_t device_hash(PyObject* self) { return static_cast<Py_hash_t>(device_value(self).pack() + 2); }

PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (!is_device(a) || !is_device(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((device_value(a) == device_value(b)) == (op == Py_EQ));
}

PyObject* device_type(PyObject* self, void*) {
  return guarded([&] { return to_python(backend_name(device_value(self))).release(); });
}
PyObject* device_index(PyObject* self, void*) {
  return guarded([&] {
    Device d = device_value(self);
    if (device_text(self).find(':') == std::string::npos) return none();
    return checked(PyLong_FromLong(d.index)).release();
  });
}
PyObject* device_reduce(PyObject* self, PyObject*) {
  return guarded([&] { return checked(Py_BuildValue("(O(s))", &DeviceType, device_text(self).c_str())).release(); });
}

PyObject* device_enter(PyObject* self, PyObject*) {
  return guarded([&] {
    enter_device(expect_device(self, "device"));
    return Py_NewRef(self);
  });
}
PyObject* device_exit(PyObject* self, PyObject*) {
  return guarded([&] {
    TS_CHECK(leave_device(device_value(self)), "device: left a context that was not entered");
    return none();
  });
}
// Contexts are kept by the thread, not by the object: the object itself can be entered again by every call.
PyObject* device_clone(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* device_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", nullptr};
  PyObject* fn = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &fn)) return nullptr;
  PyRef module = PyRef::steal(PyImport_ImportModule("tesserack.autograd._decorator"));
  return module ? PyObject_CallMethod(module.get(), "decorate", "OO", self, fn) : nullptr;
}

PyMethodDef g_device_object_methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, nullptr},
    {"__enter__", device_enter, METH_NOARGS, "Make this the device of this thread's factories called without one."},
    {"__exit__", device_exit, METH_VARARGS, nullptr},
    {"clone", device_clone, METH_NOARGS, "The device itself: what a decorated function enters."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_device_object_properties[] = {
    {"type", device_type, nullptr, "The backend's name.", nullptr},
    {"index", device_index, nullptr, "Which of the backend's devices; None where there can be only one.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject device_object_make_type() {
  PyTypeObject t = blank_type(
      "tesserack.device", sizeof(NamedDevice),
      "device(type, index=None)\n--\n\nWhere a tensor lives: a backend's name and an index, as in device('cpu').");
  t.tp_new = device_new;
  t.tp_dealloc = device_dealloc;
  t.tp_repr = device_repr;
  t.tp_str = device_str;
  t.tp_hash = device_hash;
  t.tp_richcompare = device_compare;
  t.tp_call = device_call;
  t.tp_methods = g_device_object_methods;
  t.tp_getset = g_device_object_properties;
  return t;
}

} // namespace

PyTypeObject DeviceType = device_object_make_type();

PyObject* device_object(Device d) {
  auto* o = PyObject_New(DeviceObject, &DeviceType);
  if (!o) throw_python();
  o->value = d;
  is_numbered(reinterpret_cast<PyObject*>(o)) = false;
  return reinterpret_cast<PyObject*>(o);
}

Device expect_device(PyObject* o, const char* what) {
  if (is_device(o)) {
    Device d = device_value(o);
    return is_absent(d) ? parse_device(absent_device_text(d)) : d;
  }
  TS_CHECK_TYPE(PyUnicode_Check(o), what, ": expected a device or its name, got ", type_name(o),
                PyLong_Check(o) ? "; there is no unnamed device, write for example 'cpu:0'" : "");
  return parse_device(to_utf8(o));
}

Device host_device() {
  Device d = default_device();
  if (!d.is_meta() && backend_of(d).host_memory(d.index)) return d;
  for (Backend* b : backends())
    if (b->device_count() > 0 && b->host_memory()) return {b->id(), 0};
  return parse_device("cpu");
}

void init_device_type(PyObject* module) {
  checked_status(PyType_Ready(&DeviceType));
  add_object(module, "device", reinterpret_cast<PyObject*>(&DeviceType));
}

} // namespace ts::py
