// autograd.Function: a node of the tape whose gradient is written in Python.
#pragma once
#include "autograd/node.h"
#include "python/common.h"

namespace ts::py {

// The context object of a Python Function's node (borrowed); NULL for other nodes.
PyObject* function_context(Node& node);
void init_function_node(PyObject* module);

} // namespace ts::py
