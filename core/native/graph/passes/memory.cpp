#include "graph/passes/passes.h"
#include <algorithm>

namespace ts::graph {

Memory::Memory(const Graph& g) : g_(g), writes_(g.values.size()), outside_(g.values.size()), given_(g.values.size()) {
  for (Id n = 0; n < g.nodes.size(); ++n)
    for (Id v : written(g, g.nodes[n])) writes_[g.values[v].alias].push_back(n);
  for (const auto* list : {&g.inputs, &g.captures, &g.outputs})
    for (Id v : *list) outside_[g.values[v].alias] = true;
  for (Id v : g.outputs) given_[g.values[v].alias] = true;
}

bool Memory::is_written_between(Id v, Id first, Id last) const {
  const std::vector<Id>& at = writes_[g_.values[v].alias];
  auto next = std::upper_bound(at.begin(), at.end(), first);
  return next != at.end() && *next < last;
}

bool writes_memory(const Graph& g) {
  return std::ranges::any_of(
      g.nodes, [&](const Node& n) { return writes(g, n) || (n.op && n.op->kind == OperatorKind::Opaque); });
}

// The calls with effects that others see, in order.
static std::vector<const Operator*> effects_of(const Graph& g) {
  std::vector<const Operator*> out;
  for (Id n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    if (communicates(node) || is_random(node) || (node.op && node.op->kind == OperatorKind::Opaque))
      out.push_back(node.op);
  }
  return out;
}

void verify_effects(const Graph& before, const Graph& after) {
  std::vector<const Operator*> was = effects_of(before), is = effects_of(after);
  auto [a, b] = std::ranges::mismatch(was, is);
  TS_CHECK(a == was.end() && b == is.end(), "graph: a pass changed what is done: expected ",
           a == was.end() ? "the end" : (*a)->name(), " where there is ", b == is.end() ? "the end" : (*b)->name());
}

std::vector<Id> no_change(const Graph& g) {
  std::vector<Id> same(g.values.size());
  for (Id v = 0; v < same.size(); ++v) same[v] = v;
  return same;
}

Graph optimised(Graph g, bool freeze, bool any_size) {
  if (freeze) g.constant.assign(g.constant.size(), true);
  for (size_t before = g.nodes.size() + 1; g.nodes.size() < before;) {
    before = g.nodes.size();
    for (auto* pass : {fold, share_equal, any_size ? rewrite_for_any_size : rewrite, without_dead}) {
      Graph next = pass(g);
      verify(next);
      verify_effects(g, next);
      g = std::move(next);
    }
  }
  return g;
}

} // namespace ts::graph
