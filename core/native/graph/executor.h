// Runs a graph without scopes: the operators in order, each on what the steps before gave it. Operators are called, so
// their rules say the sizes of results anew, and what the thread's modes ask (gradients, autocast) is done.
#pragma once
#include "graph/graph.h"
#include <atomic>
#include <memory>

namespace ts::graph {

class Executor {
public:
  explicit Executor(Graph g); // verifies it; RuntimeError of one with scopes
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // `captures`: what stands for the graph's own, where they are given. Guards that come out otherwise than when the
  // program was written down are told to `on_guard`, with the node. Errors of operators name the user's line.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                          const std::function<void(Id node)>& on_guard) const;
  // Whether dtypes, devices, sizes and strides are those that were written down, as a specialised graph needs them.
  bool fits(std::span<const Tensor> inputs, std::span<const Tensor> captures) const;
  const Graph& graph() const { return g_; }

private:
  struct Step;
  struct State;
  void run_step(const Step& step, State& state, const std::function<void(Id)>& on_guard) const;
  void call_operator(const Step& step, State& state) const;
  void compute_number(const Node& node, State& state) const;
  void check_forward(const Node& node, const State& state) const;

  std::unique_ptr<State> take_state() const;
  void give_back(std::unique_ptr<State> state) const;

  Graph g_;
  mutable std::atomic<State*> spare_{nullptr}; // of the last run, for the next
  std::vector<Step> steps_;
  uint32_t most_words_ = 0, most_tensors_ = 0, most_args_ = 0;
};

} // namespace ts::graph
