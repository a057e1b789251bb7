// Kernels of a plan between two steps that only the core can do. Where the card records launches (ts_capture), such a
// stretch is one launch when it comes to the same memory again, as it does in loops.
#pragma once
#include "dispatch/launch_recording.h"
#include "graph/graph.h"
#include <mutex>
#include <vector>

namespace ts::graph {

// The recordings of one stretch, by the addresses of its memory.
class StretchRecordings {
public:
  struct Found {
    std::shared_ptr<LaunchRecording> recording;
    bool record = false; // such memory was here before
  };
  bool tries() const { return tries_.load(std::memory_order_relaxed); }
  Found find(const std::vector<uint64_t>& memory);
  void put(const std::vector<uint64_t>& memory, std::shared_ptr<LaunchRecording> recording);
  void replayed(size_t streams) { replayed_.store(streams, std::memory_order_relaxed); }
  size_t replayed_on() const { return replayed_.load(std::memory_order_relaxed); } // so many streams; 0: not yet
  void give_up();                                                                  // for good
  // Whether its kernels are tried side by side, which a card may refuse where it takes them one after the other.
  bool spreads() const { return spreads_.load(std::memory_order_relaxed); }
  void spread_no_more() { spreads_.store(false, std::memory_order_relaxed); }

private:
  // So much memory is remembered, and so many recordings are kept of it. A recording has cost about as much as four
  // replays gain: who has more of that, and of memory that was never seen, than replays rests for a while.
  static constexpr size_t kRemembered = 8, kMost = 4;
  static constexpr int kRecording = 4, kMostDebt = 40, kFirstRest = 256, kLongestRest = 1 << 16;
  struct Entry {
    std::vector<uint64_t> memory;
    std::shared_ptr<LaunchRecording> recording; // NULL: seen once
  };
  using Dropped = std::vector<Entry>; // destroyed without the lock
  void owe(int debt, Dropped& dropped);

  std::mutex mutex_;
  std::vector<Entry> entries_; // the last one used first
  int debt_ = 0, rest_ = 0, next_rest_ = kFirstRest;
  std::atomic<bool> tries_{true}, spreads_{true};
  std::atomic<size_t> replayed_{0};
};

struct Stretch {
  Id first = 0, kernels = 0; // in the plan's kernels
  std::vector<Id> buffers;   // that they use, but for those in the arena
  bool arena = false;        // which they use, too
  Branches branches;         // without pieces: they are recorded one after the other
  int64_t work = 0;
  std::unique_ptr<StretchRecordings> recordings;
};

} // namespace ts::graph
