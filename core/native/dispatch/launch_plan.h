// Launch plans: a kernel call worked out once (compiled kernels, grid, argument layout) and repeated for every call of
// the same signature through a C function over the driver, see tesserack/launch.h. And the cache they stand in.
#pragma once
#include "runtime/backend.h"
#include "tensor/small_vector.h"
#include <tesserack/launch.h>

namespace ts {

// A number of the call that is written into the by-value arguments before every launch.
struct LaunchPatch {
  enum Kind : uint8_t { Offset, Number, Param };
  Kind kind;
  char format;   // a character of Python's struct: b B h H i I q Q f d
  int32_t index; // of the operand (outputs first), or of the parameter
  uint32_t at;   // where in LaunchPlan::bytes
};

struct LaunchArgument {
  static constexpr int32_t kBytes = -2, kWorkspace = -1;
  int32_t operand;   // whose handle it is; or one of these
  uint32_t at, size; // of kBytes, in LaunchPlan::bytes
};

struct PlannedLaunch {
  ts_launch_fn entry;
  void* kernel;
  uint64_t groups[3];
  uint32_t group_size[3];
  uint32_t shared_bytes;
  uint32_t first_argument, n_arguments; // in LaunchPlan::arguments
};

struct LaunchPlan {
  std::vector<PlannedLaunch> launches;
  std::vector<LaunchArgument> arguments; // of all launches
  std::vector<LaunchPatch> patches;
  std::vector<unsigned char> bytes; // of all by-value arguments, 16-byte aligned each
  size_t workspace = 0;
  Backend* backend = nullptr; // that gives the workspace
  bool declines = false;      // every call of the signature
  std::shared_ptr<void> keep; // alive as long as the plan

  int run(const ts_call& call) const; // a status; what it raises is told by set_last_error
};

// What two calls have in common when one plan serves both, as words.
class LaunchSignature {
public:
  // Numbers among the parameters of `changing` (a bit each) count by their kind alone. What was compiled before the
  // device was recovered, `epoch` times so far, serves no call after it.
  void sign(const ts_call& call, uint64_t changing, uint32_t epoch);
  std::span<const uint64_t> words() const { return {room_.data(), size_}; }
  uint64_t hash() const { return hash_; }

private:
  SmallVector<uint64_t, 96> room_;
  size_t size_ = 0;
  uint64_t hash_ = 0;
};

// How many threads are in a backend's plans, and how many calls went by plan: one word, since every call changes both.
class PlanTraffic {
public:
  class Call {
  public:
    explicit Call(PlanTraffic& traffic) : traffic_(traffic) { traffic_.word_.fetch_add(1); }
    ~Call() { traffic_.word_.fetch_add(by_plan_ ? kDone - 1 : ~uint64_t{0}); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    void went_by_plan() { by_plan_ = true; }

  private:
    PlanTraffic& traffic_;
    bool by_plan_ = false;
  };
  bool idle() const { return word_.load() % kDone == 0; }
  uint64_t by_plan() const { return word_.load() / kDone; }

private:
  static constexpr uint64_t kDone = 1 << 16; // more threads than there are
  std::atomic<uint64_t> word_{0};
};

// Plans by signature: of bounded size, read without a lock, and filled under one. Those used least go first.
class LaunchPlanCache {
public:
  static constexpr size_t kMaxPlans = 4096;
  explicit LaunchPlanCache(PlanTraffic& traffic);
  ~LaunchPlanCache();
  // Runs the plan of a signature; false when there is none.
  bool run(const LaunchSignature& signature, const ts_call& call, int& status);
  // Keeps the plan unless another thread was faster.
  void insert(const LaunchSignature& signature, std::shared_ptr<const LaunchPlan> plan);

private:
  struct Entry;
  struct Table;
  static void put(Table& table, Entry* entry);
  static Entry* find(const Table& table, const LaunchSignature& signature);
  void rebuild(size_t capacity); // under the lock
  void free_retired();

  std::atomic<Table*> table_;
  PlanTraffic& traffic_; // while it is not idle, nothing a reader may have seen is destroyed
  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> retired_entries_; // unlinked; a reader may still be using them
  std::vector<std::unique_ptr<Table>> retired_tables_;
  std::unique_ptr<Table> owned_table_;
};

} // namespace ts
