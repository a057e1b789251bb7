#include "comm/segment.h"
#include "comm/mailbox.h"
#include "runtime/interpreter.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ts::comm {
namespace {

constexpr uint32_t kSegmentMagic = 0x7e55c011;
constexpr long kSliceNanoseconds = 50'000'000; // how often a sleeper looks whether others are alive

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
constexpr size_t header_bytes() { return round_up(sizeof(Header), 4096); }
size_t state_bytes(int ranks) { return round_up(sizeof(RankState) * static_cast<size_t>(ranks), 4096); }
size_t slot_bytes(int ranks) { return kSlotBytes * 2 * static_cast<size_t>(ranks); }

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  timespec slice{0, kSliceNanoseconds};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &slice, nullptr, 0);
}

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

} // namespace

size_t Segment::bytes_for(int ranks) {
  const size_t n = static_cast<size_t>(ranks);
  return header_bytes() + state_bytes(ranks) + slot_bytes(ranks) + n * n * round_up(sizeof(Mailbox), 4096);
}

Segment::Segment(int descriptor, int rank, int ranks) : rank_(rank), ranks_(ranks) {
  TS_CHECK_VALUE(ranks >= 1 && ranks <= kMaxRanks && rank >= 0 && rank < ranks,
                 "local: expected a rank below a size of at most ", kMaxRanks, ", got rank ", rank, " of ", ranks);
  bytes_ = bytes_for(ranks);
  struct stat told {};
  TS_CHECK(fstat(descriptor, &told) == 0 && static_cast<size_t>(told.st_size) >= bytes_,
           "local: expected shared memory of ", bytes_, " bytes, got ", static_cast<int64_t>(told.st_size));
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  TS_CHECK(memory_ != MAP_FAILED, "local: cannot map shared memory of ", bytes_, " bytes: ", std::strerror(errno));
  auto* bytes = static_cast<std::byte*>(memory_);
  header_ = reinterpret_cast<Header*>(bytes);
  states_ = reinterpret_cast<RankState*>(bytes + header_bytes());
  slots_ = bytes + header_bytes() + state_bytes(ranks);
  mailboxes_ = slots_ + slot_bytes(ranks);
  processes_.assign(static_cast<size_t>(ranks), -1);
  header_->magic.store(kSegmentMagic, std::memory_order_relaxed);
  states_[rank].pid.store(static_cast<int32_t>(getpid()), std::memory_order_release);
  // A rank without a processor of its own must not keep another from running.
  most_spins_ = ranks <= sysconf(_SC_NPROCESSORS_ONLN) ? 4000 : 100;
  spins_.store(most_spins_, std::memory_order_relaxed);
}

Segment::~Segment() {
  for (int process : processes_)
    if (process >= 0) ::close(process);
  munmap(memory_, bytes_);
}

std::byte* Segment::mailbox(int from, int to) {
  const size_t n = static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to);
  return mailboxes_ + n * round_up(sizeof(Mailbox), 4096);
}

void Segment::wake(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst)) syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Segment::barrier(const Patience& patience) {
  RankState& mine = states_[rank_];
  const uint32_t target = mine.phase.load(std::memory_order_relaxed) + 1;
  mine.phase.store(target, std::memory_order_seq_cst);
  wake(mine.phase, mine.sleepers);
  const double began = now();
  for (int other = 0; other < ranks_; ++other)
    if (other != rank_) wait_for(other, target, patience, began);
}

void Segment::wait_for(int other, uint32_t target, const Patience& patience, double began) {
  RankState& theirs = states_[other];
  for (;;) {
    const uint32_t seen = theirs.phase.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - target) >= 0) return;
    int missing[kMaxRanks], count = 0;
    missing[count++] = other;
    for (int later = other + 1; later < ranks_; ++later)
      if (later != rank_ && static_cast<int32_t>(states_[later].phase.load(std::memory_order_acquire) - target) < 0)
        missing[count++] = later;
    await(theirs.phase, theirs.sleepers, seen, {missing, static_cast<size_t>(count)}, patience, began);
  }
}

