// Memory that the ranks of one machine share: who has arrived where, and two buffers a rank to pass data through.
#pragma once
#include "comm/call.h"
#include "tensor/error.h"
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ts::comm {

inline constexpr size_t kSlotBytes = 256 * 1024; // of one buffer: what a rank's cache holds beside another rank's
inline constexpr int kMaxRanks = 64;

// What a rank tells the others, in lines of the cache of its own. Only atomics are read while others write.
struct RankState {
  alignas(64) std::atomic<uint32_t> phase;        // barriers passed or waited at; counts up
  std::atomic<uint32_t> sleepers;                 // who waits for this phase in the kernel
  alignas(64) std::atomic<int32_t> pid;           // 0 until the rank has joined, -1 once it has left
  std::atomic<uint64_t> sequence;                 // collectives begun
  alignas(64) std::atomic<uint64_t> signature[2]; // of the collective at hand, by parity
  char text[2][kTextBytes];                       // the same for people; written before the signature
  std::atomic<uint64_t> window[2], offset[2];     // where in memory that all map its tensor lies; window 0: in none
};

struct Header {
  std::atomic<uint32_t> magic;
  uint32_t ranks;
  std::atomic<uint32_t> aborted; // 0, 1 while the reason is written, 2
  char reason[1024];
};

class Segment {
public:
  // Takes over a descriptor of `bytes_for(ranks)` bytes, all zero at first.
  Segment(int descriptor, int rank, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  static size_t bytes_for(int ranks);
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  RankState& state(int rank) { return states_[rank]; }
  std::byte* slot(int rank, int parity) {
    return slots_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(parity)) * kSlotBytes;
  }
  std::byte* mailbox(int from, int to);

  // All ranks must arrive before any goes on. Throws Error when the time is over, a rank is gone or another gave up,
  // with who is missing; the same text on every rank.
  void barrier(const Patience& patience);
  // Until the word differs from what it was, or as barrier: `missing` are the ranks that are waited for.
  void await(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, uint32_t seen, std::span<const int> missing,
             const Patience& patience, double began);
  static void wake(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers);
  // Everything under way and to come ends with this text.
  void abort(const std::string& reason);
  bool aborted() const { return header_->aborted.load(std::memory_order_acquire) != 0; }
  std::string reason() const;
  void check() const; // throws if aborted
  void leave();       // as if this process had ended, which may take its time

  // Throws where who is missing is gone or the time is over, unless what is waited for has come meanwhile.
  void look_around(std::span<const int> missing, const Patience& patience, double began,
                   const std::function<bool()>& stuck);

private:
  void wait_for(int other, uint32_t target, const Patience& patience, double began);
  std::string told(std::span<const int> missing, const Patience& patience, const char* why, bool late) const;
  bool is_gone(int other);

  int rank_, ranks_;
  std::atomic<int> spins_; // looks before a rank sleeps: fewer after those that were for nothing, more after others
  int most_spins_;
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  Header* header_ = nullptr;
  RankState* states_ = nullptr;
  std::byte *slots_ = nullptr, *mailboxes_ = nullptr;
  std::vector<int> processes_; // a descriptor per rank that tells of its end; -1: none yet
};

} // namespace ts::comm
