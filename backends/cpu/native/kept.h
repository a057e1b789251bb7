// What kernels make of weights, kept while these hold the same: rearranged for a library, packed or transformed.
#ifndef TESSERACK_CPU_KEPT_H
#define TESSERACK_CPU_KEPT_H

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

// `bytes` filled by make(to) from a weight of that fingerprint for that purpose (any bytes), or what an earlier call
// kept. NULL at first sight, when nothing is made: a weight in training changes before it comes again. All that is kept
// stays below TESSERACK_CPU_KEPT_MIB (256; 0: nothing is); the longest unused goes first.
std::shared_ptr<void> kept_weight(const Fingerprint& of, const void* purpose, size_t purpose_bytes, size_t bytes,
                                  const std::function<void(void*)>& make);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_KEPT_H
