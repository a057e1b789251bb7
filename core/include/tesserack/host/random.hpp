// random_bits: the Philox4x32-10 stream (Salmon et al., SC11), the same on every device.
#ifndef TESSERACK_HOST_RANDOM_HPP
#define TESSERACK_HOST_RANDOM_HPP

#include <tesserack/backend.hpp>

#include <array>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

using Block = std::array<uint32_t, 4>;

inline Block philox(uint64_t key, uint64_t counter) {
  Block c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
  }
  return c;
}

// Word w of the stream is word w % 4 of block w / 4.
inline void random_bits(const Call& call) {
  const Tensor out = call.out(0);
  const uint64_t key = static_cast<uint64_t>(call.param(0).as_int());
  uint64_t word = static_cast<uint64_t>(call.param(1).as_int());
  const int64_t words = out.numel() * out.item_size() / 4; // of a uint64 the low word comes first
  Block block = philox(key, word / 4);
  for (int64_t i = 0; i < words; ++i, ++word) {
    if (word % 4 == 0) block = philox(key, word / 4);
    out.data<uint32_t>()[i] = block[word % 4];
  }
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_RANDOM_HPP
