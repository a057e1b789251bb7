// The package in whose name dtypes, sizes and their like print: this one, or the one a program asked through.
#pragma once
#include "python/common.h"

namespace ts::py {

std::string shown_package();
void init_shown_package(PyObject* module);

} // namespace ts::py
