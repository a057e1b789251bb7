// The extension module tesserack._native.
#include "python/autograd_bindings.h"
#include "python/comm_bindings.h"
#include "python/construct.h"
#include "python/function_node.h"
#include "python/graph/traced_size.h"
#include "python/interop.h"
#include "python/node_object.h"
#include "python/operand_object.h"
#include "python/operator_object.h"
#include "python/overrides.h"
#include "python/python_backend.h"
#include "python/python_dispatch.h"
#include "python/runtime_bindings.h"
#include "python/saved_tensor_object.h"
#include "python/shown_package.h"
#include "python/sparse_object.h"

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
