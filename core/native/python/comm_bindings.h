// What tesserack.distributed has of the native communicator.
#pragma once
#include "python/common.h"

namespace ts::py {

void init_comm(PyObject* module);

} // namespace ts::py
