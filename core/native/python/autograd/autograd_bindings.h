// Cold functions behind tesserack.autograd.
#pragma once
#include "python/common.h"

namespace ts::py {

void init_autograd(PyObject* module);  // tensor_autograd.cpp: the engine
void init_grad_mode(PyObject* module); // grad_mode.cpp: no_grad and its like, anomaly mode, saved-tensor hooks

} // namespace ts::py
