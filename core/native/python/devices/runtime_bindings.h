// Cold functions: backends, devices, memory, random state, the operator registry.
#pragma once
#include "python/common.h"

namespace ts::py {

void init_runtime(PyObject* module);
void init_streams(PyObject* module);

} // namespace ts::py
