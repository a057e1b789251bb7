#include "python/tensor/factory_layout.h"
#include "python/common.h"
#include "python/types.h"
#include "tensor/sparse.h"
#include <algorithm>

namespace ts::py {
namespace {

PyObject* layout_given(const CallArgs& call) {
  for (size_t k = 0; k < call.nkw(); ++k)
    if (!PyUnicode_CompareWithASCIIString(call.kwname(k), "layout") && as_layout(call.kwvalue(k)))
      return call.kwvalue(k);
  return nullptr;
}

bool makes_tensors(const Plan& plan) {
  return std::any_of(plan.plain.begin(), plan.plain.end(), [](const Signature& s) { return s.factory; });
}

bool of_sparse(const CallArgs& call) {
  return call.nargs > 0 && is_tensor(call.args[0]) && tensor_of(call.args[0])->payload;
}

} // namespace

bool is_dense_layout(const CallArgs& call, PyObject* value) {
  return value == Py_None || (value == strided_layout() && !of_sparse(call));
}

PyObject* try_layout(PyObject* function, const Plan& plan, const CallArgs& call) {
  if (!call.kwnames || !makes_tensors(plan)) return nullptr;
  PyObject* layout = layout_given(call);
  if (!layout || is_dense_layout(call, layout)) return nullptr;
  PyRef positional = checked(PyTuple_New(static_cast<Py_ssize_t>(call.nargs)));
  for (size_t k = 0; k < call.nargs; ++k)
    PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(k), Py_NewRef(call.args[k]));
  PyRef options = checked(PyDict_New());
  for (size_t k = 0; k < call.nkw(); ++k)
    checked_status(PyDict_SetItem(options.get(), call.kwname(k), call.kwvalue(k)));
  PyRef module = checked(PyImport_ImportModule("tesserack.sparse._factories"));
  return checked(PyObject_CallMethod(module.get(), "make_with_layout", "OsOO", function, plan.name.c_str(),
                                     positional.get(), options.get()))
      .release();
}

} // namespace ts::py
