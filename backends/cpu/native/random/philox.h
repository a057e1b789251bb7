// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11) as a flat stream of 32-bit words.
// Everything here has internal linkage: the .isa.cpp files compile it once per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kPhiloxLanes = 8;
#elif defined(__AVX2__)
constexpr int kPhiloxLanes = 4;
#else
constexpr int kPhiloxLanes = 2;
#endif
// Vectors in flight, to cover the multiplier's latency: as many as the registers hold.
#if defined(__AVX512F__)
constexpr int kPhiloxGroups = 4;
#else
constexpr int kPhiloxGroups = 2;
#endif
constexpr int kPhiloxTile = 4 * kPhiloxLanes * kPhiloxGroups;                 // words
typedef uint64_t PhiloxVector __attribute__((vector_size(8 * kPhiloxLanes))); // one 32-bit word in each low half

// Products of the low halves; a plain 64-bit multiply would not be recognised as this one instruction.
inline PhiloxVector philox_multiply(PhiloxVector a, PhiloxVector b) {
#if defined(__AVX512F__)
  return (PhiloxVector)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (PhiloxVector)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (PhiloxVector)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

// The four words of each of kPhiloxLanes * kPhiloxGroups blocks, in low halves; the high halves hold no meaning.
struct PhiloxBlocks {
  PhiloxVector c0[kPhiloxGroups], c1[kPhiloxGroups], c2[kPhiloxGroups], c3[kPhiloxGroups];

  PhiloxBlocks(uint64_t key, uint64_t block) {
    PhiloxVector lane;
    for (int i = 0; i < kPhiloxLanes; ++i) lane[i] = static_cast<uint64_t>(i);
    for (int g = 0; g < kPhiloxGroups; ++g) {
      c0[g] = lane + (block + static_cast<uint64_t>(g * kPhiloxLanes));
      c1[g] = c0[g] >> 32;
      c2[g] = c3[g] = PhiloxVector{};
    }
    const PhiloxVector m0 = PhiloxVector{} + 0xD2511F53u, m1 = PhiloxVector{} + 0xCD9E8D57u;
    PhiloxVector k0 = PhiloxVector{} + key, k1 = PhiloxVector{} + (key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
#pragma GCC unroll 4
      for (int g = 0; g < kPhiloxGroups; ++g) {
        const PhiloxVector p0 = philox_multiply(c0[g], m0), p1 = philox_multiply(c2[g], m1);
        c0[g] = (p1 >> 32) ^ (c1[g] ^ k0);
        c2[g] = (p0 >> 32) ^ (c3[g] ^ k1);
        c1[g] = p1;
        c3[g] = p0;
      }
    }
  }
};

// Words of the blocks from `block` on, kPhiloxTile of them.
inline void philox_tile(uint64_t key, uint64_t block, uint32_t* out) {
  const PhiloxBlocks c(key, block);
  PhiloxVector even, odd;
  for (int i = 0; i < kPhiloxLanes; ++i) {
    even[i] = static_cast<uint64_t>(i % 2 * kPhiloxLanes + i / 2); // interleaves two vectors, first half
    odd[i] = even[i] + kPhiloxLanes / 2;
  }
  for (int g = 0; g < kPhiloxGroups; ++g, out += 4 * kPhiloxLanes) {
    const PhiloxVector low = (c.c0[g] & 0xFFFFFFFFu) | c.c1[g] << 32, high = (c.c2[g] & 0xFFFFFFFFu) | c.c3[g] << 32;
    const PhiloxVector first = __builtin_shuffle(low, high, even), second = __builtin_shuffle(low, high, odd);
    std::memcpy(out, &first, sizeof first);
    std::memcpy(out + 2 * kPhiloxLanes, &second, sizeof second);
  }
}

// Words first .. first + count - 1 of the stream. Positions wrap modulo 2^64.
inline void philox_words(uint64_t key, uint64_t first, int64_t count, uint32_t* out) {
  uint32_t tile[kPhiloxTile];
  while (count > 0) {
    const uint64_t skip = first % 4;
    if (skip == 0 && count >= kPhiloxTile) {
      philox_tile(key, first / 4, out);
      first += kPhiloxTile, out += kPhiloxTile, count -= kPhiloxTile;
      continue;
    }
    philox_tile(key, first / 4, tile);
    const int64_t usable = kPhiloxTile - static_cast<int64_t>(skip);
    const int64_t n = count < usable ? count : usable;
    std::memcpy(out, tile + skip, static_cast<size_t>(n) * sizeof(uint32_t));
    first += static_cast<uint64_t>(n), out += n, count -= n;
  }
}

} // namespace
