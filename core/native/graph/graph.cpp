#include "graph/graph.h"
#include "autograd/meta.h"
#include <algorithm>

namespace ts::graph {
namespace {

constexpr const char* kNames[kSizeOps] = {
    "",         "size.size",  "size.stride", "size.numel", "size.read",       "size.add", "size.sub",
    "size.mul", "size.div",   "size.mod",    "size.neg",   "size.min",        "size.max", "size.truediv",
    "size.pow", "size.floor", "size.ceil",   "size.trunc", "size.round",      "size.eq",  "size.ne",
    "size.lt",  "size.le",    "size.gt",     "size.ge",    "function.forward"};

} // namespace

const char* name_of(SizeOp op) { return kNames[static_cast<int>(op)]; }

SizeOp size_op_named(std::string_view name) {
  for (int k = 1; k < kSizeOps; ++k)
    if (name == kNames[k]) return static_cast<SizeOp>(k);
  return SizeOp::None;
}

// --- building ----------------------------------------------------------------------------------------------------

uint32_t Graph::intern(std::string_view text) {
  auto [at, added] = interned_.try_emplace(std::string(text), static_cast<uint32_t>(strings.size()));
  if (added) strings.emplace_back(text);
  return at->second;
}

Id Graph::add_value(const Tensor& t, Id producer) {
  ValueInfo v;
  v.dtype = t.dtype();
  v.device = t.device();
  v.ndim = static_cast<uint8_t>(t.ndim());
  v.requires_grad = requires_grad(t);
  v.dims = static_cast<uint32_t>(dims.size());
  v.producer = producer;
  v.alias = static_cast<Id>(values.size());
  dims.insert(dims.end(), t.sizes().begin(), t.sizes().end());
  dims.insert(dims.end(), t.strides().begin(), t.strides().end());
  values.push_back(v);
  return v.alias;
}

Id Graph::add_number(const Item& number, Id producer) {
  ValueInfo v;
  v.tag = number.tag;
  v.number = number;
  v.producer = producer;
  v.alias = static_cast<Id>(values.size());
  values.push_back(v);
  return v.alias;
}

uint32_t Graph::add_items(std::span<const Item> list) {
  auto at = static_cast<uint32_t>(items.size());
  items.insert(items.end(), list.begin(), list.end());
  return at;
}

uint64_t Graph::add_generator(Generator* g) {
  auto found = std::ranges::find(generators, g, &Ref<Generator>::get);
  auto at = static_cast<uint64_t>(found - generators.begin());
  if (found == generators.end()) generators.push_back(Ref<Generator>::share(g));
  return at;
}

Item Graph::copy_item(const Graph& from, const Item& item) {
  Item out = item;
  if (item.tag == Tag::Str) {
    out.at = intern(from.text(static_cast<uint32_t>(item.at)));
  } else if (item.is_list() && !item.is_value) {
    std::vector<Item> elements(from.elements(item).begin(), from.elements(item).end());
    out.at = add_items(elements);
  } else if (item.tag == Tag::Generator) {
    out.at = add_generator(from.generators[item.at].get());
  }
  return out;
}

// --- effects -----------------------------------------------------------------------------------------------------

bool writes(const Graph& g, const Node& n) {
  if (!n.op || !n.op->effects.mutates) return false;
  const int where = n.op->effects.writes_where;
  if (where < 0) return true;
  const Item& asked = g.args(n)[static_cast<size_t>(where)];
  return asked.is_value || asked.i != 0;
}

bool is_random(const Node& n) {
  // One may be random by what it is given: dropout draws where it trains.
  return n.op && n.op->effects.random;
}

// Places that are given as numbers say how many results there are; places that are given as truths do not. Nor does it
// follow from values how many classes there are where that is said.
bool depends_on_data(const Graph& g, const Node& n) {
  if (n.size_op == SizeOp::Read) return true;
  if (!n.op || !n.op->effects.data_dependent) return false;
  if (n.op->schema->base == "one_hot" && n.n_args > 1) return g.args(n)[1].is_value || g.args(n)[1].i < 0;
  if (n.op->schema->base != "index") return true;
  bool masks = false;
  g.each_use(n, [&](Id v) {
    DType t = g.values[v].dtype;
    masks = masks || (v != g.args(n)[0].id() && (t == DType::Bool || t == DType::UInt8));
  });
  return masks;
}

bool communicates(const Node& n) { return n.op && n.op->effects.communicates; }

bool is_pure(const Graph& g, const Node& n) {
  if (!n.op) return !is_guard(n.size_op) && n.size_op != SizeOp::Read;
  const Effects& e = n.op->effects;
  return !writes(g, n) && !e.random && !e.communicates && n.op->kind != OperatorKind::Opaque &&
         n.op->kind != OperatorKind::Answer && n.op->kind != OperatorKind::Composite;
}

std::vector<Id> written(const Graph& g, const Node& n) {
  std::vector<Id> out;
  if (!writes(g, n)) return out;
  for (uint32_t k = 0; k < n.n_args && k < 64; ++k)
    if (n.op->effects.mutates >> k & 1) g.each(g.args(n).subspan(k, 1), [&](Id v) { out.push_back(v); });
  return out;
}

bool has_backward(const Graph& g) {
  return std::ranges::any_of(g.nodes, [](const Node& n) { return n.backward; });
}

} // namespace ts::graph
