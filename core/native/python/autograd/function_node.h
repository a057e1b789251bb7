// autograd.Function: a node of the tape whose gradient is written in Python.
#pragma once
#include "autograd/node.h"
#include "python/common.h"

namespace ts::py {

// The context object of a Python Function's node (borrowed); NULL for other nodes. It is what Python knows the node by,
// and does not keep it.
PyObject* function_context(Node& node);
bool is_function_context(PyObject* o);
Node* node_of_context(PyObject* context); // NULL once the graph is gone
void init_function_node(PyObject* module);

} // namespace ts::py
