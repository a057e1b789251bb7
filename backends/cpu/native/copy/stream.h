// Passes over more than the caches hold. Stores past them save reading every line before writing it; passes that take
// turns in direction begin with what the one before them left there.
#ifndef TESSERACK_CPU_STREAM_H
#define TESSERACK_CPU_STREAM_H

#include "measured.h"

#include <tesserack/backend.hpp>

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int64_t kAskBytes = int64_t{1} << 19;     // that no L1 or L2 cache holds all of
constexpr int64_t kStreamBytes = int64_t{24} << 20; // of which the last cache may keep too little for the next pass

// What a pass that touches so many bytes may try.
inline unsigned ways_on_offer(int64_t bytes) {
  return kPlain | (bytes >= kAskBytes ? kAsking : 0U) | (bytes >= kStreamBytes ? kStreamed : 0U);
}

// Whether this pass starts at the end. Results must not depend on it.
inline bool starts_at_the_end() {
  thread_local bool backwards = false;
  return backwards = !backwards;
}

// body(first, last) over [begin, end) in parts of `step`, last part first if `backwards`.
template <typename F> inline void in_steps(int64_t begin, int64_t end, int64_t step, bool backwards, F&& body) {
  const int64_t steps = (end - begin + step - 1) / step;
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t first = begin + (backwards ? steps - 1 - k : k) * step;
    body(first, end - first < step ? end : first + step);
  }
}

// What a pass over a row asks the memory for meanwhile: the rows (or NULL) that are read and written soon, of which the
// processor knows nothing. Without it a row of layer_norm waits for its output's lines and the next row's.
template <typename T> struct Soon {
  const T *read = nullptr, *written = nullptr;
  Soon from(int64_t i) const { return {read ? read + i : nullptr, written ? written + i : nullptr}; }
  // The lines of elements [i, i + count).
  void ask(int64_t i, int count) const {
    constexpr int line = 64 / sizeof(T);
    for (int k = 0; k < count; k += line) {
      if (read) __builtin_prefetch(read + i + k);
      if (written) __builtin_prefetch(written + i + k, 1);
    }
  }
};

// memcpy has ideas of its own about large copies, which are wrong here: with loads and stores alone 16 MiB that were
// read before take 0.7 of its time on a Zen 4.
inline void plain_copy(void* to, const void* from, int64_t bytes) {
  char* dst = static_cast<char*>(to);
  const char* src = static_cast<const char*>(from);
  constexpr int64_t width = 128;
  int64_t i = 0;
  for (; i + width <= bytes; i += width) std::memcpy(dst + i, src + i, width);
  std::memcpy(dst + i, src + i, static_cast<size_t>(bytes - i));
}

// A row. From 2 KiB on memcpy may be `rep movsb`, which takes a Zen 3 eight times as long where rows lie askew.
inline void copy_row(void* to, const void* from, int64_t bytes) {
  if (bytes > 2048) return plain_copy(to, from, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Call stream_fence() before another thread may read the destination.
inline void stream_copy(void* to, const void* from, int64_t bytes) {
#if defined(__x86_64__)
  char* dst = static_cast<char*>(to);
  const char* src = static_cast<const char*>(from);
#if defined(__AVX512F__)
  constexpr int64_t width = 64;
#elif defined(__AVX2__)
  constexpr int64_t width = 32;
#else
  constexpr int64_t width = 16;
#endif
  int64_t i = (width - static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst) % width)) % width;
  if (i > bytes) i = bytes;
  std::memcpy(dst, src, static_cast<size_t>(i));
  for (; i + width <= bytes; i += width) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + i), _mm512_loadu_si512(src + i));
#elif defined(__AVX2__)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i)));
#else
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i)));
#endif
  }
  std::memcpy(dst + i, src + i, static_cast<size_t>(bytes - i));
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

inline void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_STREAM_H
