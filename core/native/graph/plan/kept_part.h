// A card's compiler at work. Where it can write down what it made, that is kept on the user's disk, among compiled
// kernels, and a second process compiles nothing.
#pragma once
#include "runtime/backend.h"

namespace ts::graph {

// A status of ts_compiler.compile; TS_OK also where the part was made from what is kept. `compiled` is the card's.
int compile_part(Backend& backend, int32_t device, const ts_graph& part, void** compiled);

// All that a part depends on, memory apart: equal for equal parts in every process. "" where something in it means
// nothing elsewhere.
std::string key_of_part(Backend& backend, int32_t device, const ts_graph& part);

} // namespace ts::graph
