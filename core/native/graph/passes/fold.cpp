#include "autograd/meta.h"
#include "graph/passes/passes.h"
#include <algorithm>
#include <optional>

namespace ts::graph {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 20; // of a tensor that is made of numbers alone

void replace_numbers(Graph& g, const std::vector<std::optional<Item>>& known) {
  for (Item& item : g.items)
    if (item.is_value && item.is_number() && known[item.id()]) item = *known[item.id()];
}

// Uses become constants; the nodes that defined them go.
Graph with_numbers(const Graph& g, const std::vector<std::optional<Item>>& known, bool guards) {
  Graph out = g;
  std::vector<bool> keep(g.nodes.size());
  for (Id n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    bool decided = !node.op && !is_guard(node.size_op) && known[g.results(node)[0].id()];
    keep[n] = !decided && (guards || !is_guard(node.size_op));
  }
  replace_numbers(out, known);
  return rebuilt(out, keep, no_change(out));
}

std::optional<Item> number_of(const Node& n, std::span<const Item> args) {
  if (n.op || n.size_op == SizeOp::Size || n.size_op == SizeOp::Numel || n.size_op == SizeOp::Read ||
      is_guard(n.size_op))
    return std::nullopt;
  for (const Item& a : args)
    if (a.is_value) return std::nullopt;
  return compute(n.size_op, args[0], args.size() > 1 ? args[1] : Item());
}

Graph fold_numbers(const Graph& g) {
  std::vector<std::optional<Item>> known(g.values.size());
  Graph work = g;
  bool any = false;
  for (const Node& n : work.nodes)
    if (auto number = number_of(n, work.args(n))) {
      known[work.results(n)[0].id()] = number;
      std::span<const Item> results = work.results(n);
      Item kept = results[0];
      replace_numbers(work, known); // those that follow see it
      work.items[n.results] = kept;
      any = true;
    }
  return any ? with_numbers(g, known, true) : g;
}

bool is_constant_item(const Graph& g, const Item& item, const std::vector<bool>& constant) {
  if (item.is_value) return constant[item.id()];
  return !item.is_list() ||
         std::ranges::all_of(g.elements(item), [&](const Item& e) { return is_constant_item(g, e, constant); });
}

// Whether the one tensor that a node makes may be made now.
bool can_fold(const Graph& g, const Memory& memory, const Node& n, const std::vector<bool>& constant,
              const std::vector<Tensor>& tensors) {
  if (!n.op || !is_pure(g, n) || n.op->view || n.n_results != 1 || !g.results(n)[0].is_value) return false;
  if (n.op->effects.reads_host || n.op->effects.data_dependent) return false;
  Id made = g.results(n)[0].id();
  if (memory.is_written(made) || memory.is_given(made)) return false;
  int64_t elements = 1, read = kMostElements;
  for (int64_t s : g.sizes(g.values[made])) elements *= s;
  bool ok = true;
  g.each_use(n, [&](Id v) {
    ok = ok && constant[v] && !memory.is_written(v) && !requires_grad(tensors[v]);
    int64_t count = 1;
    for (int64_t s : g.sizes(g.values[v])) count *= s;
    read = std::max(read, count);
  });
  return ok && elements <= read && std::ranges::all_of(g.args(n), [&](const Item& item) {
           return is_constant_item(g, item, constant) && item.tag != Tag::Generator;
         });
}

Tensor computed(const Graph& g, const Node& n, const std::vector<Tensor>& tensors) {
  std::vector<ts::Value> args;
  std::vector<std::vector<int64_t>> words;
  std::vector<std::vector<Tensor>> lists;
  for (const Item& item : g.args(n)) {
    ts::Value v;
    v.tag = item.tag;
    v.i = item.i;
    if (item.is_value) v = ts::Value(tensors[item.id()]);
    if (item.tag == Tag::Str) v = ts::Value(g.strings[item.at].c_str());
    if (item.tag == Tag::Tensors) {
      auto& list = lists.emplace_back();
      for (const Item& e : g.elements(item)) list.push_back(e.is_value ? tensors[e.id()] : Tensor());
      v = ts::Value(TensorList(list));
    } else if (item.is_list()) {
      auto& list = words.emplace_back(1);
      list.clear();
      for (const Item& e : g.elements(item)) list.push_back(e.i);
      v.len = static_cast<int32_t>(item.len);
      v.ints = list.data();
    }
    args.push_back(v);
  }
  GradMode off(false);
  ExcludeKeys hidden(key_bit(key::Tracer) | key_bit(key::Leaf));
  Results results;
  Frame f{args.data(), results.data(), static_cast<int32_t>(args.size()), 1};
  call(*n.op, f);
  return results.take(0);
}

} // namespace

Graph specialised(const Graph& g) {
  std::vector<std::optional<Item>> known(g.values.size());
  for (const Node& n : g.nodes) {
    bool follows = n.op || n.size_op == SizeOp::Read; // from values
    if (!follows) g.each_use(n, [&](Id v) { follows = follows || (g.values[v].tag != Tag::Tensor && !known[v]); });
    if (!follows) g.each_def(n, [&](Id v) { known[v] = g.values[v].number; });
  }
  return with_numbers(g, known, false);
}

Graph fold(const Graph& from) {
  Graph g = fold_numbers(from);
  Memory memory(g);
  std::vector<bool> constant(g.values.size()), keep(g.nodes.size(), true);
  std::vector<Tensor> tensors(g.values.size());
  for (size_t k = 0; k < g.captures.size(); ++k) {
    constant[g.captures[k]] = g.constant[k];
    tensors[g.captures[k]] = g.captured[k];
  }
  bool any = false;
  for (Id n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    if (!can_fold(g, memory, node, constant, tensors)) continue;
    Id made = g.results(node)[0].id();
    Tensor result = computed(g, node, tensors);
    if (!std::ranges::equal(result.strides(), g.strides(g.values[made]))) continue;
    keep[n] = false;
    constant[made] = any = true;
    tensors[made] = result;
    g.captures.push_back(made);
    g.captured.push_back(result);
    g.constant.push_back(true);
  }
  return any ? rebuilt(g, keep, no_change(g)) : g;
}

} // namespace ts::graph
