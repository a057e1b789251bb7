// Tensors over memory of other libraries, and back: buffers, NumPy, DLPack.
#pragma once
#include "python/tensor/tensor_object.h"

namespace ts::py {

// A tensor over the memory of a NumPy array or any other buffer; the array stays alive with it. TypeError for element
// types without a dtype. Read-only memory gives a tensor that in-place operators refuse.
Tensor from_array(PyObject* array);
bool is_exported(const Storage* storage); // whether an array or another buffer looks at it
void warn_read_only(const Tensor& t);     // that writing to it is refused, if its memory was lent to be read alone
// A tensor from a DLPack capsule, or from an object that gives one.
Tensor from_dlpack(PyObject* o);
// A new numpy.ndarray sharing memory with a host tensor.
PyRef to_numpy(const Tensor& t);
void init_buffer(PyObject* module);
void init_dlpack(PyObject* module);

} // namespace ts::py
