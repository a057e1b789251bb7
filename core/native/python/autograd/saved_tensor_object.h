// What a node keeps of one tensor, seen from Python, and hooks in Python on what is kept.
#pragma once
#include "autograd/saved_tensor.h"
#include "python/common.h"

namespace ts::py {

SavedTensorHooks saved_tensor_hooks(PyObject* pack, PyObject* unpack);
// `saved` belongs to `node`.
PyObject* saved_tensor_object(Ref<Node> node, SavedTensor* saved);
void init_saved_tensor_type(PyObject* module);

} // namespace ts::py
