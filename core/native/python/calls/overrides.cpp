#include "python/calls/overrides.h"
#include "python/tensor/tensor_object.h"
#include <utility>

namespace ts::py {

bool g_overrides_watched = false;

namespace {

PyObject* g_disabled = nullptr; // what a class has as __torch_function__ to override nothing
PyObject* g_dispatch = nullptr; // dispatch(function, args, kwargs, relevant) of tesserack.overrides
thread_local bool t_off = false;
thread_local bool t_skip = false; // the next call that would ask goes on by itself
thread_local int t_modes = 0;

bool is_basic(PyObject* o) {
  return PyLong_Check(o) || PySlice_Check(o) || o == Py_None || o == Py_Ellipsis || PyFloat_Check(o) ||
         PyUnicode_Check(o) || PyTuple_CheckExact(o) || PyList_CheckExact(o);
}

bool overrides(PyObject* o) {
  if (Py_TYPE(o) == TensorType || is_basic(o)) return false;
  static PyObject* name = PyUnicode_InternFromString("__torch_function__");
  PyObject* found = _PyType_Lookup(Py_TYPE(o), name);
  return found && found != g_disabled;
}

bool any_overrides(PyObject* o) {
  if (Py_TYPE(o) == TensorType) return false;
  if (PyTuple_Check(o) || PyList_Check(o)) {
    PyObject** items = PySequence_Fast_ITEMS(o);
    for (Py_ssize_t k = 0, n = Py_SIZE(o); k < n; ++k)
      if (const PyTypeObject* type = Py_TYPE(items[k]);
          type != &PyLong_Type && type != &PySlice_Type && overrides(items[k]))
        return true;
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) return false;
  }
  return overrides(o);
}

void collect(PyObject* o, PyObject* into) {
  if (overrides(o)) {
    checked_status(PyList_Append(into, o));
  } else if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) {
      PyRef item = PyRef::borrow(PySequence_Fast_GET_ITEM(o, k));
      if (overrides(item.get())) checked_status(PyList_Append(into, item.get()));
    }
  }
}

// Where no argument knows the function, `quiet` gives NotImplemented, instead of an error.
PyObject* ask(PyObject* function, PyObject* args, PyObject* kwargs, PyObject* relevant, bool quiet = false) {
  if (!g_dispatch) {
    PyRef module = checked(PyImport_ImportModule("tesserack.overrides"));
    g_dispatch = checked(PyObject_GetAttrString(module.get(), "_dispatch")).release();
  }
  PyObject* flag = quiet ? Py_True : Py_False;
  return checked(PyObject_CallFunctionObjArgs(g_dispatch, function, args, kwargs, relevant, flag, nullptr)).release();
}

PyObject* dispatch(PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames, PyObject* relevant,
                   bool quiet) {
  PyRef positional = checked(PyTuple_New(static_cast<Py_ssize_t>(nargs)));
  for (size_t k = 0; k < nargs; ++k) PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(k), Py_NewRef(args[k]));
  PyRef keywords = checked(PyDict_New());
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k)
    checked_status(PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, k), args[nargs + static_cast<size_t>(k)]));
  return ask(function, positional.get(), keywords.get(), relevant, quiet);
}

// What a tensor of one integer repeats, and no operator computes with.
bool repeats(PyObject* o) {
  return PyList_CheckExact(o) || PyTuple_CheckExact(o) || PyUnicode_CheckExact(o) || PyBytes_CheckExact(o);
}

PyObject* try_asking(PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames, bool quiet) {
  if (t_off || std::exchange(t_skip, false)) return nullptr;
  PyRef relevant = checked(PyList_New(0));
  size_t all = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  for (size_t k = 0; k < all; ++k) collect(args[k], relevant.get());
  if (!t_modes && !PyList_GET_SIZE(relevant.get())) return nullptr;
  return dispatch(function, args, nargs, kwnames, relevant.get(), quiet);
}

} // namespace

bool takes_calls(PyObject* tensor) { return g_overrides_watched && !t_off && overrides(tensor); }
int override_modes() { return t_modes; }

PyObject* try_override(PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  return try_asking(function, args, nargs, kwnames, false);
}

PyObject* try_override_slot(const char* method, PyObject* a, PyObject* b, bool quiet) {
  if (t_off) return nullptr;
  if (!any_overrides(a) && !(b && any_overrides(b)))
    if (!t_modes || repeats(a) || (b && repeats(b))) return nullptr;
  PyRef function = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(TensorType), method));
  PyObject* args[] = {a, b};
  return try_asking(function.get(), args, b ? 2 : 1, nullptr, quiet);
}

PyObject* try_override_method(const char* method, PyObject* self, PyObject* args, PyObject* kwargs) {
  if (t_off || std::exchange(t_skip, false)) return nullptr;
  PyRef relevant = checked(PyList_New(0));
  collect(self, relevant.get());
  if (!t_modes && !PyList_GET_SIZE(relevant.get())) return nullptr;
  PyRef function = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(TensorType), method));
  PyRef own = checked(PyTuple_Pack(1, self)), all = checked(PySequence_Concat(own.get(), args));
  PyRef keywords = kwargs ? PyRef::borrow(kwargs) : checked(PyDict_New());
  return ask(function.get(), all.get(), keywords.get(), relevant.get());
}

namespace {

PyObject* set_disabled(PyObject*, PyObject* marker) {
  Py_XSETREF(g_disabled, Py_NewRef(marker));
  return none();
}
PyObject* watch(PyObject*, PyObject*) {
  g_overrides_watched = true;
  return none();
}
PyObject* switch_off(PyObject*, PyObject* on) {
  bool before = t_off;
  t_off = on == Py_True;
  return PyBool_FromLong(before);
}
// _skip_override(on): whether the next call goes on without asking; returns how it was.
PyObject* skip_next(PyObject*, PyObject* on) { return PyBool_FromLong(std::exchange(t_skip, on == Py_True)); }
// _asks_overrides(): whether a function in Python is to ask now; one call that skips is then used up.
PyObject* asks(PyObject*, PyObject*) { return PyBool_FromLong(!t_off && !std::exchange(t_skip, false)); }
PyObject* set_modes(PyObject*, PyObject* count) {
  long n = PyLong_AsLong(count);
  if (n == -1 && PyErr_Occurred()) return nullptr;
  t_modes = static_cast<int>(n);
  g_overrides_watched = g_overrides_watched || n > 0;
  return none();
}

PyMethodDef g_overrides_functions[] = {{"_set_overrides_disabled", set_disabled, METH_O, nullptr},
                                       {"_watch_overrides", watch, METH_NOARGS, nullptr},
                                       {"_overrides_off", switch_off, METH_O, nullptr},
                                       {"_skip_override", skip_next, METH_O, nullptr},
                                       {"_asks_overrides", asks, METH_NOARGS, nullptr},
                                       {"_set_override_modes", set_modes, METH_O, nullptr},
                                       {nullptr, nullptr, 0, nullptr}};

} // namespace

void init_overrides(PyObject* module) { checked_status(PyModule_AddFunctions(module, g_overrides_functions)); }

} // namespace ts::py
