// a.item() and a.tolist().
#include "dispatch/boxing.h"
#include "dispatch/op_handles.h"
#include "extend/pending_bits.h"
#include "python/calls/parse.h"
#include "python/graph/traced_size.h"
#include "python/tensor/items.h"
#include "python/tensor/tensor_slots.h"
#include "python/tensor/tensor_subclass.h"
#include "runtime/recording_state.h"

namespace ts::py {
namespace {

// Who captures a run of the program: asked first, with the tensor; NotImplemented where it goes on as ever.
PyObject* g_on_item = nullptr;

PyObject* on_item(PyObject*, PyObject* function) {
  PyRef before = PyRef::steal(std::exchange(g_on_item, function == Py_None ? nullptr : Py_NewRef(function)));
  return none();
}

PyObject* item(PyObject* self, PyObject*) {
  if (g_on_item) [[unlikely]] {
    PyRef taker = PyRef::borrow(g_on_item), found = PyRef::steal(PyObject_CallOneArg(taker.get(), self));
    if (found.get() != Py_NotImplemented) return found.release();
  }
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    TS_CHECK(t.numel() == 1, "a Tensor with ", t.numel(), " elements cannot be converted to Scalar");
    if (item_comes_from_python(t)) [[unlikely]]
      return dispatched_item(t).release();
    TS_CHECK(!t.device().is_meta(), "Tensor.item() cannot be called on meta tensors: they have no data");
    note_host_read(t, "Python number");
    alignas(16) char bytes[16];
    copy_bytes_to_host(bytes, materialized(t), static_cast<size_t>(t.item_size()), "item");
    return checked(item_object(t.dtype(), bytes)).release();
  });
}

PyObject* to_complex(PyObject* self, PyObject*) {
  return guarded([&] {
    TS_CHECK_VALUE(tensor_of(self).numel() == 1, "only one element tensors can be converted to Python scalars, got ",
                   tensor_of(self).numel(), " elements");
    PyRef number = checked(item(self, nullptr));
    Py_complex c = PyComplex_AsCComplex(number.get());
    if (PyErr_Occurred()) throw_python();
    return checked(PyComplex_FromCComplex(c)).release();
  });
}

// One dimension of a strided host block as a list.
PyRef nested_list(const Tensor& t, const char* at, size_t dim) {
  if (dim == t.sizes().size()) return checked(item_object(t.dtype(), at));
  // Without elements there may be no address to count from.
  int64_t n = t.sizes()[dim], step = t.numel() == 0 ? 0 : t.strides()[dim] * t.item_size();
  PyRef list = checked(PyList_New(n));
  for (int64_t k = 0; k < n; ++k) PyList_SET_ITEM(list.get(), k, nested_list(t, at + k * step, dim + 1).release());
  return list;
}

PyObject* tolist(PyObject* self, PyObject*) {
  return guarded([&] {
    TS_CHECK_KIND(ErrorKind::NotImplemented, !tensor_of(self).device().is_meta(),
                  "tolist: Cannot copy out of meta tensor; no data!");
    note_host_read(tensor_of(self), "Python list");
    const Tensor t = materialized(tensor_of(self));
    check_recordable(t.device(), "a read of values by the host");
    if (const char* at = t.data<char>(); at || t.numel() == 0) return nested_list(t, at, 0).release();
    Tensor dense = ops::contiguous(t);
    auto bytes = std::make_unique<char[]>(static_cast<size_t>(dense.nbytes()));
    copy_bytes_to_host(bytes.get(), dense, static_cast<size_t>(dense.nbytes()), "tolist");
    return nested_list(dense, bytes.get(), 0).release();
  });
}

// A number that the host keeps in a tensor without dims, as optimizers' counts of steps; anything else is an error.
const Tensor& host_number(PyObject* o) {
  bool fits = is_tensor(o) && tensor_of(o).sizes().empty() && tensor_of(o).data<char>() &&
              (tensor_of(o).dtype() == DType::Float32 || tensor_of(o).dtype() == DType::Float64);
  TS_CHECK_TYPE(fits, "expected a tensor of no dims on the cpu, of float32 or float64");
  return tensor_of(o);
}

// They are read and written without a call of an operator: a step has one for each parameter.
PyObject* host_numbers(PyObject*, PyObject* tensors) {
  return guarded([&] {
    PyRef items = checked(PySequence_Fast(tensors, "_host_numbers: expected a list"));
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
    PyRef list = checked(PyList_New(n));
    for (Py_ssize_t k = 0; k < n; ++k) {
      const Tensor& t = host_number(PySequence_Fast_GET_ITEM(items.get(), k));
      double value = t.dtype() == DType::Float32 ? static_cast<double>(*t.data<float>()) : *t.data<double>();
      PyList_SET_ITEM(list.get(), k, checked(PyFloat_FromDouble(value)).release());
    }
    return list.release();
  });
}
PyObject* set_host_numbers(PyObject*, PyObject* args) {
  PyObject *tensors, *values;
  if (!PyArg_ParseTuple(args, "OO:_set_host_numbers", &tensors, &values)) return nullptr;
  return guarded([&] {
    PyRef items = checked(PySequence_Fast(tensors, "_set_host_numbers: expected a list"));
    PyRef numbers = checked(PySequence_Fast(values, "_set_host_numbers: expected a list"));
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
    TS_CHECK(n == PySequence_Fast_GET_SIZE(numbers.get()), "_set_host_numbers: expected one number for each tensor");
    for (Py_ssize_t k = 0; k < n; ++k) {
      const Tensor& t = host_number(PySequence_Fast_GET_ITEM(items.get(), k));
      double value = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(numbers.get(), k));
      if (PyErr_Occurred()) throw_python();
      if (t.dtype() == DType::Float32)
        *t.data<float>() = static_cast<float>(value);
      else
        *t.data<double>() = value;
      t.impl()->bump_version();
    }
    return none();
  });
}
PyMethodDef number_functions[] = {{"_on_item", on_item, METH_O, nullptr},
                                  {"_host_numbers", host_numbers, METH_O, nullptr},
                                  {"_set_host_numbers", set_host_numbers, METH_VARARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

} // namespace

void init_host_numbers(PyObject* module) { checked_status(PyModule_AddFunctions(module, number_functions)); }

std::vector<PyMethodDef> item_methods() {
  return {
      {"item", item, METH_NOARGS, "item()\n--\n\nThe only element as a Python number. RuntimeError for more than one."},
      {"__complex__", to_complex, METH_NOARGS, "__complex__()\n--\n\nThe only element as a Python complex."},
      {"tolist", tolist, METH_NOARGS,
       "tolist()\n--\n\nThe elements as nested lists of Python numbers; a number for a 0-d tensor."}};
}

} // namespace ts::py
