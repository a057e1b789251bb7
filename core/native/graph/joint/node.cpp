// The node that stands on the tape for a whole graph, and the runs that put it there.
#include "autograd/declared.h"
#include "autograd/engine.h"
#include "autograd/meta.h"
#include "autograd/saved_tensor.h"
#include "dispatch/op_handles.h"
#include "graph/joint/region.h"
#include "graph/plan/key.h"
#include "runtime/empty.h"
#include "runtime/generator.h"

namespace ts::graph {
namespace {

// A tensor given, for a pass that the joint is not for: it runs the graph once more, call by call.
struct Held {
  Tensor tensor; // itself where it is a leaf, which no history can lead back from
  uint32_t version = 0;
};

using Drawn = std::vector<std::pair<uint64_t, uint64_t>>; // seed and position of each generator

Drawn positions(const std::vector<Generator*>& generators) {
  Drawn out;
  for (Generator* g : generators) {
    std::lock_guard lock(g->mutex);
    out.emplace_back(g->seed, g->offset);
  }
  return out;
}
void set_positions(const std::vector<Generator*>& generators, const Drawn& drawn) {
  for (size_t k = 0; k < generators.size(); ++k) {
    std::lock_guard lock(generators[k]->mutex);
    std::tie(generators[k]->seed, generators[k]->offset) = drawn[k];
  }
}

// As the graph ran: only such runs have a joint.
class PlainModes {
public:
  PlainModes()
      : state_(thread_state()), include_(state_.include), exclude_(state_.exclude), inference_(state_.inference),
        anomaly_(state_.anomaly) {
    state_.include = state_.exclude = 0;
    state_.inference = state_.anomaly = false;
  }
  ~PlainModes() {
    state_.include = include_;
    state_.exclude = exclude_;
    state_.inference = inference_;
    state_.anomaly = anomaly_;
  }
  PlainModes(const PlainModes&) = delete;
  PlainModes& operator=(const PlainModes&) = delete;

private:
  ThreadState& state_;
  KeySet include_, exclude_;
  bool inference_, anomaly_;
};

struct JointNode final : DeclaredNode {
  std::shared_ptr<const Joint> joint;
  std::shared_ptr<Region> region;
  std::shared_ptr<const Executor> whole;
  std::vector<ResultMeta> metas; // by output of the graph
  std::vector<SavedTensor> kept;
  std::vector<Held> given;
  Drawn drawn;
  bool released = false;

  std::string name() const override { return "CompiledFunctionBackward"; }
  size_t num_results() const override { return metas.size(); }
  const ResultMeta& result_meta(size_t k) const override { return metas[k]; }
  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) override;
  void release_saved() override {
    for (SavedTensor& s : kept) s.reset();
    given.clear();
    released = true;
  }
  void visit_held(HeldVisitor& visitor) const override {
    for (const SavedTensor& s : kept) s.visit_held(visitor);
    for (const Held& h : given)
      if (h.tensor.defined()) visitor.tensor(h.tensor);
  }

private:
  static bool plain_modes() {
    const ThreadState& t = thread_state();
    return !t.include && !(t.exclude & ~key_bit(key::Autograd)) && !t.anomaly && !grad_enabled();
  }
  bool serves(std::span<const Tensor> grads) const;
  bool wants_the_same() const;
  Asked asked_now(std::span<const Tensor> grads) const;
  void run_half(std::span<Tensor> grads, std::span<Tensor> out);
  void compute_anew(std::span<Tensor> grads, std::span<Tensor> out);
  std::vector<Tensor> given_again() const;
  bool as_expected(std::span<Tensor> grads) const;
  const Tensor* written_since() const;
};

bool JointNode::wants_the_same() const {
  if (!run_has_inputs()) return joint->wants_all;
  for (size_t e = 0; e < n_edges; ++e)
    if (edges()[e].node && will_run(edges()[e].node.get()) != joint->asked.wanted[joint->edges[e]]) return false;
  return true;
}

bool JointNode::serves(std::span<const Tensor> grads) const {
  for (size_t k = 0; k < grads.size(); ++k) {
    const Tensor& g = grads[k];
    const Asked::Grad& expected = joint->asked.grads[k];
    if (g.defined() != expected.arrives) return false;
    if (g.defined() && !(Asked::is_plain(g) && same(g.sizes(), expected.sizes) && same(g.strides(), expected.strides)))
      return false;
  }
  return wants_the_same();
}

// An empty one where it says nothing of other passes.
Asked JointNode::asked_now(std::span<const Tensor> grads) const {
  Asked asked;
  for (const Tensor& g : grads)
    if (g.defined() && !Asked::is_plain(g)) return asked;
  for (const Tensor& g : grads) asked.grads.push_back(Asked::grad_like(g));
  asked.wanted.resize(joint->twin.size());
  for (size_t e = 0; e < n_edges; ++e)
    asked.wanted[joint->edges[e]] = !run_has_inputs() || will_run(edges()[e].node.get());
  return asked;
}

void JointNode::backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask) {
  bool any = false;
  for (const Tensor& g : grads) any = any || g.defined();
  if (!any) return;
  if (plain_modes() && serves(grads)) return run_half(grads, out);
  compute_anew(grads, out);
}

