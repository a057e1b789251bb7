// Neighbouring pointwise calls as one, with one program: what lies between is not stored where nobody else reads it.
#pragma once
#include "graph/plan/record.h"

namespace ts::graph {

struct FuseOptions {
  Device device;
  const std::vector<bool>& stays;      // by buffer: it is seen by others than the calls
  const std::vector<Id>& calls_before; // by node: operators that are called as ever before it
};

// In place; returns how many calls went into others. What a result is rounded to when it is stored, it is rounded to
// in the program. Each program is tried before it is taken: where the card's kernel gives other bits for it than for
// its parts, as one that multiplies and adds at once does, the parts stay apart.
size_t fuse_pointwise(std::vector<Work>& work, const FuseOptions& options);

} // namespace ts::graph
