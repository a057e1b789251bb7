// What kernels make of weights, kept while these hold the same: rearranged for a library, packed or transformed.
#ifndef TESSERACK_CPU_KEPT_H
#define TESSERACK_CPU_KEPT_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace tesserack::cpu {

// 128 bits of what some bytes hold. Reading them once tells more than a count of writes, which misses those through
// NumPy, DLPack or a raw address.
struct Fingerprint {
  uint64_t low, high;
};

// `bytes` filled by make(to) from the weight of that fingerprint, for that purpose (any bytes), or what an earlier call
// kept. NULL at first sight, when nothing is made: a weight in training changes before it comes again. What is kept of
// a weight goes when another content is met in its place, or when its memory is given back. All of it stays below
// TESSERACK_CPU_KEPT_MIB (256; 0: nothing is); the longest unused goes first.
std::shared_ptr<void> kept_weight(const void* weight, const Fingerprint& of, const void* purpose, size_t purpose_bytes,
                                  size_t bytes, const std::function<void(void*)>& make);

// Whether a kind of call is worth a look at its weight: no more for a while, when weights change with every call.
class Patience {
public:
  bool lasts() {
    if (misses_ >= kMisses && ++paused_ > kPause) misses_ = paused_ = 0;
    return misses_ < kMisses;
  }
  void tell(bool kept) { misses_ = kept ? 0 : misses_ + 1; }

private:
  static constexpr int kMisses = 64, kPause = 512;
  std::atomic<int> misses_ = 0, paused_ = 0;
};

// Drops what is kept of weights in memory that goes.
void forget_weights(const void* from, size_t bytes);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_KEPT_H
