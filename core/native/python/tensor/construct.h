// Tensors from Python data: numbers, nested sequences, arrays.
#pragma once
#include "python/calls/parse.h"

namespace ts::py {

// A new tensor holding a copy of the data. Undefined dtype: inferred as PyTorch does.
Tensor construct_tensor(PyObject* data, DType dtype, Device device);
// Without a copy where memory can be shared (tensors of the same dtype and device, host arrays).
Tensor construct_as_tensor(PyObject* data, DType dtype, std::optional<Device> device);
void init_construct(PyObject* module);

} // namespace ts::py
