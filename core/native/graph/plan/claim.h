// Parts of a plan's work that the card compiles itself, where it has a compiler (ts_compiler): each is one call then.
#pragma once
#include "graph/plan/record.h"

namespace ts::graph {

struct ClaimOptions {
  Device device;
  const std::vector<bool>& there; // by buffer: it is memory from before the calls, or of a node that is called
  const std::vector<bool>& stays; // by buffer: it is seen by others than the calls
  const std::vector<Id>&
      calls_before; // by node: operators that are called as ever before it, which no part reaches over
};

// In place; returns how many calls went into parts. A part that the card declines stays as it was; where its compiler
// fails, or answers what cannot be, that is a RuntimeWarning besides.
size_t claim_parts(std::vector<Work>& work, const ClaimOptions& options);

} // namespace ts::graph
