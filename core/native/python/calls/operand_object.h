// What a kernel written in Python sees of a tensor: a storage handle, an offset, sizes and strides.
#pragma once
#include "python/devices/python_backend.h"

namespace ts::py {

// A new Operand; the plain number of an operand without storage; None for one that is absent.
PyObject* operand_object(const KernelOwner& owner, const ts_tensor& t);
void init_operand_type(PyObject* module);

} // namespace ts::py
