// Sparse tensors for the package: making them of parts, and looking at the parts.
#pragma once
#include "python/common.h"

namespace ts::py {

void init_sparse(PyObject* module);

} // namespace ts::py
