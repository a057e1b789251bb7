// Operators as Python callables: functions of the package and methods of Tensor.
#pragma once
#include "python/calls/operator_plan.h"

namespace ts::py {

// The function (new reference) over all overloads of one Python name; methods bind like Python functions do.
PyObject* operator_object(const std::string& name, const std::vector<const Operator*>& overloads, bool method);
// Sets every public method of the registry on the Tensor class. Returns ({name: function} of all operators, names of
// those that the package shows).
PyRef install_operators();
void init_operator_types(PyObject* module);

} // namespace ts::py
