// A graph and a kind of tensors that a gradient flows to: what is known of its backward passes, and the joint made of
// that. Runs are plain ones until a backward pass has shown what it brings and wants; where later ones bring or want
// something else, they are computed as ever and another joint is made, a few times.
#pragma once
#include "graph/joint/joint.h"
#include "graph/plan/plan.h"
#include <mutex>
#include <optional>

namespace ts::graph {

class Region {
public:
  enum class Next : uint8_t { Call, Watch, Record, Run };
  Next next(std::shared_ptr<const Joint>& joint, std::optional<Asked>& asked, bool at_once);
  void put(std::shared_ptr<const Joint> joint, std::string why); // NULL: there is none
  // A backward pass was of this kind. `again`: what it computes may be differentiated in its turn.
  void note(const Asked& asked, bool again);
  // As well, and the joint was not for it. An empty one: it is not to be compared.
  void miss(const Asked& asked, bool again);
  void add_summaries(std::vector<Plan::Summary>& out) const;
  std::string why() const; // there will be none; ""

private:
  static constexpr int kWatched = 3, kMisses = 3; // runs without a backward pass; passes that were of another kind
  void give_up(const char* why);

  mutable std::mutex mutex_;
  std::shared_ptr<const Joint> joint_;
  std::optional<Asked> asked_;
  std::string why_;
  int runs_ = 0, misses_ = 0;
};

// A run of a graph on such tensors.
std::vector<Tensor> run_region(const Executor& whole, const std::shared_ptr<Region>& region,
                               std::span<const Tensor> inputs, std::span<const Tensor> captures,
                               const std::function<void(Id)>& on_guard, bool at_once);

} // namespace ts::graph
