// Which of several ways of doing a pass is quickest, by the clock. How much of the last cache a process has depends on
// neighbours that nobody sees: on a Zen 4 of 32 MiB adding two tensors of 16 MiB takes 0.62 of the time when the result
// is stored past the caches, on a Zen 5 of 32 MiB 1.2 of it.
#ifndef TESSERACK_CPU_MEASURED_H
#define TESSERACK_CPU_MEASURED_H

#include <chrono>
#include <cstdint>

namespace tesserack::cpu {

// Ways of a pass, as bits. All give the same numbers.
enum Way : unsigned {
  kPlain = 1,    // loads and stores
  kAsking = 2,   // asks the memory for what lies ahead: its arithmetic is done while the memory answers
  kStreamed = 4, // stores past the caches
};
constexpr int kWays = 3;

struct WayTimes;

// Times the scope it lives in. Calls of one `pass` (any number that tells what they do) and about as many bytes share
// what was measured: each way on offer is tried twice, then the quickest is taken, and the others looked at now and
// then. Nothing is measured where kPlain alone is on offer.
class MeasuredPass {
public:
  MeasuredPass(uint64_t pass, int64_t bytes, unsigned offered) {
    if (offered != kPlain) start(pass, bytes, offered);
  }
  ~MeasuredPass() {
    if (times_ != nullptr) stop();
  }
  MeasuredPass(const MeasuredPass&) = delete;
  MeasuredPass& operator=(const MeasuredPass&) = delete;
  Way way() const { return static_cast<Way>(1u << way_); }

private:
  void start(uint64_t pass, int64_t bytes, unsigned offered);
  void stop();

  WayTimes* times_ = nullptr;
  int way_ = 0;
  float bytes_ = 0;
  std::chrono::steady_clock::time_point start_;
};

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MEASURED_H
