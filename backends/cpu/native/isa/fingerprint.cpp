// A fingerprint of bytes at the speed of memory: products of halves of words, as in Collet's XXH3, scrambled block by
// block.
#include "../kept.h"

#include <cstring>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

Fingerprint fingerprint(const void* data, int64_t bytes);

namespace {

constexpr int kSums = 32; // words, so that their chains keep all units busy
constexpr int64_t kStripe = kSums * 8, kStripesBetween = 8;

struct Keys {
  uint64_t word[2 * kSums];
};
// Odd numbers without a pattern, by splitmix64 (Steele et al. 2014).
constexpr Keys make_keys() {
  Keys keys{};
  uint64_t state = 0;
  for (uint64_t& key : keys.word) {
    state += 0x9E3779B97F4A7C15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    key = (z ^ (z >> 31)) | 1;
  }
  return keys;
}
constexpr Keys kKeys = make_keys();

void add_stripe(uint64_t* sums, const unsigned char* at) {
  uint64_t words[kSums];
  std::memcpy(words, at, kStripe);
  for (int i = 0; i < kSums; ++i) {
    const uint64_t mixed = words[i] ^ kKeys.word[i];
    sums[i] += words[i ^ 1] + (mixed & 0xffffffffu) * (mixed >> 32);
  }
}

void scramble(uint64_t* sums) {
  for (int i = 0; i < kSums; ++i) {
    const uint64_t z = sums[i] ^ (sums[i] >> 47) ^ kKeys.word[kSums + i];
    sums[i] = (z & 0xffffffffu) * 0x9E3779B1u + (((z >> 32) * 0x9E3779B1u) << 32);
  }
}

uint64_t finish(const uint64_t* sums, uint64_t start, int shift) {
  uint64_t h = start;
  for (int i = 0; i < kSums; ++i) {
    h = (h ^ (sums[i] + kKeys.word[(i + shift) % (2 * kSums)])) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  h *= 0xBF58476D1CE4E5B9u;
  return h ^ (h >> 32);
}

} // namespace

Fingerprint fingerprint(const void* data, int64_t bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  alignas(64) uint64_t sums[kSums];
  std::memcpy(sums, kKeys.word, sizeof sums);
  int64_t i = 0;
  for (int64_t stripe = 0; i + kStripe <= bytes; i += kStripe) {
    add_stripe(sums, at + i);
    if (++stripe % kStripesBetween == 0) scramble(sums);
  }
  unsigned char rest[kStripe] = {};
  std::memcpy(rest, at + i, static_cast<size_t>(bytes - i));
  scramble(sums);
  add_stripe(sums, rest);
  scramble(sums);
  return {finish(sums, static_cast<uint64_t>(bytes), 0), finish(sums, ~static_cast<uint64_t>(bytes), kSums + 5)};
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
