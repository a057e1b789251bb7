// The extension module tesserack._native.
#include "python/autograd/autograd_bindings.h"
#include "python/autograd/function_node.h"
#include "python/autograd/node_object.h"
#include "python/autograd/saved_tensor_object.h"
#include "python/bound.h"
#include "python/calls/operand_object.h"
#include "python/calls/operator_object.h"
#include "python/calls/overrides.h"
#include "python/calls/python_dispatch.h"
#include "python/comm_bindings.h"
#include "python/devices/python_backend.h"
#include "python/devices/runtime_bindings.h"
#include "python/graph/traced_size.h"
#include "python/shown_package.h"
#include "python/tensor/construct.h"
#include "python/tensor/interop.h"
#include "python/tensor/sparse_object.h"
#include <array>
#include <stdexcept>
#include <utility>

extern "C" const char* tesserack_version(void);

namespace ts::py {
namespace {

void init_tensor(PyObject* module) { add_object(module, "Tensor", reinterpret_cast<PyObject*>(make_tensor_type())); }

void init_version(PyObject* module) {
  PyRef version = to_python(tesserack_version());
  add_object(module, "__version__", version.get());
}

// Functions that nanobind binds, in the order of `entries`.
constexpr size_t kMostFunctions = 192;
PyObject* g_bound[kMostFunctions];

template <size_t at> PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return PyObject_Vectorcall(g_bound[at], args, static_cast<size_t>(n), names);
}
template <size_t... at> constexpr auto entries(std::index_sequence<at...>) {
  return std::array<_PyCFunctionFastWithKeywords, sizeof...(at)>{entry<at>...};
}

// nanobind's functions are objects of a type of its own. Python's builtins are what can be pickled and copied, what
// tools find, and what programs that are compiled may hold.
void show_as_builtins(PyObject* module) {
  static constexpr auto kEntries = entries(std::make_index_sequence<kMostFunctions>());
  static PyMethodDef methods[kMostFunctions];
  PyRef home = checked(PyModule_GetNameObject(module));
  PyRef kind = checked(PyObject_GetAttrString(module, "get_default_dtype"));
  PyObject *name, *value;
  size_t n = 0;
  for (Py_ssize_t at = 0; PyDict_Next(PyModule_GetDict(module), &at, &name, &value);) {
    if (Py_TYPE(value) != Py_TYPE(kind.get())) continue;
    TS_CHECK(n < kMostFunctions, "tesserack._native has more functions than places for them");
    const char* text = PyUnicode_AsUTF8(name);
    const char* doc = nullptr;
    if (*text != '_') doc = PyUnicode_AsUTF8(checked(PyObject_GetAttrString(value, "__doc__")).release());
    auto call = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kEntries[n]));
    methods[n] = {text, call, METH_FASTCALL | METH_KEYWORDS, doc};
    g_bound[n] = Py_NewRef(value);
    PyRef shown = checked(PyCFunction_NewEx(&methods[n], module, home.get()));
    checked_status(PyDict_SetItem(PyModule_GetDict(module), name, shown.get()));
    ++n;
  }
}

void fill(PyObject* module) {
  for (auto init : {init_version,
                    init_errors,
                    init_types,
                    init_tensor,
                    init_operator_types,
                    init_node_type,
                    init_saved_tensor_type,
                    init_function_node,
                    init_autograd,
                    init_grad_mode,
                    init_construct,
                    init_buffer,
                    init_dlpack,
                    init_runtime,
                    init_streams,
                    init_operand_type,
                    init_python_kernel,
                    init_python_backend,
                    init_python_dispatch,
                    init_overrides,
                    init_shown_package,
                    init_sparse,
                    init_traced_size,
                    init_named_results,
                    init_comm})
    init(module);
  show_as_builtins(module);
  init_interpreter_hooks();
}

} // namespace
} // namespace ts::py

NB_MODULE(_native, module) {
  module.doc() = "The native core of Tesserack.";
  nb::set_leak_warnings(false);
  // Static state belongs to one interpreter. What is thrown here becomes an ImportError.
  if (ts::py::TensorType) throw std::runtime_error("tesserack._native can be loaded only once per process");
  if (ts::py::guarded([&] { return ts::py::fill(module.ptr()), 0; }) < 0) throw nb::python_error();
}
