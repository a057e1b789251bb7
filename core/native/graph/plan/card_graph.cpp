#include "graph/plan/card_graph.h"
#include "runtime/backend.h"
#include <algorithm>

namespace ts::graph {
namespace {

bool same_layout(const ts_tensor& a, const ts_tensor& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim && std::equal(a.sizes, a.sizes + a.ndim, b.sizes) &&
         std::equal(a.strides, a.strides + a.ndim, b.strides);
}

} // namespace

CardGraph::CardGraph(std::span<const Work* const> work, const Test& before, const Test& after) {
  nodes_.reserve(work.size());
  for (const Work* w : work) add(*w, before, after);
  graph_.struct_size = sizeof graph_;
  graph_.host = host_table();
  graph_.value_size = sizeof(ts_graph_value);
  graph_.node_size = sizeof(ts_graph_node);
  graph_.values = values_.data();
  graph_.nodes = nodes_.data();
  graph_.inputs = inputs_.data();
  graph_.outputs = outputs_.data();
  graph_.n_values = static_cast<int32_t>(values_.size());
  graph_.n_nodes = static_cast<int32_t>(nodes_.size());
  graph_.n_inputs = static_cast<int32_t>(inputs_.size());
  graph_.n_outputs = static_cast<int32_t>(outputs_.size());
}

int32_t CardGraph::value(const Place& at, const ts_tensor& t, size_t node) {
  std::vector<int32_t>& there = of_[at.buffer];
  for (int32_t v : there)
    if (const Known& k = known_[static_cast<size_t>(v)]; k.place == at && same_layout(k.tensor, t)) return v;
  const auto v = static_cast<int32_t>(values_.size());
  ts_graph_value& value = values_.emplace_back();
  value.struct_size = sizeof value;
  value.sizes = t.sizes;
  value.strides = t.strides;
  value.dtype = t.dtype;
  value.ndim = t.ndim;
  value.alias_of = there.empty() ? -1 : there.front();
  if (value.alias_of >= 0) {
    const int64_t apart = at.offset - known_[static_cast<size_t>(value.alias_of)].place.offset;
    const auto item = static_cast<int64_t>(item_size(static_cast<DType>(t.dtype)));
    value.offset = apart / item;
    if (apart % item) told_[node] = false;
  }
  there.push_back(v);
  known_.push_back({at, t});
  return v;
}

void CardGraph::mark(int32_t v, uint32_t flag) {
  ts_graph_value& value = values_[static_cast<size_t>(v)];
  if (value.flags & flag) return;
  value.flags |= flag;
  (flag == TS_GV_INPUT ? inputs_ : outputs_).push_back(v);
}

void CardGraph::add_copy(const Work& w, std::vector<int32_t>& numbers) {
  const auto n = static_cast<int64_t>(w.bytes);
  const auto& bytes = bytes_.emplace_back(std::array<int64_t, 2>{n, 1});
  ts_tensor t{};
  t.struct_size = sizeof t;
  t.numel = n;
  t.sizes = bytes.data();
  t.strides = bytes.data() + 1;
  t.dtype = TS_UINT8;
  t.ndim = 1;
  t.flags = TS_T_CONTIGUOUS;
  for (const Place& at : w.places) numbers.push_back(value(at, t, told_.size() - 1));
}

void CardGraph::add(const Work& w, const Test& before, const Test& after) {
  told_.push_back(true);
  std::vector<int32_t>& numbers = numbers_.emplace_back();
  if (!w.call) {
    add_copy(w, numbers);
  } else {
    for (size_t k = 0; k < w.places.size(); ++k)
      numbers.push_back(w.places[k].buffer == kNone ? -1 : value(w.places[k], w.tensor(k), told_.size() - 1));
  }
  const auto n_outputs = static_cast<size_t>(w.n_outputs());
  ts_graph_node& node = nodes_.emplace_back();
  node.struct_size = sizeof node;
  node.op = w.call ? w.call->op : "copy_within";
  node.outputs = numbers.data();
  node.inputs = numbers.data() + n_outputs;
  node.n_outputs = w.n_outputs();
  node.n_inputs = static_cast<int32_t>(numbers.size() - n_outputs);
  if (w.call) {
    node.program = w.call->program;
    node.params = w.call->params;
    node.n_params = w.call->n_params;
    node.call = w.call.get();
  }
  for (size_t k = numbers.size(); k-- > 0;) { // inputs first
    if (numbers[k] < 0) continue;
    const Id buffer = w.places[k].buffer;
    if (w.reads(k) && before(buffer)) mark(numbers[k], TS_GV_INPUT);
    if (w.writes(k) && (w.reads(k) || before(buffer) || touched_[buffer])) node.effects |= TS_GE_WRITES;
    if (!w.writes(k)) continue;
    known_[static_cast<size_t>(numbers[k])].is_written = true;
    if (after(buffer)) mark(numbers[k], TS_GV_OUTPUT);
  }
  for (const Place& at : w.places)
    if (at.buffer != kNone) touched_[at.buffer] = true;
}

std::vector<ts_tensor> CardGraph::tensors(bool outputs) const {
  std::vector<ts_tensor> list;
  for (int32_t v : outputs ? outputs_ : inputs_) {
    const Known& k = known_[static_cast<size_t>(v)];
    ts_tensor& t = list.emplace_back(k.tensor);
    t.handle = nullptr;
    t.byte_offset = 0;
    t.flags &= ~uint32_t{TS_T_MUTABLE};
    if (!outputs && k.is_written) t.flags |= TS_T_MUTABLE;
  }
  return list;
}

std::vector<Place> CardGraph::places(bool outputs) const {
  std::vector<Place> list;
  for (int32_t v : outputs ? outputs_ : inputs_) list.push_back(known_[static_cast<size_t>(v)].place);
  return list;
}

} // namespace ts::graph