void JointNode::run_half(std::span<Tensor> grads, std::span<Tensor> out) {
  std::vector<Tensor> inputs;
  inputs.reserve(grads.size() + kept.size());
  for (Tensor& g : grads)
    if (g.defined()) inputs.push_back(std::move(g));
  for (const SavedTensor& s : kept) inputs.push_back(s.unpack(this));
  if (!run_keeps_graph()) release_saved(); // each goes when it is not needed any more
  std::vector<Tensor> arrive = joint->backward->run_last(std::move(inputs));
  for (size_t k = 0; k < arrive.size(); ++k) out[joint->places[k]] = std::move(arrive[k]);
}

const Tensor* JointNode::written_since() const {
  for (size_t k = 0; k < given.size(); ++k)
    if (joint->twin[k] == k && !joint->renewed[k] && given[k].tensor.version() != given[k].version)
      return &given[k].tensor;
  return nullptr;
}

// Gradients as the half expects them, where they can be: without those of the graph it computes nothing anew.
bool JointNode::as_expected(std::span<Tensor> grads) const {
  const ThreadState& t = thread_state();
  bool can = !t.include && !grad_enabled() && joint->wants_all;
  for (size_t k = 0; k < grads.size(); ++k)
    can = can && (!grads[k].defined() || (Asked::is_plain(grads[k]) && joint->asked.grads[k].arrives));
  if (!can) return false;
  for (size_t k = 0; k < grads.size(); ++k) {
    const Asked::Grad& like = joint->asked.grads[k];
    if (!like.arrives || (grads[k].defined() && same(grads[k].strides(), like.strides))) continue;
    if (!is_dense(like.sizes, like.strides)) return false;
    Tensor g = empty_strided_tensor(like.sizes, like.strides, metas[k].dtype, metas[k].device);
    if (grads[k].defined())
      ops::copy_(g, grads[k]);
    else
      ops::zero_(g);
    grads[k] = std::move(g);
  }
  return true;
}

// With their history, which is that of our edges.
std::vector<Tensor> JointNode::given_again() const {
  std::vector<Tensor> again;
  for (size_t k = 0; k < given.size(); ++k) {
    if (joint->twin[k] != k) {
      again.push_back(again[joint->twin[k]]);
      continue;
    }
    again.push_back(given[k].tensor);
  }
  {
    GradMode off(false); // what the run writes is written for this pass alone
    for (uint32_t k : joint->written) again[k] = ops::clone(again[k]);
  }
  for (size_t e = 0; e < n_edges; ++e) {
    Tensor& t = again[joint->edges[e]];
    if (requires_grad(t) || !edges()[e].node) continue;
    t = detach(t);
    set_grad_fn(t.impl(), edges()[e].node, edges()[e].input);
    t->keys |= key_bit(key::Autograd);
  }
  for (size_t k = 0; k < again.size(); ++k)
    if (joint->twin[k] != k) again[k] = again[joint->twin[k]];
  return again;
}

