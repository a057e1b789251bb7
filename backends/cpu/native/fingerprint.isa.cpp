// A fingerprint of bytes at the speed of memory: products of halves of words, as in Collet's XXH3, scrambled block by
// block.
#include "kept.h"

#include <cstring>
#include <utility>
#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

Fingerprint fingerprint(const void* data, int64_t bytes);

namespace {

constexpr int kSums = 32; // words, so that their chains keep all units busy
constexpr int64_t kStripe = kSums * 8, kStripesBetween = 8;
constexpr int kShift = 8;                                           // words from a stripe's keys to those of the next
constexpr int kStripeKeys = kSums + kShift * (kStripesBetween - 1); // of all stripes between two scrambles
constexpr int64_t kLine = 64, kAhead = 2048;                        // bytes; what is asked for before its turn

struct alignas(64) Keys {
  uint64_t word[kStripeKeys + kSums];
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

// As wide as the registers: left to itself the compiler kept the sums in memory, at a third of the speed.
#if defined(__AVX512F__)
constexpr int kWords = 8;
#elif defined(__AVX2__)
constexpr int kWords = 4;
#else
constexpr int kWords = 2;
#endif
constexpr int kRegisters = kSums / kWords;
typedef uint64_t Words __attribute__((vector_size(8 * kWords)));

// The products of the lower halves.
inline Words multiply(Words a, Words b) {
#if defined(__AVX512F__)
  return (Words)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b); // unmasked, GCC 12 warns of its own header
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Words)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

template <size_t... I> inline Words swap_neighbours(Words v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, (I ^ 1)...);
}

inline Words load(const void* at) {
  Words v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

class Sums {
public:
  Sums() {
    for (int i = 0; i < kRegisters; ++i) sums_[i] = load(kKeys.word + i * kWords);
  }
  // Each of the stripes between two scrambles by keys of its own: by the same ones their order would not count.
  void add_stripe(const unsigned char* at, int64_t stripe) {
    const uint64_t* const keys = kKeys.word + stripe * kShift;
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      const Words words = load(at + i * sizeof(Words)), mixed = words ^ load(keys + i * kWords);
      sums_[i] += swap_neighbours(words, std::make_index_sequence<kWords>()) + multiply(mixed, mixed >> 32);
    }
  }
  void scramble() {
    const Words factor = Words{} + 0x9E3779B1u;
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      const Words z = sums_[i] ^ (sums_[i] >> 47) ^ load(kKeys.word + kStripeKeys + i * kWords);
      sums_[i] = multiply(z, factor) + (multiply(z >> 32, factor) << 32);
    }
  }
  void read(uint64_t (&words)[kSums]) const { std::memcpy(words, sums_, sizeof words); }

private:
  Words sums_[kRegisters];
};

uint64_t finish(const uint64_t (&sums)[kSums], uint64_t start, int shift) {
  uint64_t h = start;
  for (int i = 0; i < kSums; ++i) {
    h = (h ^ (sums[i] + kKeys.word[i + shift])) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  h *= 0xBF58476D1CE4E5B9u;
  return h ^ (h >> 32);
}

} // namespace

Fingerprint fingerprint(const void* data, int64_t bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  Sums sums;
  int64_t i = 0;
  for (; i + kStripesBetween * kStripe <= bytes; i += kStripesBetween * kStripe) {
    for (int64_t stripe = 0; stripe < kStripesBetween; ++stripe) {
      const unsigned char* const from = at + i + stripe * kStripe;
#pragma GCC unroll 4
      for (int64_t line = 0; line < kStripe; line += kLine) __builtin_prefetch(from + kAhead + line);
      sums.add_stripe(from, stripe);
    }
    sums.scramble();
  }
  for (int64_t stripe = 0; i + kStripe <= bytes; i += kStripe) sums.add_stripe(at + i, stripe++);
  unsigned char rest[kStripe] = {};
  std::memcpy(rest, at + i, static_cast<size_t>(bytes - i));
  sums.scramble();
  sums.add_stripe(rest, 0);
  sums.scramble();
  uint64_t words[kSums];
  sums.read(words);
  return {finish(words, static_cast<uint64_t>(bytes), 0), finish(words, ~static_cast<uint64_t>(bytes), kSums + 5)};
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