void Segment::await(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, uint32_t seen,
                    std::span<const int> missing, const Patience& patience, double began) {
  const int spins = spins_.load(std::memory_order_relaxed);
  for (int turn = 0; turn < spins; ++turn) {
    if (word.load(std::memory_order_acquire) != seen) {
      if (spins < most_spins_) spins_.store(std::min(most_spins_, 2 * spins), std::memory_order_relaxed);
      return;
    }
    pause_briefly();
  }
  spins_.store(std::max(most_spins_ / 32, spins / 2),
               std::memory_order_relaxed); // others are at work, or have no processor: this one may be theirs
  // Who gave up may have done so after what is waited for here: the word is looked at after that, and goes before.
  const auto stuck = [&] { return word.load(std::memory_order_acquire) == seen; };
  if (aborted() && stuck()) check();
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (word.load(std::memory_order_seq_cst) == seen) futex_wait(word, seen);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
  if (stuck() && !aborted()) look_around(missing, patience, began, stuck);
  if (aborted() && stuck()) check();
}

void Segment::look_around(std::span<const int> missing, const Patience& patience, double began,
                          const std::function<bool()>& stuck) {
  if (interpreter_hooks().interrupted && interpreter_hooks().interrupted()) {
    abort(patience.what + ": rank " + std::to_string(rank_) + " was interrupted");
    fail(ErrorKind::Interrupted, patience.what, ": interrupted");
  }
  for (int other : missing)
    if (is_gone(other) && stuck()) { // it may have come before it ended
      abort(told({&other, 1}, patience, "has ended: its process is gone", false));
      check();
    }
  if (now() - began <= patience.seconds || !stuck()) return;
  abort(told(missing, patience, "did not come", true));
  check();
}

// A process that has ended makes its descriptor readable, whoever its parent is.
bool Segment::is_gone(int other) {
  if (states_[other].pid.load(std::memory_order_acquire) < 0) return true;
  int& process = processes_[static_cast<size_t>(other)];
  if (process == -1) {
    const int32_t pid = states_[other].pid.load(std::memory_order_acquire);
    if (pid == 0) return false;
    process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (process < 0) {
      const bool gone = errno == ESRCH;
      process = -2; // not to be told here: the time limit remains
      return gone;
    }
  }
  if (process < 0) return false;
  pollfd asked{process, POLLIN, 0};
  return poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN);
}

std::string Segment::told(std::span<const int> missing, const Patience& patience, const char* why, bool late) const {
  const auto began = [&](int other) {
    const RankState& s = states_[other];
    const uint64_t begun = s.sequence.load(std::memory_order_acquire);
    return begun ? std::string(s.text[begun % 2], strnlen(s.text[begun % 2], kTextBytes)) : std::string();
  };
  return missing_text(patience, missing, why, late, began) + " (told by rank " + std::to_string(rank_) + ")";
}

void Segment::abort(const std::string& reason) {
  uint32_t none = 0;
  if (header_->aborted.compare_exchange_strong(none, 1)) {
    const size_t length = std::min(reason.size(), sizeof header_->reason - 1);
    std::memcpy(header_->reason, reason.data(), length);
    header_->reason[length] = 0;
    header_->aborted.store(2, std::memory_order_release);
  }
  for (int k = 0; k < ranks_; ++k) syscall(SYS_futex, &states_[k].phase, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string Segment::reason() const {
  // Who gives up writes some hundred bytes; if it dies meanwhile, the rest need not wait for it.
  for (int turn = 0; turn < 1000 && header_->aborted.load(std::memory_order_acquire) == 1; ++turn) sched_yield();
  if (header_->aborted.load(std::memory_order_acquire) != 2) return "the group was aborted";
  return std::string(header_->reason, strnlen(header_->reason, sizeof header_->reason));
}

void Segment::leave() { states_[rank_].pid.store(-1, std::memory_order_release); }

void Segment::check() const {
  if (aborted()) fail(ErrorKind::Runtime, reason());
}

} // namespace ts::comm
