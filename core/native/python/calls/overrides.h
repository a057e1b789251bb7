// __torch_function__: classes, tensors or not, that take over functions they are given to.
#pragma once
#include "python/common.h"

namespace ts::py {

// Some subclass of Tensor or a mode may override: operators look at their arguments before they run.
extern bool g_overrides_watched;

// What an argument's __torch_function__ makes of the call; NULL without an error where no argument has one.
PyObject* try_override(PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames);
// The same for an operator of the language, by the name of its method; `quiet`: NotImplemented where no class knows it.
PyObject* try_override_slot(const char* method, PyObject* a, PyObject* b, bool quiet = false);

// And for a method of tensors that is no operator.
PyObject* try_override_method(const char* method, PyObject* self, PyObject* args, PyObject* kwargs);

bool takes_calls(PyObject* tensor); // whether its class has a __torch_function__ that is in force
int override_modes();               // entered by this thread

void init_overrides(PyObject* module);

} // namespace ts::py
