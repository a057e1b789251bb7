// Indexing while a program is written down: by operators that keep bounds as they were given, so that x[1:n] is that of
// later inputs, too; tensors of numbers likewise.
#pragma once
#include "python/graph/traced_size.h"

namespace ts::py {

Tensor traced_select(const Tensor& t, int64_t dim, PyObject* index);
Tensor traced_slice(const Tensor& t, int64_t dim, PyObject* slice); // of a positive step
bool goes_forward(PyObject* slice);
Tensor traced_scalar(PyObject* number, DType dtype, Device device); // of no dims

} // namespace ts::py
