// What Python's runners of graphs have.
#pragma once
#include "graph/executor.h"
#include <memory>
#include <pybind11/pybind11.h>

namespace ts::py_runtime {

std::shared_ptr<const graph::Executor> executor_of(const pybind11::object& runner); // of a _GraphRunner

} // namespace ts::py_runtime
