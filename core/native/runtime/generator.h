// Random state: a Philox4x32-10 key (seed) and a position in its stream of 32-bit words (Salmon et al., SC 2011).
#pragma once
#include "tensor/device.h"
#include "tensor/ref.h"
#include <cstdint>
#include <mutex>

namespace ts {

struct Generator {
  std::atomic<int32_t> refs{1};
  Device device;
  std::mutex mutex;
  uint64_t seed = 67280421310721; // PyTorch's default seed
  uint64_t offset = 0;            // in 32-bit words, a multiple of 4
  static void destroy(Generator* g) { delete g; }
  // Claims `words` words and returns the position of the first.
  uint64_t advance(uint64_t words);
  void manual_seed(uint64_t s) {
    std::lock_guard lock(mutex);
    seed = s;
    offset = 0;
  }
};

Generator& default_generator(Device device);
void manual_seed_all(uint64_t seed); // default generators of all devices, present and future

} // namespace ts
