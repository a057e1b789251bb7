#include "graph/passes/passes.h"
#include <algorithm>
#include <map>

namespace ts::graph {
namespace {

// A call as words: equal calls have equal ones.
void append_item(const Graph& g, const Item& item, const std::vector<Id>& same, std::vector<int64_t>& key) {
  key.push_back(static_cast<int64_t>(item.tag) * 2 + item.is_value);
  if (item.is_value) return key.push_back(same[item.id()]);
  if (!item.is_list()) return key.push_back(item.i);
  key.push_back(item.len);
  for (const Item& e : g.elements(item)) append_item(g, e, same, key);
}

std::vector<int64_t> key_of(const Graph& g, const Node& n, const std::vector<Id>& same) {
  std::vector<int64_t> key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(n.op)), static_cast<int64_t>(n.size_op),
                              n.no_grad};
  for (const Item& item : g.args(n)) append_item(g, item, same, key);
  return key;
}

bool may_share(const Graph& g, const Memory& memory, Id first, Id second) {
  const Node &a = g.nodes[first], &b = g.nodes[second];
  bool ok = g.results(a).size() == g.results(b).size();
  bool view = a.op && a.op->view;
  if (!view) { // memory of their own, which becomes one; and what they read has to be what it was
    for (const Node* n : {&a, &b}) g.each_def(*n, [&](Id v) { ok = ok && !memory.is_written(v); });
    g.each_def(b, [&](Id v) { ok = ok && !memory.is_given(v); });
    g.each_use(b, [&](Id v) { ok = ok && !memory.is_written_between(v, first, second); });
  }
  return ok;
}

} // namespace

Graph share_equal(const Graph& g) {
  Memory memory(g);
  std::vector<bool> keep(g.nodes.size(), true);
  std::vector<Id> same = no_change(g);
  std::map<std::vector<int64_t>, Id> seen;
  for (Id n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    if (!is_pure(g, node)) continue;
    auto [at, fresh] = seen.try_emplace(key_of(g, node, same), n);
    if (fresh) continue;
    std::vector<Id> mine, theirs;
    g.each_def(node, [&](Id v) { mine.push_back(v); });
    g.each_def(g.nodes[at->second], [&](Id v) { theirs.push_back(v); });
    if (mine.size() != theirs.size() || !may_share(g, memory, at->second, n)) {
      at->second = n; // the nearer one is the better one for those to come
      continue;
    }
    keep[n] = false;
    for (size_t k = 0; k < mine.size(); ++k) same[mine[k]] = theirs[k];
  }
  return rebuilt(g, keep, same);
}

} // namespace ts::graph
