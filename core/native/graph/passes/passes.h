// What makes a graph of one level smaller and leaves what it computes, bit by bit. Each pass takes a graph that
// verifies and gives one. They rely on the memory that values share, which follows from the sizes and layouts that the
// program was written down with: a graph that writes to memory is for these alone.
#pragma once
#include "graph/graph.h"

namespace ts::graph {

// Numbers that follow from sizes, as constants, and no guards: for inputs of the sizes that were written down.
Graph specialised(const Graph& g);
// What constants decide, computed now: pure operators on constant captures and numbers.
Graph fold(const Graph& g);
// One of several equal calls. Never of random ones, or of ones between which what they read is written.
Graph share_equal(const Graph& g);
// By the table of exact rewrites in passes/rewrite.cpp.
Graph rewrite(const Graph& g);
Graph rewrite_for_any_size(const Graph& g); // without rows that count on the sizes that were written down
// Without what nobody sees. Random numbers stay drawn, so that later ones are those of the program.
Graph without_dead(const Graph& g);

// All of them until nothing changes; verified after each. `freeze`: captures count as constants. `any_size`: for inputs
// of other sizes, too.
Graph optimised(Graph g, bool freeze, bool any_size = false);
bool writes_memory(const Graph& g);
// RuntimeError where a pass left out, doubled or moved what may only be done once and in order: calls that
// communicate, operators that nothing is known of, random numbers.
void verify_effects(const Graph& before, const Graph& after);

// Where memory is written, and who sees it.
class Memory {
public:
  explicit Memory(const Graph& g);
  bool is_written(Id v) const { return !writes_[g_.values[v].alias].empty(); }
  bool is_written_between(Id v, Id first, Id last) const;                   // by nodes after first and before last
  bool is_seen_outside(Id v) const { return outside_[g_.values[v].alias]; } // an input's, a capture's, an output's
  // Whether `result`, memory of its own that a node made, may be `source` itself.
  bool may_become(Id result, Id source) const {
    return !is_written(result) && !is_written(source) && !is_given(result);
  }
  bool is_given(Id v) const { return given_[g_.values[v].alias]; } // an output's

private:
  const Graph& g_;
  std::vector<std::vector<Id>> writes_; // by alias: nodes
  std::vector<bool> outside_, given_;
};

std::vector<Id> no_change(const Graph& g); // every value is itself

} // namespace ts::graph
