// The plans of one graph, for the last kinds of tensors that it was given.
#pragma once
#include "graph/joint/region.h"
#include "graph/plan/plan.h"
#include <mutex>

namespace ts::graph {

class PlanCache {
public:
  static constexpr size_t kMost = 8;
  struct Found {
    std::shared_ptr<const Plan> plan;         // NULL: call the operators
    bool make = false;                        // and make a plan of it: such tensors were here before
    std::shared_ptr<Region> region = nullptr; // of tensors that a gradient flows to, instead of both
  };
  Found find(std::span<const Tensor> inputs, std::span<const Tensor> captures, bool at_once);
  // NULL: there is none to be had.
  void put(PlanKey key, std::shared_ptr<const Plan> plan);
  std::vector<Plan::Summary> summaries() const;
  std::vector<std::string> why_called() const; // of runs that are recorded call by call for good

private:
  struct Entry {
    PlanKey key;
    std::shared_ptr<const Plan> plan;
    bool settled = false; // with a plan, or none to be had
    std::shared_ptr<Region> region = nullptr;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_; // the last one used first
};

} // namespace ts::graph
