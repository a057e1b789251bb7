// Which kernels run side by side: each goes to one of a few streams, behind those before it whose memory it uses.
#pragma once
#include "dispatch/launch_recording.h"
#include "graph/plan/record.h"
#include <array>
#include <unordered_map>

namespace ts::graph {

// Kernels are added in the order in which they would run one by one. A chain stays on a stream; what could begin sooner
// elsewhere goes there, by a rough estimate of what kernels take. Order comes from memory alone, never from estimates.
class BranchFinder {
public:
  struct Range { // of bytes, in memory that overlaps no other space
    Id space = 0;
    int64_t low = 0, high = 0;
    bool writes = false;
  };
  // By stream: behind how many kernels, counted over all streams, its last one is that something is behind.
  using Counts = std::array<uint32_t, Branches::kMost>;
  static constexpr Counts kAll = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};

  void add(std::span<const Range> ranges, int64_t work);
  void meet(); // all that follows is behind all so far
  size_t streams() const { return out_.streams; }
  uint32_t size() const { return static_cast<uint32_t>(out_.pieces.size()); }
  // What a kernel is behind, and that with the kernel itself.
  const Counts& before(uint32_t kernel) const { return before_[kernel]; }
  Counts through(uint32_t kernel) const;
  Branches take() { return std::move(out_); }

private:
  struct Use {
    uint32_t kernel;
    int64_t low, high;
  };
  struct Space {
    std::vector<Use> writes, reads;
  };
  static constexpr uint32_t kNobody = UINT32_MAX;
  void find_earlier(std::span<const Range> ranges);
  void note(std::span<const Range> ranges);
  size_t choose(double& start) const;
  void place(size_t stream);

  Branches out_;
  std::vector<Counts> before_;
  std::vector<double> end_; // by kernel: when it may be done
  std::unordered_map<Id, Space> spaces_;
  std::vector<uint32_t> earlier_; // that the one that is added must be behind; the last first
  Counts last_ = kAll;            // by stream, since all met: the kernel, or nobody
  Counts met_{};
};

// What a call uses of its buffers, by their numbers. Of a part of the card's compiler, and of what is not understood,
// all.
void ranges_of(const Work& work, std::vector<BranchFinder::Range>& out);

// Stream by stream.
bool is_within(const BranchFinder::Counts& a, const BranchFinder::Counts& b);
BranchFinder::Counts least(const BranchFinder::Counts& a, const BranchFinder::Counts& b);
BranchFinder::Counts most(const BranchFinder::Counts& a, const BranchFinder::Counts& b);

} // namespace ts::graph
