// A run that is written down together with a backward pass, of numbers of our own, that goes as far as the tensors
// given: the graph that the halves of a joint are made of.
#include "autograd/declared.h"
#include "autograd/engine.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "graph/joint/joint.h"
#include "graph/tracer.h"
#include "runtime/generator.h"
#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

namespace ts::graph {
namespace {

constexpr size_t kMostWritten = size_t{1} << 20; // bytes of tensors given that each run may keep as they were

class JointRecorder {
public:
  JointRecorder(const Executor& whole, const Asked* asked, std::span<const Tensor> inputs,
                std::span<const Tensor> captures)
      : whole_(whole), inputs_(inputs), n_captures_(captures.size()),
        tracer_({[this] { return line(); }, [](const std::string&) {}}, true, true) {
    given_.assign(inputs.begin(), inputs.end());
    given_.insert(given_.end(), captures.begin(), captures.end());
    if (asked) joint_.asked = *asked;
  }

  std::vector<Tensor> run(std::span<const Tensor> captures, const std::function<void(Id)>& on_guard) {
    note_given();
    tracer_.begin();
    auto guard = [&](Id node) {
      decided_otherwise_ = true;
      if (on_guard) on_guard(node);
    };
    outs_ = whole_.call_operators(inputs_, captures, guard, &now_);
    now_ = kNone;
    return outs_;
  }

  std::shared_ptr<const Joint> finish();
  void cancel() noexcept { tracer_.cancel(); }

private:
  std::string line() const {
    const uint32_t at = now_ == kNone ? kNone : whole_.graph().nodes[now_].line;
    return at == kNone ? std::string() : whole_.graph().text(at);
  }
  void note_given();
  void look_at_results();
  void look_at_writes(const Graph& g);
  void look_at_tape();
  void look_at_parts() const;
  void go_back();
  Tensor gradient_for(size_t output);
  void look_at_calls(const Graph& g) const;

