// Nodes that have no edge for an operand which wants no gradient, and tell programs that there is one.
#pragma once
#include <cstdint>
#include <vector>

namespace ts {

struct ShowsEdges {
  virtual ~ShowsEdges() = default;
  // For each operand its index among the node's edges, -1 for one that wants no gradient.
  virtual std::vector<int32_t> shown_edges() const = 0;
};

} // namespace ts
