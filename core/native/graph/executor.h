// Runs a graph without scopes: the operators in order, each on what the steps before gave it. Operators are called, so
// their rules say the sizes of results anew, and what the thread's modes ask (gradients, autocast) is done.
#pragma once
#include "graph/graph.h"
#include <atomic>
#include <memory>

namespace ts::graph {

class PlanCache; // plan/cache.h
class Region;    // joint/region.h

// When a graph is worked out for tensors of some kind (plan/plan.h): where such tensors come again, at their first
// run, or never. A plan gives the bits that calling the operators gives. Sparing: at their first run, and with large
// blocks allocated for as long as they are needed, where others in an arena would be there while what is kept between
// two graphs comes and goes.
enum class Plans : uint8_t { Again, AtOnce, Sparing, Never };

// Plans of runs that autograd records need one that a shared_ptr holds: their backward passes may outlive its owner.
class Executor : public std::enable_shared_from_this<Executor> {
public:
  explicit Executor(Graph g, Plans plans = Plans::Again); // verifies it; RuntimeError of one with scopes
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // `captures`: what stands for the graph's own, where they are given. Guards that come out otherwise than when the
  // program was written down are told to `on_guard`, with the node. Errors of operators name the user's line.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                          const std::function<void(Id node)>& on_guard) const {
    std::vector<Tensor> out;
    run(inputs, captures, on_guard, out);
    return out;
  }
  // Into an empty list, whose memory may be kept from run to run.
  void run(std::span<const Tensor> inputs, std::span<const Tensor> captures,
           const std::function<void(Id node)>& on_guard, std::vector<Tensor>& out) const {
    run_any(inputs, captures, on_guard, out, nullptr);
  }
  // For the last time: inputs go as soon as nobody needs them any more.
  std::vector<Tensor> run_last(std::vector<Tensor> inputs) const;
  // Calls the operators one by one, whoever plans. `now`: where the running node is told.
  std::vector<Tensor> call_operators(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                                     const std::function<void(Id)>& on_guard, Id* now = nullptr) const;
  // Whether dtypes, devices, sizes and strides are those that were written down, as a specialised graph needs them.
  bool fits(std::span<const Tensor> inputs, std::span<const Tensor> captures) const;
  const Graph& graph() const { return g_; }
  const PlanCache& plans() const { return *plans_; }
  bool is_sparing() const { return when_ == Plans::Sparing; }

private:
  friend class Plan;
  friend struct PlanRun;
  struct Step;
  struct State;
  void run_any(std::span<const Tensor> inputs, std::span<const Tensor> captures,
               const std::function<void(Id)>& on_guard, std::vector<Tensor>& out, std::vector<Tensor>* last) const;
  std::vector<Tensor> run_steps(State& state, const std::function<void(Id)>& on_guard, Id* now) const;
  std::unique_ptr<State> state_with(std::span<const Tensor> inputs, std::span<const Tensor> captures) const;
  std::vector<Tensor> run_watched(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                                  const std::function<void(Id)>& on_guard) const;
  int64_t elements_of(const Step& step, const State& state) const;
  std::vector<Tensor> outputs_of(const State& state) const;
  [[noreturn]] void rethrow(const Error& error, Id node) const; // with the user's line
  void run_step(const Step& step, State& state, const std::function<void(Id)>& on_guard) const;
  void call_operator(const Step& step, State& state) const;
  void compute_number(const Node& node, State& state) const;
  void check_forward(const Node& node, const State& state) const;

  std::unique_ptr<State> take_state() const;
  void give_back(std::unique_ptr<State> state) const;

  Graph g_;
  mutable std::atomic<State*> spare_{nullptr}; // of the last run, for the next
  Plans when_;
  std::unique_ptr<PlanCache> plans_;
  std::vector<Step> steps_;
  uint32_t most_words_ = 0, most_tensors_ = 0, most_args_ = 0;
};

} // namespace ts::graph
