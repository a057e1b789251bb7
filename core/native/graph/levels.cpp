// The two levels of a graph, each as a graph without scopes.
#include "graph/graph.h"
#include <algorithm>

namespace ts::graph {
namespace {

std::vector<Id> identity(size_t n) {
  std::vector<Id> same(n);
  for (Id k = 0; k < n; ++k) same[k] = k;
  return same;
}

// What the kept nodes use and nobody kept defines.
void check_defined(const Graph& g, const char* level) {
  std::vector<bool> defined(g.values.size());
  for (Id v : g.inputs) defined[v] = true;
  for (Id v : g.captures) defined[v] = true;
  auto check = [&](Id v) {
    TS_CHECK(defined[v], "graph: %", v, " is made within an operator that the ", level,
             " level keeps whole, and used outside of it, as by a backward pass; run the other level");
  };
  for (const Node& n : g.nodes) {
    g.each_use(n, check);
    g.each_def(n, [&](Id v) { defined[v] = true; });
  }
  for (Id v : g.outputs) check(v);
}

bool answers(const Graph& g, Id scope) {
  auto is_answer = [](const Node& n) { return n.op && n.op->kind == OperatorKind::Answer; };
  return std::any_of(g.nodes.begin() + scope + 1, g.nodes.begin() + g.nodes[scope].end, is_answer);
}

// A call that gave back what it was given, and did nothing.
bool gives_back(const Graph& g, Id at) {
  const Node& n = g.nodes[at];
  bool all = n.op && n.op->composite() && !g.is_scope(at);
  g.each_def(n, [&](Id v) { all = all && g.values[v].same_as != kNone; });
  return all;
}

class Renumbering {
public:
  Renumbering(const Graph& from, Graph& to, const std::vector<Id>& same)
      : from_(from), to_(to), same_(same), ids_(from.values.size(), kNone) {}
  Id operator()(Id old) {
    Id v = old;
    while (same_[v] != v) v = same_[v];
    if (ids_[v] != kNone) return ids_[v];
    ids_[v] = static_cast<Id>(to_.values.size());
    ValueInfo info = from_.values[v];
    info.dims = static_cast<uint32_t>(to_.dims.size());
    IntSpan sizes = from_.sizes(from_.values[v]), strides = from_.strides(from_.values[v]);
    to_.dims.insert(to_.dims.end(), sizes.begin(), sizes.end());
    to_.dims.insert(to_.dims.end(), strides.begin(), strides.end());
    if (info.name != kNone) info.name = to_.intern(from_.text(info.name));
    info.producer = info.same_as = kNone;
    info.alias = ids_[v];
    to_.values.push_back(info);
    return ids_[v];
  }
  Item operator()(const Item& item) {
    Item out = item;
    if (item.is_value) {
      out.at = (*this)(item.id());
    } else if (item.is_list() && item.tag != Tag::Complex) {
      std::vector<Item> elements;
      for (uint32_t k = 0; k < item.len; ++k) elements.push_back((*this)(from_.items[item.at + k]));
      out.at = to_.add_items(elements);
    } else {
      return to_.copy_item(from_, item);
    }
    return out;
  }
  Id known(Id old) const { return ids_[old]; }

private:
  const Graph& from_;
  Graph& to_;
  const std::vector<Id>& same_;
  std::vector<Id> ids_;
};

// Values that shared memory still do, under the first of them that is left.
void carry_aliases(const Graph& from, Graph& to, const Renumbering& ids) {
  std::vector<Id> first(from.values.size(), kNone);
  for (Id v = 0; v < from.values.size(); ++v) {
    Id now = ids.known(v);
    if (now == kNone) continue;
    Id& lead = first[from.values[v].alias];
    if (lead == kNone || now < lead) lead = now;
  }
  for (Id v = 0; v < from.values.size(); ++v)
    if (Id now = ids.known(v); now != kNone) to.values[now].alias = first[from.values[v].alias];
}

} // namespace

Graph rebuilt(const Graph& g, const std::vector<bool>& keep, const std::vector<Id>& same) {
  Graph out;
  out.generators = g.generators;
  Renumbering renumber(g, out, same);
  for (Id v : g.inputs) out.inputs.push_back(renumber(v));
  for (size_t k = 0; k < g.captures.size(); ++k) {
    out.captures.push_back(renumber(g.captures[k]));
    out.captured.push_back(g.captured[k]);
    out.constant.push_back(g.constant[k]);
  }
  for (Id k = 0; k < g.nodes.size(); ++k) {
    if (!keep[k]) continue;
    Node n = g.nodes[k];
    std::vector<Item> args, results;
    for (const Item& item : g.args(n)) args.push_back(renumber(item));
    for (const Item& item : g.results(n)) results.push_back(renumber(item));
    n.args = out.add_items(args);
    n.results = out.add_items(results);
    n.parent = kNone;
    auto at = static_cast<Id>(out.nodes.size());
    n.end = at + 1;
    if (n.line != kNone) n.line = out.intern(g.text(n.line));
    if (n.path != kNone) n.path = out.intern(g.text(n.path));
    out.nodes.push_back(n);
    out.each_def(n, [&](Id v) {
      if (out.values[v].producer == kNone) out.values[v].producer = at;
    });
  }
  for (Id v : g.outputs) out.outputs.push_back(renumber(v));
  carry_aliases(g, out, renumber);
  return out;
}

Graph dissolved(const Graph& g, std::string_view op) {
  Graph out = g;
  for (Id k = 0; k < out.nodes.size(); ++k) {
    Node& n = out.nodes[k];
    if (!n.op || n.op->name() != op) continue;
    for (Id part = k + 1; part < n.end; ++part)
      if (out.nodes[part].parent == k) out.nodes[part].parent = n.parent;
    n.op = nullptr;
    n.size_op = SizeOp::Forward;
    n.n_args = n.n_results = 0; // the parts say of what
    n.end = k + 1;
  }
  return out;
}

void drop_unused_numbers(Graph& g) {
  std::vector<bool> used(g.values.size());
  std::vector<Id> now(g.nodes.size() + 1); // where each node will stand
  std::vector<bool> keep(g.nodes.size());
  for (Id k = static_cast<Id>(g.nodes.size()); k-- > 0;) {
    const Node& n = g.nodes[k];
    keep[k] = n.op || is_guard(n.size_op) || used[g.results(n)[0].id()];
    if (keep[k]) g.each_use(n, [&](Id v) { used[v] = true; });
  }
  for (Id k = 0; k < g.nodes.size(); ++k) now[k + 1] = now[k] + keep[k];
  std::vector<Node> kept;
  for (Id k = 0; k < g.nodes.size(); ++k) {
    if (!keep[k]) continue;
    Node n = g.nodes[k];
    n.end = now[n.end];
    if (n.parent != kNone) n.parent = now[n.parent];
    kept.push_back(n);
  }
  for (ValueInfo& v : g.values)
    if (v.producer != kNone && v.producer < keep.size()) v.producer = keep[v.producer] ? now[v.producer] : kNone;
  g.nodes = std::move(kept);
}

Part part_of(const Graph& g, Id begin, Id end) {
  TS_CHECK_INDEX(begin <= end && end <= g.nodes.size(), "graph: there are no nodes ", begin, " to ", end);
  Part part;
  std::vector<bool> keep(g.nodes.size()), own(g.values.size()), used(g.values.size()), later(g.values.size());
  for (Id k = 0; k < g.nodes.size(); ++k) {
    const Node& n = g.nodes[k];
    TS_CHECK(n.op && n.parent == kNone && !g.is_scope(k), "graph: expected calls of one level, without sizes, to part");
    keep[k] = k >= begin && k < end;
    if (keep[k]) g.each_def(n, [&](Id v) { own[v] = true; });
    g.each_use(n, [&](Id v) {
      if (keep[k] && !own[v]) used[v] = true;
      if (k >= end) later[v] = true;
    });
  }
  for (Id v : g.outputs) later[v] = true;
  Graph cut = g;
  cut.captures.clear(), cut.captured.clear(), cut.constant.clear();
  for (size_t k = 0; k < g.captures.size(); ++k) {
    const Id v = g.captures[k];
    if (!used[v]) continue;
    cut.captures.push_back(v);
    cut.captured.push_back(g.captured[k]);
    cut.constant.push_back(g.constant[k]);
    used[v] = false;
  }
  for (Id v = 0; v < g.values.size(); ++v) {
    if (used[v]) part.inputs.push_back(v);
    if (own[v] && later[v]) part.outputs.push_back(v);
  }
  cut.inputs = part.inputs;
  cut.outputs = part.outputs;
  part.graph = rebuilt(cut, keep, identity(g.values.size()));
  return part;
}

Graph outer_level(const Graph& g) {
  std::vector<bool> keep(g.nodes.size());
  for (Id k = 0; k < g.nodes.size(); ++k) keep[k] = g.nodes[k].parent == kNone;
  Graph out = rebuilt(g, keep, identity(g.values.size()));
  check_defined(out, "outer");
  return out;
}

Graph leaf_level(const Graph& g) {
  std::vector<bool> keep(g.nodes.size());
  std::vector<Id> same = identity(g.values.size());
  for (Id k = 0; k < g.nodes.size();) {
    const Node& n = g.nodes[k];
    bool opens = g.is_scope(k) && !answers(g, k);
    if (opens || gives_back(g, k)) {
      g.each_def(n, [&](Id v) {
        if (g.values[v].same_as != kNone) same[v] = g.values[v].same_as;
      });
      k = opens ? k + 1 : n.end;
      continue;
    }
    keep[k] = true;
    k = n.end;
  }
  Graph out = rebuilt(g, keep, same);
  check_defined(out, "leaf");
  return out;
}

std::pair<Graph, int64_t> casts_first(const Graph& g) {
  static const Op cast("_autocast_cast"), to("to.dtype");
  auto casts = [&](const Node& n) { return n.op == &cast.get() || n.op == &to.get(); };
  for (const ValueInfo& v : g.values)
    if (v.tag == Tag::Tensor && is_complex(v.dtype)) return {g, -1}; // calls of which may stand whole
  for (const Node& n : g.nodes)
    if (!n.op || n.op->kind == OperatorKind::Opaque || (n.parent != kNone && casts(n) && !casts(g.nodes[n.parent])))
      return {g, -1};
  Graph outer = outer_level(g);
  if (std::ranges::any_of(outer.nodes, [&](const Node& n) { return writes(outer, n); })) return {std::move(outer), -1};
  std::vector<bool> captured(outer.values.size());
  for (Id v : outer.captures) captured[v] = true;
  auto first = [&](const Node& n) { return n.op == &cast.get() && captured[outer.args(n)[0].id()] && !n.no_grad; };
  // Gradients of one that is used besides would meet those of its cast in another order.
  std::vector<bool> cast_of(outer.values.size());
  for (const Node& n : outer.nodes)
    if (first(n)) cast_of[outer.args(n)[0].id()] = true;
  for (const Node& n : outer.nodes) {
    bool both = false;
    outer.each_use(n, [&](Id v) { both = both || (cast_of[v] && !first(n)); });
    if (both) return {std::move(outer), -1};
  }
  const int64_t count = std::ranges::count_if(outer.nodes, first);
  std::ranges::stable_partition(outer.nodes, first);
  for (Id k = 0; k < outer.nodes.size(); ++k) {
    outer.nodes[k].end = k + 1;
    outer.each_def(outer.nodes[k], [&](Id v) { outer.values[v].producer = k; });
  }
  return {std::move(outer), count};
}

} // namespace ts::graph
