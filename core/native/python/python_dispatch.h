// Dispatch keys, kernels at them and operators, from Python.
#pragma once
#include "python/common.h"

namespace ts::py {

void init_python_dispatch(PyObject* module);

} // namespace ts::py
