// grad_fn objects: the nodes of the tape, seen from Python.
#pragma once
#include "autograd/node.h"
#include "python/common.h"

namespace ts::py {

// The object of a node (new reference), the same one while anybody holds it; None for no node. Its class is named
// after the node, as in AddBackward0.
PyObject* node_object(Ref<Node> node);
// The same, but of a Python Function's node an object beside its context, which keeps the node.
PyObject* owning_node_object(Ref<Node> node);
PyTypeObject* node_type(const Node& node); // that of its objects, borrowed
Node* node_of(PyObject* o);                // NULL if it is not a node object
void init_node_type(PyObject* module);

} // namespace ts::py
