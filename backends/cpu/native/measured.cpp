#include "measured.h"

#include <array>
#include <atomic>
#include <bit>

namespace tesserack::cpu {

// Written by any thread at once: a lost measurement costs nothing.
struct WayTimes {
  std::atomic<uint64_t> key = 0;
  std::atomic<uint32_t> calls = 0;
  std::array<std::atomic<float>, kWays> cost{}; // nanoseconds for each byte; 0: not measured
};

namespace {

constexpr uint32_t kTrials = 2;       // of each way, before one is preferred
constexpr uint32_t kLookAgain = 32;   // calls from one look at another way to the next
constexpr float kForgetting = 0.125F; // of the way up to a slower time: a noisy neighbour does not last

std::array<WayTimes, 256> table;

// Half powers of two.
uint64_t size_class(int64_t bytes) {
  const auto n = static_cast<uint64_t>(bytes | 1);
  const int top = std::bit_width(n) - 1;
  return static_cast<uint64_t>(top) * 2 + (top > 0 ? n >> (top - 1) & 1 : 0);
}

WayTimes& times_of(uint64_t pass, int64_t bytes, unsigned offered) {
  uint64_t key = (pass * 0x9e3779b97f4a7c15ULL) ^ (size_class(bytes) << 8 | offered);
  key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93ULL | 1;
  WayTimes& times = table[key >> 56];
  if (times.key.load(std::memory_order_relaxed) != key) {
    times.key.store(key, std::memory_order_relaxed);
    times.calls.store(0, std::memory_order_relaxed);
    for (auto& cost : times.cost) cost.store(0, std::memory_order_relaxed);
  }
  return times;
}

int nth_of(unsigned offered, uint32_t n) {
  for (; n > 0; --n) offered &= offered - 1;
  return std::countr_zero(offered);
}

int pick(WayTimes& times, unsigned offered) {
  const auto ways = static_cast<uint32_t>(std::popcount(offered));
  const uint32_t call = times.calls.fetch_add(1, std::memory_order_relaxed);
  if (call < kTrials * ways) return nth_of(offered, call % ways);
  if (call % kLookAgain == 0) return nth_of(offered, call / kLookAgain % ways);
  int best = std::countr_zero(offered);
  for (int way = 0; way < kWays; ++way)
    if ((offered >> way & 1) != 0 && times.cost[static_cast<size_t>(way)].load(std::memory_order_relaxed) <
                                         times.cost[static_cast<size_t>(best)].load(std::memory_order_relaxed))
      best = way;
  return best;
}

} // namespace

void MeasuredPass::start(uint64_t pass, int64_t bytes, unsigned offered) {
  times_ = &times_of(pass, bytes, offered);
  way_ = pick(*times_, offered);
  bytes_ = static_cast<float>(bytes);
  start_ = std::chrono::steady_clock::now();
}

void MeasuredPass::stop() {
  const std::chrono::duration<float, std::nano> passed = std::chrono::steady_clock::now() - start_;
  auto& cost = times_->cost[static_cast<size_t>(way_)];
  const float now = passed.count() / bytes_, before = cost.load(std::memory_order_relaxed);
  cost.store(before == 0 || now < before ? now : before + (now - before) * kForgetting, std::memory_order_relaxed);
}

} // namespace tesserack::cpu
