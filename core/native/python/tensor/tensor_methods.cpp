// The method table of Tensor, its constructor, and repr by way of Python.
#include "dispatch/op_handles.h"
#include "ops/common/raw.h"
#include "python/tensor/construct.h"
#include "python/tensor/tensor_slots.h"
#include "python/tensor/tensor_subclass.h"
#include "runtime/backend.h"
#include "runtime/empty.h"

namespace ts::py {
namespace {

PyObject* call_printer(PyObject* self, const char* function) {
  PyRef module = PyRef::steal(PyImport_ImportModule("tesserack._tensor.printing"));
  return module ? PyObject_CallMethod(module.get(), function, "O", self) : nullptr;
}
PyObject* repr(PyObject* self) { return call_printer(self, "tensor_repr"); }

Tensor unset_tensor(IntSpan sizes, Device device) {
  Tensor t = empty_tensor(sizes, default_dtype(), device);
  fill_unset(t);
  return t;
}

// Tensor(), Tensor(2, 3), Tensor([1, 2]): the historical constructor, of the default dtype. Tensor(tensor), of
// subclasses too, is the same memory, with a part in the graph.
Tensor legacy(PyObject* args, Device device) {
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  Scratch scratch;
  Value sizes;
  PyObject* first = n ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (n == 1 && Py_TYPE(first) == &SizeType) {
    as_int_list(first, sizes, scratch);
    return unset_tensor(sizes.as_ints(), device);
  }
  if (n == 1 && is_tensor(first)) {
    static const Op same_memory("alias");
    return same_memory(tensor_of(first));
  }
  int64_t i = 0;
  if (n == 1 && !as_int(first, i)) return construct_tensor(first, default_dtype(), device);
  TS_CHECK_TYPE(as_int_list(args, sizes, scratch), "Tensor(): expected sizes as ints, or one sequence of data");
  if (n == 0) {
    int64_t none = 0;
    return unset_tensor(IntSpan(&none, 1), device);
  }
  return unset_tensor(sizes.as_ints(), device);
}

PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    // Subclasses may take keywords of their own in __init__.
    PyObject* where = kwargs ? PyDict_GetItemString(kwargs, "device") : nullptr;
    TS_CHECK_TYPE(
        !kwargs || type != TensorType || PyDict_GET_SIZE(kwargs) == (where ? 1 : 0),
        "Tensor(): got an unexpected keyword argument; use tesserack.tensor(data, dtype=..., requires_grad=...)");
    TS_CHECK(
        !where || where == Py_None || PyTuple_GET_SIZE(args) != 1 || !is_tensor(PyTuple_GET_ITEM(args, 0)),
        "Tensor(): a tensor is taken with the memory that it has: expected no device beside it; try as_tensor or to()");
    Device device = where && where != Py_None ? expect_device(where, "Tensor") : default_device();
    Tensor made = legacy(args, device);
    mark_for(type, made);
    return wrap_as(type, std::move(made));
  });
}

} // namespace

std::vector<PyType_Slot> conversion_slots() {
  static std::vector<PyMethodDef> methods = [] {
    std::vector<PyMethodDef> all;
    for (auto family : {item_methods(), metadata_methods(), autograd_methods(), interop_methods(), subclass_methods()})
      all.insert(all.end(), family.begin(), family.end());
    all.push_back({nullptr, nullptr, 0, nullptr});
    return all;
  }();
  return {{Py_tp_methods, methods.data()},
          {Py_tp_repr, reinterpret_cast<void*>(repr)},
          {Py_tp_new, reinterpret_cast<void*>(construct)}};
}

} // namespace ts::py
