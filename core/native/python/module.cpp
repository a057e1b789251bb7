// The extension module tesserack._native.
#include "python/autograd/autograd_bindings.h"
#include "python/autograd/function_node.h"
#include "python/autograd/node_object.h"
#include "python/autograd/saved_tensor_object.h"
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

extern "C" const char* tesserack_version(void);

namespace ts::py {
namespace {

void init_tensor(PyObject* module) { add_object(module, "Tensor", reinterpret_cast<PyObject*>(make_tensor_type())); }

void init_version(PyObject* module) {
  PyRef version = to_python(tesserack_version());
  add_object(module, "__version__", version.get());
}

int execute(PyObject* module) {
  return guarded([&] {
    // Static state belongs to one interpreter.
    if (TensorType) raise(PyExc_ImportError, "tesserack._native can be loaded only once per process");
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
    init_interpreter_hooks();
    return 0;
  });
}

PyModuleDef_Slot g_slots[] = {{Py_mod_exec, reinterpret_cast<void*>(execute)}, {0, nullptr}};
PyModuleDef g_module = {PyModuleDef_HEAD_INIT,
                        "tesserack._native",
                        "The native core of Tesserack.",
                        0,
                        nullptr,
                        g_slots,
                        nullptr,
                        nullptr,
                        nullptr};

} // namespace
} // namespace ts::py

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&ts::py::g_module); }
