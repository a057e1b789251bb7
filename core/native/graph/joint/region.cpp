#include "graph/joint/region.h"
#include "autograd/engine.h"
#include "autograd/meta.h"
#include "graph/plan/cache.h"

namespace ts::graph {

Asked::Grad Asked::grad_like(const Tensor& g) {
  if (!g.defined()) return {};
  return {true, Dims(g.sizes()), Dims(g.strides())};
}

bool Asked::is_plain(const Tensor& g) {
  return !(g->keys & ~(backend_bits() | key_bit(key::Autograd))) && !g->payload && (g->storage || !g.numel());
}

void Region::give_up(const char* why) {
  joint_ = nullptr;
  why_ = why;
}

Region::Next Region::next(std::shared_ptr<const Joint>& joint, std::optional<Asked>& asked, bool at_once) {
  std::lock_guard lock(mutex_);
  if (!why_.empty()) return Next::Call;
  if ((joint = joint_)) return Next::Run;
  if (!asked_ && !at_once && ++runs_ <= kWatched) return Next::Watch;
  asked = asked_;
  return Next::Record;
}

void Region::put(std::shared_ptr<const Joint> joint, std::string why) {
  std::lock_guard lock(mutex_);
  joint_ = std::move(joint);
  if (!joint_) why_ = why.empty() ? "it cannot be written down" : std::move(why);
}

void Region::note(const Asked& asked, bool again) {
  std::lock_guard lock(mutex_);
  if (again) return give_up("its gradients are differentiated");
  if (!joint_) asked_ = asked;
}

void Region::miss(const Asked& asked, bool again) {
  std::lock_guard lock(mutex_);
  if (again) return give_up("its gradients are differentiated");
  if (++misses_ >= kMisses) return give_up("its backward passes bring or want something else each time");
  if (asked.grads.empty()) return;
  joint_ = nullptr;
  asked_ = asked;
}

void Region::add_summaries(std::vector<Plan::Summary>& out) const {
  std::shared_ptr<const Joint> joint;
  {
    std::lock_guard lock(mutex_);
    joint = joint_;
  }
  if (!joint) return;
  auto add = [&](const Executor& half, const char* name) {
    for (Plan::Summary s : half.plans().summaries()) {
      s.half = name;
      out.push_back(std::move(s));
    }
  };
  add(*joint->forward, "forward");
  add(*joint->backward, "backward");
}

std::string Region::why() const {
  std::lock_guard lock(mutex_);
  return why_;
}

namespace {

// Of one run: tells the region what its backward pass brings and wants.
struct Watched {
  std::shared_ptr<Region> region;
  std::vector<Edge> edges; // by tensor given; of those without a gradient, none
  Asked asked;

  void note(size_t output, const Tensor& g) {
    const bool plain = !g.defined() || Asked::is_plain(g);
    if (plain) asked.grads[output] = Asked::grad_like(g);
    for (size_t k = 0; k < edges.size(); ++k)
      asked.wanted[k] = !run_has_inputs() || (edges[k].node && will_run(edges[k].node.get()));
    region->note(asked, grad_enabled() || !plain);
  }
};

void watch(const std::shared_ptr<Region>& region, std::span<const Tensor> inputs, std::span<const Tensor> captures,
           std::span<const Tensor> outs) {
  auto watched = std::make_shared<Watched>();
  watched->region = region;
  for (std::span<const Tensor> list : {inputs, captures})
    for (const Tensor& t : list) watched->edges.push_back(requires_grad(t) ? gradient_edge(t) : Edge());
  watched->asked.grads.resize(outs.size());
  watched->asked.wanted.resize(watched->edges.size());
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!requires_grad(outs[k])) continue;
    const Edge e = gradient_edge(outs[k]);
    if (!e.node || e.node->accumulates_into()) continue;
    e.node->make_hooks().pre.push_back(
        {next_hook_id(), 0, [watched, k, nr = e.input](std::vector<Tensor>& grads) { watched->note(k, grads[nr]); }});
  }
}

} // namespace

std::vector<Tensor> run_region(const Executor& whole, const std::shared_ptr<Region>& region,
                               std::span<const Tensor> inputs, std::span<const Tensor> captures,
                               const std::function<void(Id)>& on_guard, bool at_once) {
  std::shared_ptr<const Joint> joint;
  std::optional<Asked> asked;
  const bool hooked = thread_state().saved_tensor_hooks > 0; // they want to see what is saved
  const bool lasts = !whole.weak_from_this().expired();
  switch (hooked || !lasts ? Region::Next::Call : region->next(joint, asked, at_once)) {
  case Region::Next::Run: return run_joint(whole, std::move(joint), region, inputs, captures);
  case Region::Next::Record: {
    std::string why;
    std::vector<Tensor> outs = record_joint(whole, asked ? &*asked : nullptr, inputs, captures, on_guard, joint, why);
    region->put(std::move(joint), std::move(why));
    return outs;
  }
  case Region::Next::Watch: {
    std::vector<Tensor> outs = whole.call_operators(inputs, captures, on_guard);
    watch(region, inputs, captures, outs);
    return outs;
  }
  default: return whole.call_operators(inputs, captures, on_guard);
  }
}

} // namespace ts::graph
