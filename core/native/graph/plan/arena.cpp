#include "graph/plan/arena.h"
#include <algorithm>
#include <numeric>

namespace ts::graph {
namespace {
constexpr size_t kAlign = 256; // of every device so far, and of a cache line's loads
size_t rounded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
} // namespace

Arena::Arena(std::vector<Span> spans) : spans_(std::move(spans)), into_(spans_.size()), offsets_(spans_.size()) {
  std::iota(into_.begin(), into_.end(), size_t{0});
}

bool Arena::join(size_t a, size_t b) {
  a = root(a);
  if (root(b) == a || into_[b] != b || spans_[a].last != spans_[b].first || spans_[a].bytes != spans_[b].bytes)
    return false;
  into_[b] = a;
  spans_[a].last = spans_[b].last;
  spans_[a].before = least(spans_[a].before, spans_[b].before);
  spans_[a].used = most(spans_[a].used, spans_[b].used);
  return true;
}

bool Arena::overlap(const Span& a, const Span& b) {
  if (a.first > b.first) return overlap(b, a);
  return a.last >= b.first || !is_within(a.used, b.before);
}

// The largest first, each at the lowest place that is free for its time.
size_t Arena::lay_out() {
  std::vector<size_t> order;
  for (size_t k = 0; k < spans_.size(); ++k)
    if (into_[k] == k) order.push_back(k);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return spans_[a].bytes > spans_[b].bytes; });
  size_t total = 0;
  std::vector<size_t> placed; // by offset
  for (size_t k : order) {
    const Span& s = spans_[k];
    size_t at = 0;
    for (size_t other : placed) {
      const Span& o = spans_[other];
      if (!overlap(o, s)) continue;
      const auto begin = static_cast<size_t>(offsets_[other]);
      if (at + rounded(s.bytes) <= begin) break;
      at = std::max(at, begin + rounded(o.bytes));
    }
    offsets_[k] = static_cast<int64_t>(at);
    total = std::max(total, at + rounded(s.bytes));
    placed.insert(std::ranges::upper_bound(placed, offsets_[k], {}, [&](size_t p) { return offsets_[p]; }), k);
  }
  return total;
}

} // namespace ts::graph
