// A graph with a backward pass, cut in two.
#include "graph/joint/joint.h"
#include "graph/passes/passes.h"
#include <algorithm>

namespace ts::graph {
namespace {

class Splitter {
public:
  Splitter(Joint& joint, const Graph& g, std::span<const uint32_t> arrivals, size_t n_inputs, size_t n_captures)
      : joint_(joint), g_(g), arrivals_(arrivals), n_inputs_(n_inputs), n_given_(n_inputs + n_captures) {}

  void run() {
    find_cut();
    keep_what_is_needed();
    TS_CHECK(joint_.kept.size() < (size_t{1} << 20), "it keeps too much");
    make_forward();
    make_backward();
  }

private:
  bool tensor(Id v) const { return g_.values[v].tag == Tag::Tensor; }
  void find_cut();
  void keep_what_is_needed();
  void keep(Id v);
  bool is_again(Id node) const; // costs nothing to be made again
  void make_forward();
  void make_backward();
  Graph half(std::vector<Id> inputs, std::vector<Id> captures, std::vector<Id> outputs,
             const std::vector<bool>& keep) const;

  Joint& joint_;
  const Graph& g_;
  std::span<const uint32_t> arrivals_;
  const size_t n_inputs_, n_given_;
  Id cut_ = 0;                   // the first node of the backward pass
  std::vector<Id> producer_;     // of what the forward makes
  std::vector<Id> kept_, extra_; // values
  std::vector<bool> again_;      // nodes of the forward that the backward has, too
  std::vector<Id> given_by_;     // by value: which tensor given it is
  std::vector<bool> asked_for_;
  std::vector<bool> written_memory_; // by alias
};

void Splitter::find_cut() {
  while (cut_ < g_.nodes.size() && !g_.nodes[cut_].backward) ++cut_;
  producer_.assign(g_.values.size(), kNone);
  given_by_.assign(g_.values.size(), kNone);
  for (Id k = static_cast<Id>(n_given_); k-- > 0;) given_by_[g_.inputs[k]] = k;
  for (Id n = 0; n < cut_; ++n) g_.each_def(g_.nodes[n], [&](Id v) { producer_[v] = n; });
  written_memory_.resize(g_.values.size());
  for (Id n = 0; n < g_.nodes.size(); ++n)
    for (Id v : written(g_, g_.nodes[n])) {
      written_memory_[g_.values[v].alias] = true;
      if (n < cut_) continue;
      for (Id given : g_.inputs)
        TS_CHECK(g_.values[given].alias != g_.values[v].alias, "its backward pass writes what it is given");
      for (Id other = 0; other < g_.values.size(); ++other)
        TS_CHECK(producer_[other] == kNone || g_.values[other].alias != g_.values[v].alias,
                 "its backward pass writes what the forward made");
    }
  for (size_t k = 0; k < g_.captures.size(); ++k) TS_CHECK(g_.constant[k], "a tensor is used that was not given");
}

// Views of one tensor that nobody writes.
bool Splitter::is_again(Id node) const {
  const Node& n = g_.nodes[node];
  if (!n.op || n.op->kind != OperatorKind::View || !n.op->view || writes(g_, n)) return false;
  if (n.n_args == 0 || !g_.args(n)[0].is_value || !tensor(g_.args(n)[0].id())) return false;
  const Id memory = g_.values[g_.args(n)[0].id()].alias;
  bool views = !written_memory_[memory];
  g_.each_def(n, [&](Id v) { views = views && tensor(v) && g_.values[v].alias == memory; });
  return views;
}

void Splitter::keep(Id v) {
  if (asked_for_[v]) return;
  asked_for_[v] = true;
  if (producer_[v] == kNone && given_by_[v] == kNone) return; // the backward pass's own, a gradient, a constant
  TS_CHECK(tensor(v), "its backward pass needs a number that the forward computes");
  if (producer_[v] != kNone && is_again(producer_[v])) {
    again_[producer_[v]] = true;
    return g_.each_use(g_.nodes[producer_[v]], [&](Id base) { keep(base); });
  }
  using From = Joint::Kept::From;
  const auto out =
      std::ranges::find(g_.outputs.begin(), g_.outputs.begin() + static_cast<ptrdiff_t>(joint_.n_outputs), v);
  const auto nr = static_cast<uint32_t>(out - g_.outputs.begin());
  kept_.push_back(v);
  if (given_by_[v] != kNone) {
    joint_.kept.push_back({From::Given, given_by_[v]});
  } else if (nr < joint_.n_outputs) {
    joint_.kept.push_back({From::Output, nr});
  } else {
    joint_.kept.push_back({From::Extra, static_cast<uint32_t>(extra_.size())});
    extra_.push_back(v);
  }
}

void Splitter::keep_what_is_needed() {
  asked_for_.resize(g_.values.size());
  again_.resize(g_.nodes.size());
  for (Id n = cut_; n < g_.nodes.size(); ++n) g_.each_use(g_.nodes[n], [&](Id v) { keep(v); });
  for (size_t k = joint_.n_outputs; k < g_.outputs.size(); ++k) keep(g_.outputs[k]);
}

Graph Splitter::half(std::vector<Id> inputs, std::vector<Id> captures, std::vector<Id> outputs,
                     const std::vector<bool>& keep) const {
  Graph g = g_;
  g.inputs = std::move(inputs);
  g.outputs = std::move(outputs);
  const size_t n = captures.size();
  captures.insert(captures.end(), g_.captures.begin(), g_.captures.end());
  g.captures = std::move(captures);
  g.captured.assign(n, Tensor());
  g.captured.insert(g.captured.end(), g_.captured.begin(), g_.captured.end());
  g.constant.assign(n, false);
  g.constant.insert(g.constant.end(), g_.constant.begin(), g_.constant.end());
  return without_dead(rebuilt(g, keep, no_change(g)));
}

void Splitter::make_forward() {
  std::vector<bool> first(g_.nodes.size());
  std::fill_n(first.begin(), cut_, true);
  const auto given = g_.inputs.begin();
  std::vector<Id> outputs(g_.outputs.begin(), g_.outputs.begin() + static_cast<ptrdiff_t>(joint_.n_outputs));
  outputs.insert(outputs.end(), extra_.begin(), extra_.end());
  const auto inputs = static_cast<ptrdiff_t>(n_inputs_), all = static_cast<ptrdiff_t>(n_given_);
  joint_.constants = g_.captured;
  joint_.forward = std::make_shared<const Executor>(
      half({given, given + inputs}, {given + inputs, given + all}, std::move(outputs), first), Plans::Sparing);
}

void Splitter::make_backward() {
  std::vector<bool> second = again_;
  std::fill(second.begin() + cut_, second.end(), true);
  std::vector<Id> inputs(g_.inputs.begin() + static_cast<ptrdiff_t>(n_given_), g_.inputs.end());
  inputs.insert(inputs.end(), kept_.begin(), kept_.end());
  std::vector<Id> outputs(g_.outputs.begin() + static_cast<ptrdiff_t>(joint_.n_outputs), g_.outputs.end());
  joint_.backward =
      std::make_shared<const Executor>(half(std::move(inputs), {}, std::move(outputs), second), Plans::Sparing);
}

} // namespace

void split_joint(Joint& joint, const Graph& written_down, std::span<const uint32_t> arrivals, size_t n_inputs,
                 size_t n_captures) {
  Splitter(joint, written_down, arrivals, n_inputs, n_captures).run();
}

} // namespace ts::graph
