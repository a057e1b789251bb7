// Dispatch keys, kernels at them and operators, from Python.
#pragma once
#include "python/common.h"

namespace ts {
struct ArgType;
struct Value;
} // namespace ts

namespace ts::py {

// An argument of an operator as Python has it.
PyRef argument_object(const ArgType& type, const Value& v);
void init_python_dispatch(PyObject* module);

} // namespace ts::py
