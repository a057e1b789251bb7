// tesserack.Size: a tuple of ints that knows its product.
#include "python/graph/traced_size.h"
#include "python/shown_package.h"
#include "python/types.h"

namespace ts::py {
namespace {

// An int, one that a trace follows, or the size of a ragged dimension, which tesserack.nested marks so.
bool is_size_item(PyObject* item) {
  if (PyLong_Check(item)) return !PyBool_Check(item);
  if (is_traced_int(item)) return true;
  static PyObject* mark = PyUnicode_InternFromString("__ragged_size__");
  return _PyType_Lookup(Py_TYPE(item), mark) != nullptr;
}

PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyRef made = PyRef::steal(PyTuple_Type.tp_new(type, args, kwargs));
  if (!made) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(made.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(made.get(), i);
    if (is_size_item(item)) continue;
    PyRef number = PyRef::steal(PyIndex_Check(item) ? PyNumber_Index(item) : nullptr);
    if (!number) {
      PyErr_Format(PyExc_TypeError, "tesserack.Size() takes an iterable of 'int' (item %zd is '%s')", i,
                   Py_TYPE(item)->tp_name);
      return nullptr;
    }
    PyTuple_SET_ITEM(made.get(), i, number.release());
    Py_DECREF(item);
  }
  return made.release();
}

// A tuple's items as a Size; takes the reference. Passes NULL and other types through.
PyObject* retyped(PyObject* tuple) {
  PyRef t = PyRef::steal(tuple);
  if (!t || !PyTuple_Check(t.get())) return t.release();
  Py_ssize_t n = PyTuple_GET_SIZE(t.get());
  PyRef out = PyRef::steal(SizeType.tp_alloc(&SizeType, n));
  if (!out) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(t.get(), i);
    // A Size plus a tuple of something else is a plain tuple.
    if (!PyLong_Check(item) && !is_size_item(item)) return t.release();
    PyTuple_SET_ITEM(out.get(), i, Py_NewRef(item));
  }
  return out.release();
}

PyObject* size_concat(PyObject* a, PyObject* b) { return retyped(PyTuple_Type.tp_as_sequence->sq_concat(a, b)); }
// A tuple on the left has no number slot of its own, so that a Size on the right is asked first.
PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) return Py_NewRef(Py_NotImplemented);
  return size_concat(a, b);
}
PyObject* size_repeat(PyObject* a, Py_ssize_t n) { return retyped(PyTuple_Type.tp_as_sequence->sq_repeat(a, n)); }
PyObject* size_subscript(PyObject* a, PyObject* key) {
  PyObject* got = PyTuple_Type.tp_as_mapping->mp_subscript(a, key);
  return PySlice_Check(key) ? retyped(got) : got;
}

PyObject* size_repr(PyObject* self) {
  return guarded([&] {
    PyRef list = checked(PySequence_List(self));
    return checked(PyUnicode_FromFormat("%s.Size(%R)", shown_package().c_str(), list.get())).release();
  });
}

PyObject* size_numel(PyObject* self, PyObject*) {
  PyRef product = PyRef::steal(PyLong_FromLong(1));
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); ++i)
    product = PyRef::steal(PyNumber_Multiply(product.get(), PyTuple_GET_ITEM(self, i)));
  return product.release();
}
PyObject* size_reduce(PyObject* self, PyObject*) {
  PyRef plain = PyRef::steal(PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self)));
  return plain ? Py_BuildValue("(O(N))", &SizeType, PySequence_List(plain.get())) : nullptr;
}

PyMethodDef g_methods[] = {
    {"numel", size_numel, METH_NOARGS, "The number of elements of a tensor of this size."},
    {"__reduce__", size_reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyNumberMethods g_number;
PySequenceMethods g_sequence;
PyMappingMethods g_mapping;

} // namespace

PyTypeObject SizeType = blank_type("tesserack.Size", 0, "The sizes of a tensor's dimensions: a tuple of ints.");

PyObject* size_object(IntSpan sizes) {
  PyObject* out = SizeType.tp_alloc(&SizeType, static_cast<Py_ssize_t>(sizes.size()));
  if (!out) throw_python();
  for (size_t i = 0; i < sizes.size(); ++i) {
    PyObject* n = PyLong_FromLongLong(sizes[i]);
    if (!n) {
      Py_DECREF(out);
      throw_python();
    }
    PyTuple_SET_ITEM(out, static_cast<Py_ssize_t>(i), n);
  }
  return out;
}

void init_size_type(PyObject* module) {
  g_number.nb_add = size_add;
  g_sequence.sq_concat = size_concat;
  g_sequence.sq_repeat = size_repeat;
  g_mapping.mp_subscript = size_subscript;
  g_mapping.mp_length = PyTuple_Type.tp_as_mapping->mp_length;
  SizeType.tp_basicsize = PyTuple_Type.tp_basicsize;
  SizeType.tp_itemsize = PyTuple_Type.tp_itemsize;
  SizeType.tp_flags |= Py_TPFLAGS_BASETYPE;
  SizeType.tp_base = &PyTuple_Type;
  SizeType.tp_new = size_new;
  SizeType.tp_repr = size_repr;
  SizeType.tp_methods = g_methods;
  SizeType.tp_as_number = &g_number;
  SizeType.tp_as_sequence = &g_sequence;
  SizeType.tp_as_mapping = &g_mapping;
  checked_status(PyType_Ready(&SizeType));
  add_object(module, "Size", reinterpret_cast<PyObject*>(&SizeType));
}

} // namespace ts::py
