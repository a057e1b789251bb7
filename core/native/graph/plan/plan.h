// A graph worked out for tensors of certain sizes, layouts and dtypes: the kernels to call, on which memory.
//
// What the rules of operators say follows from sizes alone, so it is taken from one run that was watched
// (plan/record.h). Later runs call kernels, on the memory of the tensors given and on one arena for what lies between;
// nodes that cannot be foreseen (random numbers, operators in Python, what looks at values) are called as ever.
// Kernels between these are one launch on cards that record launches (plan/stretch.h).
// A plan is never changed once it is made: each run has a PlanRun of its own.
#pragma once
#include "graph/executor.h"
#include "graph/plan/key.h"
#include "graph/plan/record.h"
#include "graph/plan/stretch.h"
#include "runtime/backend.h"

namespace ts::graph {

struct PlanRun; // plan/run.h

class Plan {
public:
  // NULL where calling the operators one by one does as well.
  static std::shared_ptr<const Plan> make(const Executor& executor, Recorder& seen, std::vector<Item> numbers,
                                          std::vector<uint32_t> versions);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // False, with nothing done, where the tensors share memory otherwise than when it was made.
  // `last`: the inputs, where nobody else needs them; each is let go of behind the last kernel that reads it.
  bool run(std::span<const Tensor> inputs, std::span<const Tensor> captures, const std::function<void(Id)>& on_guard,
           std::vector<Tensor>& out, std::vector<Tensor>* last) const;

  struct Summary {
    const char* half = "";                     // "forward" and "backward" of one that is recorded
    size_t kernels = 0, fused = 0, called = 0; // kernels that run, calls that went into others, nodes called as ever
    size_t claimed = 0;                        // calls that went into parts of the card's compiler
    size_t recorded = 0;                       // of the kernels, those that recorded launches have run so far
    size_t branches = 0;                       // the most of them that a launch does side by side
    std::vector<std::string> operators;        // of these nodes
    size_t arena = 0, apart = 0;               // bytes of the arena; of what it would be without reuse
  };
  Summary summary() const;

private:
  friend class PlanMaker;
  friend struct PlanRun;
  struct Patch { // an operand's memory, filled in before the call
    uint32_t tensor;
    Id buffer;
    int64_t offset;
  };
  struct Kernel {
    Work work;
    uint32_t first_tensor = 0, first_patch = 0, n_patches = 0;
  };
  // Together: the kernels of a stretch, which follow, at once.
  enum class Do : uint8_t { Kernel, Allocate, Free, Make, Forget, Call, Drop, Together };
  struct Step {
    Do what;
    Id at; // a kernel, a buffer, a value, a node, an input, or a stretch
  };
  enum class Lies : uint8_t { Nowhere, Given, Arena, Apart, Result };
  struct Home { // of a buffer
    Lies lies = Lies::Nowhere;
    int64_t offset = 0; // in the arena
    size_t nbytes = 0;
    Id value = kNone;          // Result: the tensor whose memory it is
    Id external = kNone;       // Given: which
    int64_t low = 0, high = 0; // Given: bytes that are used, from where the tensor begins
    uint32_t version = 0;      // Apart, Result: what its version is at the end
  };

  Plan(const Executor& executor, Device device);
  const Item& number(const Item& item) const { return item.is_value ? numbers_[item.id()] : item; }
  std::unique_ptr<PlanRun> take() const;
  void give_back(std::unique_ptr<PlanRun> run) const;
  bool place_given(PlanRun& run, std::span<const Tensor> inputs, std::span<const Tensor> captures) const;
  bool is_lent(const Storage& s) const;
  bool same_sharing(PlanRun& run, std::span<const Tensor> inputs, std::span<const Tensor> captures) const;
  void run_kernel(const Kernel& kernel, PlanRun& run) const;
  void call_node(Id node, PlanRun& run, const std::function<void(Id)>& on_guard) const;
  Tensor make_tensor(Id v, const PlanRun& run) const;
  void count_versions(std::span<const Tensor> inputs, std::span<const Tensor> captures) const;

  // plan/stretch.cpp
  void find_stretches();
  size_t bytes_of(const Step& step) const;
  size_t end_of_stretch(size_t begin) const;
  Id add_stretch(std::span<const Step> steps);
  void find_branches(Stretch& stretch) const;
  bool sign_memory(const Stretch& stretch, PlanRun& run) const;
  std::shared_ptr<LaunchRecording> record(const Stretch& stretch, PlanRun& run) const;
  bool launch(const Stretch& stretch, PlanRun& run) const;

  const Executor& executor_;
  Device device_;
  Backend& backend_;
  std::vector<Seen> seen_;
  std::vector<Home> homes_; // by buffer
  std::vector<Kernel> kernels_;
  std::vector<Patch> patches_;
  std::vector<Step> steps_;
  std::vector<Stretch> stretches_;
  std::vector<Id> given_;                       // buffers of given memory that are used
  std::vector<std::pair<Id, Id>> given_values_; // values of given tensors that calls or the caller get
  std::vector<Id> arena_buffers_, apart_buffers_;
  std::vector<std::vector<Id>> made_;          // by node: buffers whose memory its results bring
  std::vector<std::pair<Id, uint32_t>> bumps_; // of given tensors, at the end
  std::vector<Id> sharing_;                    // by given tensor: the first with the same memory
  std::vector<Item> numbers_;                  // by value
  size_t n_tensors_ = 0, arena_ = 0;
  bool writes_given_ = false;
  Summary summary_;
  mutable std::atomic<PlanRun*> spare_{nullptr}; // of the last run, for the next
};

} // namespace ts::graph
