// Numbers for nodes: one table per run, so that graphs may be walked concurrently and re-entrantly.
#pragma once
#include "autograd/node.h"
#include <algorithm>

namespace ts {

// Pointer to index, open addressing.
class NodeIndex {
public:
  // Whatever the size of the table: entries of earlier rounds count as empty.
  void clear() {
    count_ = 0;
    if (table_.size() > 4096) table_.resize(64);
    if (++round_ == 0) { // wrapped
      std::fill(table_.begin(), table_.end(), Entry{});
      round_ = 1;
    }
  }
  // Index of n, or -1 after adding it as `next`.
  int32_t find_or_add(Node* n, int32_t next) {
    if (2 * (count_ + 1) > table_.size()) grow();
    Entry& e = probe(n);
    if (used(e)) return e.index;
    e = {n, next, round_};
    ++count_;
    return -1;
  }
  int32_t find(Node* n) {
    if (table_.empty()) return -1;
    Entry& e = probe(n);
    return used(e) ? e.index : -1;
  }

private:
  struct Entry {
    Node* node = nullptr;
    int32_t index = 0;
    uint32_t round = 0;
  };
  bool used(const Entry& e) const { return e.round == round_; }
  Entry& probe(Node* n) {
    size_t mask = table_.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(n) >> 6) * 0x9e3779b97f4a7c15ull >> 32 & mask;
    while (used(table_[at]) && table_[at].node != n) at = (at + 1) & mask;
    return table_[at];
  }
  void grow() {
    std::vector<Entry> old(std::max<size_t>(64, table_.size() * 2));
    old.swap(table_);
    for (Entry& e : old)
      if (used(e)) probe(e.node) = e;
  }
  std::vector<Entry> table_;
  size_t count_ = 0;
  uint32_t round_ = 1;
};

} // namespace ts
