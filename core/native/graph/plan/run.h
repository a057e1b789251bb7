// What one run of a plan writes to; kept for the next, without memory of tensors.
#pragma once
#include "graph/executor_state.h"
#include "graph/plan/plan.h"

namespace ts::graph {

struct PlanRun {
  explicit PlanRun(const Plan& plan);

  struct Base {
    void* handle = nullptr;
    int64_t offset = 0;
    bool lent = false; // a block of the allocator, or none: known where calls are recorded
  };
  std::vector<ts_call> calls;     // by kernel
  std::vector<ts_tensor> tensors; // their operands
  std::vector<Base> bases;        // by buffer
  std::vector<Ref<Storage>> storages;
  Ref<Storage> arena;
  std::unique_ptr<Executor::State> state;
  std::vector<const Storage*> last; // of given tensors whose sharing was looked at
  std::vector<uint64_t> memory;     // of the stretch that is looked up
};

} // namespace ts::graph
