// `layout=` of factory functions, where it is not what dense tensors have anyway.
#pragma once
#include "python/calls/operator_plan.h"

namespace ts::py {

// Whether a call whose layout= is `value` makes a dense tensor of dense arguments, as the operator itself does.
bool is_dense_layout(const CallArgs& call, PyObject* value);
// What the package's sparse half makes of a call that no overload took; NULL where layout= was not the reason.
PyObject* try_layout(PyObject* function, const Plan& plan, const CallArgs& call);

} // namespace ts::py
