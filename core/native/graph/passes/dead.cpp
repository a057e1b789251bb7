#include "graph/passes/passes.h"

namespace ts::graph {

Graph without_dead(const Graph& g) {
  std::vector<bool> keep(g.nodes.size()), live(g.values.size()), live_memory(g.values.size());
  auto need = [&](Id v) { live[v] = live_memory[g.values[v].alias] = true; };
  for (const auto* list : {&g.inputs, &g.captures})
    for (Id v : *list) live_memory[g.values[v].alias] = true; // the caller sees what is written there
  for (Id v : g.outputs) need(v);
  for (Id n = static_cast<Id>(g.nodes.size()); n-- > 0;) {
    const Node& node = g.nodes[n];
    bool stays = is_guard(node.size_op) || is_random(node) || communicates(node) ||
                 (node.op && node.op->kind == OperatorKind::Opaque);
    g.each_def(node, [&](Id v) { stays = stays || live[v]; });
    for (Id v : written(g, node)) stays = stays || live_memory[g.values[v].alias];
    keep[n] = stays;
    if (stays) g.each_use(node, need);
  }
  return rebuilt(g, keep, no_change(g));
}

} // namespace ts::graph
