// a.item() and a.tolist().
#include "dispatch/boxing.h"
#include "dispatch/op_handles.h"
#include "python/items.h"
#include "python/parse.h"
#include "python/tensor_slots.h"
#include "runtime/capture_state.h"

namespace ts::py {
namespace {

PyObject* item(PyObject* self, PyObject*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    TS_CHECK(t.numel() == 1, "a Tensor with ", t.numel(), " elements cannot be converted to Scalar");
    TS_CHECK(!t.device().is_meta(), "item: a meta tensor has no data");
    alignas(16) char bytes[16];
    copy_bytes_to_host(bytes, t, static_cast<size_t>(t.item_size()), "item");
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
    const Tensor& t = tensor_of(self);
    TS_CHECK(!t.device().is_meta(), "tolist: a meta tensor has no data");
    check_recordable(t.device(), "a read of values by the host");
    if (const char* at = t.data<char>(); at || t.numel() == 0) return nested_list(t, at, 0).release();
    Tensor dense = ops::contiguous(t);
    auto bytes = std::make_unique<char[]>(static_cast<size_t>(dense.nbytes()));
    copy_bytes_to_host(bytes.get(), dense, static_cast<size_t>(dense.nbytes()), "tolist");
    return nested_list(dense, bytes.get(), 0).release();
  });
}

} // namespace

std::vector<PyMethodDef> item_methods() {
  return {
      {"item", item, METH_NOARGS, "item()\n--\n\nThe only element as a Python number. RuntimeError for more than one."},
      {"__complex__", to_complex, METH_NOARGS, "__complex__()\n--\n\nThe only element as a Python complex."},
      {"tolist", tolist, METH_NOARGS,
       "tolist()\n--\n\nThe elements as nested lists of Python numbers; a number for a 0-d tensor."}};
}

} // namespace ts::py