  const Executor& whole_;
  std::span<const Tensor> inputs_;
  size_t n_captures_;
  Tracer tracer_;
  Joint joint_;
  std::vector<Tensor> given_, outs_;
  std::vector<bool> flows_, reached_; // by tensor given
  std::vector<Edge> edges_;
  std::vector<uint32_t> versions_;
  std::vector<uint32_t> arrivals_, ended_; // tensors given: what arrives, and in which order they have it all
  std::vector<Tensor> arrived_;
  Id now_ = kNone;
  bool decided_otherwise_ = false;
};

void JointRecorder::note_given() {
  std::unordered_map<const TensorImpl*, uint32_t> first;
  for (uint32_t k = 0; k < given_.size(); ++k) {
    const Tensor& t = given_[k];
    tracer_.add_input(t, "");
    joint_.twin.push_back(first.try_emplace(t.impl(), k).first->second);
    flows_.push_back(requires_grad(t) && joint_.twin[k] == k);
    edges_.push_back(flows_[k] ? gradient_edge(t) : Edge());
    versions_.push_back(t.version());
  }
  reached_.resize(given_.size());
  if (joint_.asked.wanted.size() != given_.size()) joint_.asked.wanted.assign(given_.size(), true);
}

// What comes out must be memory of its own: an alias has a history of its base's, or of its own.
void JointRecorder::look_at_results() {
  TS_CHECK(!decided_otherwise_, "sizes decide otherwise than when it was written down");
  std::unordered_set<const Storage*> known;
  for (const Tensor& t : given_) known.insert(t->storage);
  for (const Tensor& t : outs_) {
    TS_CHECK(t.defined() && !t->payload, "a result is no dense tensor");
    TS_CHECK(!t->storage || known.insert(t->storage).second, "a result shares memory with another or with an argument");
    joint_.recorded.push_back(requires_grad(t));
  }
  size_t bytes = 0;
  for (uint32_t k = 0; k < given_.size(); ++k) {
    const Tensor& t = given_[k];
    TS_CHECK(flows_[joint_.twin[k]] == requires_grad(t), "a tensor that is written has a history since");
    if (t.version() == versions_[k] || joint_.twin[k] != k) continue;
    TS_CHECK(!flows_[k], "a tensor that a gradient flows to is written");
    auto shares = [&](const Tensor& other) { return other->storage == t->storage; };
    TS_CHECK(std::ranges::count_if(given_, shares) == std::ranges::count(joint_.twin, k),
             "a tensor is written that shares memory with another");
    bytes += static_cast<size_t>(t.numel()) * static_cast<size_t>(item_size(t.dtype()));
    joint_.written.push_back(k);
  }
  TS_CHECK(bytes <= kMostWritten, "large tensors are written");
}

// Everything on the way back is what operators declare, and nobody listens.
void JointRecorder::look_at_tape() {
  auto is_given = [&](const Edge& e) {
    bool found = false;
    for (size_t k = 0; k < edges_.size(); ++k)
      if (edges_[k].node && edges_[k].node.get() == e.node.get() && edges_[k].input == e.input)
        found = reached_[k] = true;
    return found;
  };
  std::unordered_set<const ts::Node*> seen;
  std::vector<const ts::Node*> stack;
  auto visit = [&](const Edge& e) {
    if (e.node && !is_given(e) && seen.insert(e.node.get()).second) stack.push_back(e.node.get());
  };
  for (const Tensor& t : outs_)
    if (requires_grad(t)) visit(gradient_edge(t));
  while (!stack.empty()) {
    const ts::Node* n = stack.back();
    stack.pop_back();
    TS_CHECK(dynamic_cast<const DeclaredNode*>(n), "its backward pass has ", n->name(),
             ", which is no declared operator's");
    TS_CHECK(!n->hooks && !n->location, "hooks listen to a gradient within it");
    for (const Edge& e : n->edges()) visit(e);
  }
}

// Results whose passes meet nowhere may be gone back from one after another, as a GAN's step does, and the first pass
// would let go of what the others need.
void JointRecorder::look_at_parts() const {
  std::vector<size_t> lead(outs_.size());
  std::iota(lead.begin(), lead.end(), size_t{0});
  auto part_of = [&](size_t k) {
    while (lead[k] != k) k = lead[k];
    return k;
  };
  auto is_given = [&](const Edge& e) {
    return std::ranges::any_of(edges_, [&](const Edge& g) { return g.node && g.node.get() == e.node.get(); });
  };
  std::unordered_map<const ts::Node*, size_t> seen;
  for (size_t k = 0; k < outs_.size(); ++k) {
    std::vector<Edge> stack;
    if (joint_.recorded[k]) stack.push_back(gradient_edge(outs_[k]));
    while (!stack.empty()) {
      const Edge e = stack.back();
      stack.pop_back();
      if (!e.node || is_given(e)) continue;
      auto [at, added] = seen.try_emplace(e.node.get(), k);
      if (!added)
        lead[part_of(k)] = part_of(at->second);
      else
        for (const Edge& next : e.node->edges()) stack.push_back(next);
    }
  }
  size_t parts = 0;
  for (size_t k = 0; k < outs_.size(); ++k) parts += joint_.recorded[k] && lead[k] == k;
  TS_CHECK(parts <= 1, "its results have backward passes of their own, that meet nowhere");
}

// Laid out as those that arrived.
Tensor JointRecorder::gradient_for(size_t output) {
  const Tensor& out = outs_[output];
  const Asked::Grad& like = joint_.asked.grads[output];
  ExcludeKeys hidden(key_bit(key::Tracer) | key_bit(key::Leaf) | key_bit(key::Autograd));
  const auto [low, high] = byte_extent(like.sizes, like.strides, 1);
  TS_CHECK(low >= 0, "a gradient is laid out backwards");
  Tensor flat = ops::zeros(Dims{std::max<int64_t>(high, 1)}, out.dtype(), out.device());
  return ops::as_strided(flat, like.sizes, like.strides, int64_t{0});
}

void JointRecorder::go_back() {
  std::vector<Asked::Grad>& asked = joint_.asked.grads;
  if (asked.size() != outs_.size()) {
    asked.clear();
    for (const Tensor& t : outs_) {
      Dims sizes(t.sizes());
      asked.push_back(requires_grad(t) ? Asked::Grad{true, sizes, contiguous_strides(sizes)} : Asked::Grad());
    }
  }
  std::vector<Tensor> roots, grads, wanted;
  std::vector<uint32_t> places;
  for (size_t k = 0; k < outs_.size(); ++k) {
    asked[k].arrives = asked[k].arrives && joint_.recorded[k];
    if (!asked[k].arrives) continue;
    TS_CHECK(same(asked[k].sizes, outs_[k].sizes()), "a gradient is of another shape");
    roots.push_back(outs_[k]);
    grads.push_back(gradient_for(k));
    tracer_.add_input(grads.back(), "");
  }
  for (uint32_t k = 0; k < given_.size(); ++k) {
    if (!reached_[k]) continue;
    joint_.wants_all = joint_.wants_all && joint_.asked.wanted[k];
    if (!joint_.asked.wanted[k]) continue;
    wanted.push_back(given_[k]);
    places.push_back(k);
  }
  TS_CHECK(!roots.empty() && !wanted.empty(), "nothing in it has a gradient");
  std::vector<std::pair<size_t, Tensor>> arrived;
  BackwardOptions options;
  options.retain_graph = options.allow_unused = true;
  options.accumulate = false;
  options.arrivals = &arrived;
  run_backward(roots, grads, wanted, options);
  for (auto& [input, g] : arrived) {
    if (!g.defined()) {
      ended_.push_back(places[input]);
      continue;
    }
    arrivals_.push_back(places[input]);
    arrived_.push_back(std::move(g));
  }
  TS_CHECK(!arrivals_.empty(), "no gradient arrives");
}

// What is done in the same way whatever the values are.
void JointRecorder::look_at_calls(const Graph& g) const {
  for (const graph::Node& n : g.nodes) {
    TS_CHECK(n.op, "it computes with sizes that are not known before");
    const bool answers = n.op->kind == OperatorKind::Answer && n.op->effects.reads_host;
    TS_CHECK(n.op->kind != OperatorKind::Opaque && !answers && !depends_on_data(g, n), n.op->name(),
             " depends on values, or on code that nothing is known of");
    TS_CHECK(!communicates(n), "it communicates");
    TS_CHECK(!(n.backward && is_random(n)), "its backward pass draws random numbers");
  }
}

// Of nodes that may run at once, the engine takes those first that it saw last: edges to tensors whose gradients are
// complete last stand first.
void lay_out_edges(Joint& joint, std::span<const uint32_t> arrivals, const std::vector<uint32_t>& ended,
                   const std::vector<bool>& reached) {
  std::vector<uint32_t> order(ended.rbegin(), ended.rend());
  for (uint32_t k = 0; k < reached.size(); ++k) // what nobody wants now
    if (reached[k] && std::ranges::find(order, k) == order.end()) order.push_back(k);
  joint.places.resize(arrivals.size());
  for (uint32_t k : order) {
    const size_t before = joint.edges.size();
    for (size_t j = 0; j < arrivals.size(); ++j) {
      if (arrivals[j] != k) continue;
      joint.places[j] = static_cast<uint32_t>(joint.edges.size());
      joint.edges.push_back(k);
    }
    if (joint.edges.size() == before) joint.edges.push_back(k); // at which nothing arrives
  }
}

// Counters, and statistics of training: they are read to be written, and for nothing else.
void JointRecorder::look_at_writes(const Graph& g) {
  std::vector<bool> renewed(g.values.size()); // by memory
  for (uint32_t k : joint_.written) renewed[g.values[g.inputs[k]].alias] = true;
  auto memory = [&](Id v) { return g.values[v].alias; };
  for (Id v : g.outputs) renewed[memory(v)] = false;
  for (const graph::Node& n : g.nodes) {
    const std::vector<Id> writes = written(g, n);
    const bool keeps_apart = n.op && n.op->effects.writes_where >= 0;
    g.each_use(n, [&](Id v) {
      if (!renewed[memory(v)]) return;
      bool elsewhere = false;
      g.each_def(n, [&](Id made) { elsewhere = elsewhere || memory(made) != memory(v); });
      const bool is_written = std::ranges::find(writes, v) != writes.end();
      renewed[memory(v)] = is_written && (keeps_apart || !elsewhere);
    });
  }
  joint_.renewed.assign(given_.size(), false);
  for (uint32_t k : joint_.written) joint_.renewed[k] = renewed[memory(g.inputs[k])];
}

std::shared_ptr<const Joint> JointRecorder::finish() {
  TS_CHECK(tracer_.failed().empty(), tracer_.failed());
  joint_.n_outputs = outs_.size();
  look_at_results();
  look_at_tape();
  look_at_parts();
  std::vector<std::pair<Generator*, uint64_t>> before;
  std::vector<Generator*> generators = {&default_generator(given_[0].device())};
  for (const Ref<Generator>& g : whole_.graph().generators)
    if (std::ranges::find(generators, g.get()) == generators.end()) generators.push_back(g.get());
  for (Generator* g : generators) before.emplace_back(g, g->offset);
  go_back();
  for (auto& [g, offset] : before) g->offset = offset; // a pass of ours draws nothing
  std::vector<Tensor> all = outs_;
  all.insert(all.end(), arrived_.begin(), arrived_.end());
  const Graph written_down = tracer_.end(all);
  look_at_calls(written_down);
  if (std::ranges::any_of(written_down.nodes, [](const graph::Node& n) { return is_random(n); }))
    joint_.random = std::move(generators);
  lay_out_edges(joint_, arrivals_, ended_, reached_);
  const Graph leaf = leaf_level(written_down);
  look_at_writes(leaf);
  split_joint(joint_, leaf, arrivals_, inputs_.size(), n_captures_);
  return std::make_shared<const Joint>(std::move(joint_));
}

} // namespace

std::vector<Tensor> record_joint(const Executor& whole, const Asked* asked, std::span<const Tensor> inputs,
                                 std::span<const Tensor> captures, const std::function<void(Id)>& on_guard,
                                 std::shared_ptr<const Joint>& joint, std::string& why) {
  JointRecorder recorder(whole, asked, inputs, captures);
  std::vector<Tensor> outs = recorder.run(captures, on_guard);
  try {
    joint = recorder.finish();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Python || error.kind() == ErrorKind::Interrupted) throw;
    why = error.what();
  }
  recorder.cancel();
  return outs;
}

} // namespace ts::graph
