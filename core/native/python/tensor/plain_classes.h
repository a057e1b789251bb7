// Classes of tensors that are like Tensor in all that operators look at: parameters and buffers.
#pragma once
#include "python/tensor/tensor_object.h"
#include <algorithm>
#include <vector>

namespace ts::py {

inline std::vector<PyTypeObject*> plain_classes; // set by the package, for ever

inline bool is_known_tensor(PyObject* o) {
  return is_plain_tensor(o) || std::ranges::find(plain_classes, Py_TYPE(o)) != plain_classes.end();
}

} // namespace ts::py
