// What Python's runners of graphs have.
#pragma once
#include "graph/executor.h"
#include <memory>
#include <pybind11/pybind11.h>

namespace ts::py_runtime {

bool is_runner(const pybind11::object& object); // a _GraphRunner
std::shared_ptr<const graph::Executor> executor_of(const pybind11::object& runner);
bool runs_outside(const pybind11::object& runner); // of all autocast regions

} // namespace ts::py_runtime
