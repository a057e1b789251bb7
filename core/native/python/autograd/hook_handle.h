// What registering a hook returns to Python.
#pragma once
#include "autograd/node.h"
#include "python/common.h"

namespace ts::py {

// A function of no arguments that takes the hook away (new reference). It keeps neither tensor nor node alive.
PyObject* hook_remover(HookPlace place);

} // namespace ts::py
