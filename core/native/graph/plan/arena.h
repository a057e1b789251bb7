// Where blocks lie that are needed for a while each: blocks of overlapping times apart, others over each other, but for
// those of branches that run side by side.
#pragma once
#include "graph/plan/branches.h"

namespace ts::graph {

class Arena {
public:
  struct Span {
    size_t bytes, first, last; // the times are inclusive
    // What all who use it are behind, and who uses it; as they are here, times alone count.
    BranchFinder::Counts before = BranchFinder::kAll, used = {};
  };
  explicit Arena(std::vector<Span> spans);
  // Block b begins in the place, and at the last moment, of block a, which has its size.
  bool join(size_t a, size_t b);
  size_t lay_out(); // bytes in all
  int64_t offset(size_t k) const { return offsets_[root(k)]; }

private:
  static bool overlap(const Span& a, const Span& b);
  size_t root(size_t k) const {
    while (into_[k] != k) k = into_[k];
    return k;
  }
  std::vector<Span> spans_;
  std::vector<size_t> into_; // the block whose place it has, or itself
  std::vector<int64_t> offsets_;
};

} // namespace ts::graph