void JointNode::compute_anew(std::span<Tensor> grads, std::span<Tensor> out) {
  check_not_freed(released);
  for (const SavedTensor& s : kept) s.unpack(this); // says what was written since
  region->miss(plain_modes() ? asked_now(grads) : Asked(), grad_enabled());
  if (const Tensor* t = written_since()) {
    if (as_expected(grads)) return run_half(grads, out);
    fail(ErrorKind::Runtime, "compile: a tensor that a compiled function was given, [", (*t).dtype(), " ", t->sizes(),
         "], has been written in place since, and this backward pass, which is of another kind than those before it, "
         "runs the function again; write to it after the pass, or call the function under "
         "compiler.set_stance('force_eager')");
  }
  std::vector<Tensor> again = given_again(), outs;
  {
    PlainModes modes;
    const Drawn now = positions(joint->random);
    set_positions(joint->random, drawn);
    const size_t n = whole->graph().inputs.size();
    outs = whole->call_operators({again.data(), n}, {again.data() + n, again.size() - n}, {});
    set_positions(joint->random, now);
  }
  std::vector<Tensor> roots, given_grads, inputs;
  for (size_t k = 0; k < grads.size(); ++k)
    if (grads[k].defined() && requires_grad(outs[k])) {
      roots.push_back(outs[k]);
      given_grads.push_back(grads[k]);
    }
  std::vector<uint32_t> first(again.size(), UINT32_MAX), count(again.size()), of;
  for (uint32_t e = 0; e < n_edges; ++e) {
    const uint32_t k = joint->edges[e];
    if (!count[k]++) {
      first[k] = e;
      if (!run_has_inputs() || will_run(edges()[e].node.get())) {
        inputs.push_back(again[k]);
        of.push_back(k);
      }
    }
  }
  if (roots.empty() || inputs.empty()) return;
  std::vector<std::pair<size_t, Tensor>> arrived;
  BackwardOptions options;
  options.create_graph = options.retain_graph = grad_enabled();
  options.allow_unused = true;
  options.accumulate = false;
  options.arrivals = &arrived;
  run_backward(roots, given_grads, inputs, options);
  std::vector<uint32_t> seen(again.size());
  for (auto& [i, g] : arrived) { // one for each edge while there are edges
    if (!g.defined()) continue;
    const uint32_t k = of[i];
    Tensor& place = out[first[k] + std::min(seen[k]++, count[k] - 1)];
    place = place.defined() ? ops::add(place, g) : std::move(g);
  }
}

void hold(JointNode& node, const Joint& joint, std::span<const Tensor> inputs, std::span<const Tensor> captures) {
  node.given.reserve(joint.twin.size());
  for (std::span<const Tensor> list : {inputs, captures})
    for (const Tensor& t : list) {
      const bool leaf = t->has(TensorImpl::kRequiresGrad) && is_leaf(t);
      node.given.push_back({leaf ? t : detach(t), t.version()});
    }
  for (uint32_t k : joint.written) {
    if (joint.renewed[k]) continue;
    Held& h = node.given[k];
    h = {ops::clone(h.tensor), 0};
    h.version = h.tensor.version();
  }
}

} // namespace

std::vector<Tensor> run_joint(const Executor& whole, std::shared_ptr<const Joint> joint,
                              const std::shared_ptr<Region>& region, std::span<const Tensor> inputs,
                              std::span<const Tensor> captures) {
  const Joint& j = *joint;
  auto node = Ref<JointNode>::adopt(new JointNode);
  auto tensor = [&](uint32_t k) -> const Tensor& {
    return k < inputs.size() ? inputs[k] : captures[k - inputs.size()];
  };
  node->resize_edges(j.edges.size());
  for (size_t e = 0; e < j.edges.size(); ++e) node->edges()[e] = gradient_edge(tensor(j.edges[e]));
  std::vector<Tensor> outs;
  {
    GradMode off(false);
    hold(*node, j, inputs, captures);
    node->drawn = positions(j.random);
    if (j.constants.empty()) {
      outs = j.forward->run(inputs, captures, {});
    } else {
      std::vector<Tensor> all(captures.begin(), captures.end());
      all.insert(all.end(), j.constants.begin(), j.constants.end());
      outs = j.forward->run(inputs, all, {});
    }
  }
  node->kept.reserve(j.kept.size());
  node->metas.resize(j.n_outputs);
  for (size_t k = 0; k < j.n_outputs; ++k) {
    if (outs[k]->base) outs[k] = detach(outs[k]); // the base is no one's
    node->metas[k] = {Dims(outs[k].sizes()), outs[k].dtype(), outs[k].device()};
  }
  for (size_t k = 0; k < j.n_outputs; ++k)
    if (j.recorded[k]) set_history(outs[k], node, static_cast<uint32_t>(k));
  for (const Joint::Kept& what : j.kept) {
    using From = Joint::Kept::From;
    const bool result = what.from == From::Output && j.recorded[what.at];
    const Tensor& t = what.from == From::Given    ? tensor(what.at)
                      : what.from == From::Output ? outs[what.at]
                                                  : outs[j.n_outputs + what.at];
    node->kept.emplace_back(t, result, what.at);
  }
  node->joint = std::move(joint);
  node->region = region;
  node->whole = whole.shared_from_this();
  outs.resize(j.n_outputs);
  return outs;
}

} // namespace ts::graph
