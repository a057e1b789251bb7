// What the garbage collector of Python sees of the tape: objects that tensors and nodes keep alive.
//
// Tensors and nodes that are held by nothing but what one Python object holds belong to that object: theirs are shown
// as its own. What somebody else holds too is left out, so that nothing is taken for garbage that C++ still uses.
#pragma once
#include "autograd/node.h"
#include "python/common.h"

namespace ts::py {

struct TensorObject;

// Of a tensor that its object alone holds: its history, gradient, hooks and base. Of one that holds its object, if it
// is held by nothing but itself; then the object, too. Otherwise what holds the tensor shows them.
int visit_tensor(TensorObject* o, visitproc visit, void* arg);
// All references to it but the caller's are held by what it holds itself.
bool holds_itself(TensorImpl* t);
// Of a node that only the caller holds.
int visit_node(const Node& node, visitproc visit, void* arg);
// Drops what visit_... showed.
void clear_tensor(TensorImpl* t);
void clear_node(Node& node);

// From now on every tensor with a history is looked at: a program that registers hooks or keeps objects in nodes may
// have made a cycle through any of them.
void watch_all_for_cycles();

} // namespace ts::py
