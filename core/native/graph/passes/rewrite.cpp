// The table of exact rewrites: what a call may be instead, with the same bits for every value, NaN, infinities and the
// sign of zero included.
#include "graph/passes/passes.h"
#include <algorithm>

namespace ts::graph {
namespace {

struct Place {
  const Graph& g;
  const Memory& memory;
  const Node& n;
  const std::vector<Id>& same;

  Id resolved(Id v) const {
    while (same[v] != v) v = same[v];
    return v;
  }
  const Item& arg(size_t k) const { return g.args(n)[k]; }
  bool is_tensor(size_t k) const { return arg(k).is_value && arg(k).tag == Tag::Tensor; }
  Id tensor(size_t k) const { return resolved(arg(k).id()); }
  Id result() const { return g.results(n)[0].id(); }
  bool is_number(size_t k, double d) const {
    const Item& i = arg(k);
    return !i.is_value && ((i.tag == Tag::Int && i.i == static_cast<int64_t>(d)) || (i.tag == Tag::Float && i.f == d));
  }
  const ValueInfo& info(Id v) const { return g.values[v]; }
  bool is_float(Id v) const { return is_floating(info(v).dtype); }
  bool same_kind(Id a, Id b) const { // a tensor that nobody can tell from the other, but by its memory
    return info(a).dtype == info(b).dtype && info(a).device == info(b).device &&
           std::ranges::equal(g.sizes(info(a)), g.sizes(info(b))) &&
           std::ranges::equal(g.strides(info(a)), g.strides(info(b)));
  }
  // The call, of this operator, that made an argument; NULL.
  const Node* maker(size_t k, const Operator* op) const {
    if (!is_tensor(k)) return nullptr;
    Id producer = info(tensor(k)).producer;
    return producer != kNone && g.nodes[producer].op == op ? &g.nodes[producer] : nullptr;
  }
  Id source(const Node& made) const {
    const Item& first = g.args(made)[0];
    return first.is_value && first.tag == Tag::Tensor ? resolved(first.id()) : kNone;
  }
};

// Gives the value that the call's result may be, or kNone.
using Rule = Id (*)(const Place&);

Id times_one(const Place& p) {
  if (p.is_tensor(0) && p.is_number(1, 1)) return p.tensor(0);
  return kNone;
}
Id one_times(const Place& p) {
  if (p.is_tensor(1) && p.is_number(0, 1)) return p.tensor(1);
  return times_one(p);
}
Id over_one(const Place& p) { return p.is_tensor(0) && p.is_float(p.tensor(0)) ? times_one(p) : kNone; }
Id plus_zero(const Place& p) { // -0.0 + 0 is +0.0
  bool whole = p.is_tensor(0) && is_integral(p.info(p.tensor(0)).dtype, false);
  return whole && p.is_number(1, 0) && !p.arg(1).is_value && p.arg(1).tag == Tag::Int ? p.tensor(0) : kNone;
}
Id itself(const Place& p) { return p.is_tensor(0) ? p.tensor(0) : kNone; }
Id undone(const Place& p) { // f(f(x)) is x, unless f(x) was written to meanwhile
  const Node* made = p.maker(0, p.n.op);
  return made && !p.memory.is_written(p.tensor(0)) ? p.source(*made) : kNone;
}
Id repeated(const Place& p) { // f(f(x)) is f(x)
  return p.maker(0, p.n.op) ? p.tensor(0) : kNone;
}
Id swapped_back(const Place& p) { // transposed twice
  const Node* made = p.maker(0, p.n.op);
  if (!made) return kNone;
  auto dim = [&](const Node& n, size_t k) { return p.g.args(n)[k]; };
  for (size_t k : {1u, 2u})
    if (dim(p.n, k).is_value || dim(*made, k).is_value || dim(p.n, k).i != dim(*made, k).i) return kNone;
  return p.source(*made);
}

struct Row {
  const char* op;
  const char* says;
  Rule rule;
  bool of_sizes = false; // it says so of the sizes and strides that were written down
};
constexpr Row kTable[] = {
    {"mul", "x * 1 is x", one_times},
    {"div", "x / 1 is x, of floats", over_one},
    {"add", "x + 0 is x, of integers", plus_zero},
    {"sub", "x - 0 is x, of integers", plus_zero},
    {"pow", "x ** 1 is x", times_one},
    {"neg", "-(-x) is x", undone},
    {"logical_not", "not not x is x, of bool", undone},
    {"bitwise_not", "~~x is x", undone},
    {"relu", "relu(relu(x)) is relu(x)", repeated},
    {"abs", "abs(abs(x)) is abs(x)", repeated},
    {"floor", "of whole numbers", repeated},
    {"ceil", "of whole numbers", repeated},
    {"round", "of whole numbers", repeated},
    {"trunc", "of whole numbers", repeated},
    {"clone", "a copy that nobody writes to, of what nobody writes to, is that", itself, true},
    {"transpose.int", "transposed twice", swapped_back},
    {"expand", "to the sizes that it has", itself, true},
    {"view", "of the sizes that it has", itself, true},
    {"permute", "in the order that it has", itself, true},
    {"slice", "all of it", itself, true},
    {"detach", "detached twice", repeated},
};

const Row* row_of(const Operator* op) {
  for (const Row& row : kTable)
    if (op && op->name() == row.op) return &row;
  return nullptr;
}

bool may_replace(const Place& p, Id by) {
  Id result = p.result();
  if (by == kNone || !p.same_kind(result, by)) return false;
  // A view is the same memory as before; where it is given out, the caller may tell it from its source.
  if (p.n.op->view) return !p.memory.is_given(result);
  return p.memory.may_become(result, by);
}

Graph rewritten(const Graph& g, bool any_size) {
  Memory memory(g);
  std::vector<bool> keep(g.nodes.size(), true);
  std::vector<Id> same = no_change(g);
  for (Id n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    const Row* row = node.n_results == 1 && g.results(node)[0].is_value ? row_of(node.op) : nullptr;
    if (!row || g.is_scope(n) || (any_size && row->of_sizes)) continue;
    Place place{g, memory, node, same};
    Id by = row->rule(place);
    if (!may_replace(place, by)) continue;
    keep[n] = false;
    same[place.result()] = by;
  }
  return rebuilt(g, keep, same);
}

} // namespace

Graph rewrite(const Graph& g) { return rewritten(g, false); }
Graph rewrite_for_any_size(const Graph& g) { return rewritten(g, true); }

} // namespace ts::graph
