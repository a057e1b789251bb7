// What Python's runners of graphs have.
#pragma once
#include "graph/executor.h"
#include "python/bound.h"
#include <memory>

namespace ts::py_runtime {

bool is_runner(const nb::object& object); // a _GraphRunner
std::shared_ptr<const graph::Executor> executor_of(const nb::object& runner);
bool runs_outside(const nb::object& runner); // of all autocast regions

} // namespace ts::py_runtime
