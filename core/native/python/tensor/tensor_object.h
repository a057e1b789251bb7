// The Python class Tensor: one object per TensorImpl, and back.
//
// Normally the Python object owns the tensor, which knows its object by a borrowed pointer. When the last Python
// reference goes while C++ still holds the tensor, a plain object dies (a new one is made on demand); one with state
// of its own (attributes, weak references, a subclass) is kept: ownership flips and the tensor owns the object, until
// it is handed to Python again.
#pragma once
#include "python/common.h"
#include "tensor/tensor.h"

namespace ts::py {

struct TensorObject {
  PyObject_HEAD TensorImpl* impl; // never NULL
  PyObject* dict;
  PyObject* weakrefs;
  bool owned_by_impl;
};

inline PyTypeObject* TensorType = nullptr;
PyTypeObject* make_tensor_type(); // with all its slots; sets TensorType

inline bool is_plain_tensor(PyObject* o) { return Py_TYPE(o) == TensorType; }
inline bool is_tensor(PyObject* o) { return is_plain_tensor(o) || PyType_IsSubtype(Py_TYPE(o), TensorType); }
inline TensorObject* as_object(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }
inline TensorImpl* impl_of(PyObject* o) { return as_object(o)->impl; }
// The object's reference, seen as a handle.
inline const Tensor& tensor_of(PyObject* o) { return *reinterpret_cast<const Tensor*>(&as_object(o)->impl); }

// The Python object of a tensor (new reference): the one it has, or a fresh one. None if undefined.
PyObject* wrap(Tensor t);
// A tensor as an instance of a subclass. The tensor must have no object yet.
PyObject* wrap_as(PyTypeObject* type, Tensor t);
// Whether a call of a method was made by who captures the run; with its result or, NULL, an error.
bool is_taken(const char* method, PyObject* self, PyObject* args, PyObject* kwargs, PyRef& result);
bool has_taker(); // who may take calls
// The tensor behind `o`; TypeError naming `what` otherwise.
const Tensor& expect_tensor(PyObject* o, const char* what);
// Lets the garbage collector look at a tensor that may be part of a cycle.
void watch_for_cycles(PyObject* tensor);

} // namespace ts::py
