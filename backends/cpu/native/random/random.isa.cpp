// random_bits, rand_fill and randn_fill: positions of one Philox stream, so any split among threads gives the same.
#include "dtype_switch.h"
#include "math/math_f32.h"
#include "math/math_f64.h"
#include "math/root_log_avx512.h"
#include "math/trig_avx512.h"
#include "math/trig_short.h"
#include "philox.h"
#include "threads.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kTile = 1024;         // words made at a time; they stay in the L1 cache
constexpr int64_t kRandomGrain = 16384; // words worth a thread

struct Stream {
  uint64_t key, first;
  void words(int64_t begin, int64_t count, uint32_t* out) const {
    philox_words(key, first + static_cast<uint64_t>(begin), count, out);
  }
};

void random_bits(const Call& call) {
  const Tensor out = call.out(0);
  const Stream stream{static_cast<uint64_t>(call.param(0).as_int()), static_cast<uint64_t>(call.param(1).as_int())};
  if (out.item_size() != 4 && out.item_size() != 8) {
    backend::fail(TS_ERROR, "random_bits: expected an output of dtype uint32 or uint64, got %s",
                  backend::dtype_name(out.dtype()));
  }
  const int64_t words = out.numel() * (out.item_size() / 4);
  parallel_for(0, words, kRandomGrain,
               [&](int64_t begin, int64_t end) { stream.words(begin, end - begin, out.data<uint32_t>() + begin); });
}

// The leading 53 bits as a fraction, without a conversion of 64 bits, which AVX2 lacks: 52 of them beside 1, then the
// last.
inline double fraction53(uint64_t word) {
  return (float_of(word >> 12 | uint64_t{1023} << 52) - 1.0) +
         float_of((0 - (word >> 11 & 1)) & uint64_t{1023 - 53} << 52);
}
inline uint64_t word64(const uint32_t* words) { return words[0] | static_cast<uint64_t>(words[1]) << 32; }

// One uniform of [0, 1) from its words: as many leading bits as the type's precision holds.
inline void uniform_from(const uint32_t* words, float& out) { out = static_cast<float>(words[0] >> 8) * 0x1p-24f; }
inline void uniform_from(const uint32_t* words, double& out) { out = fraction53(word64(words)); }
inline void uniform_from(const uint32_t* words, Float16& out) {
  out = float_to_half(static_cast<float>(words[0] >> 21) * 0x1p-11f);
}
inline void uniform_from(const uint32_t* words, BFloat16& out) {
  out = float_to_bfloat16(static_cast<float>(words[0] >> 24) * 0x1p-8f);
}

// Fills out in tiles; `convert(words, out, n)` turns words_each * n words into n elements.
template <class T, class Convert> void fill_from_words(const Call& call, int64_t words_each, const Convert& convert) {
  const Tensor self = call.in(0);
  const Stream stream{static_cast<uint64_t>(call.param(0).as_int()), static_cast<uint64_t>(call.param(1).as_int())};
  parallel_for(0, self.numel(), kRandomGrain / words_each, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kTile];
    for (int64_t i = begin; i < end; i += kTile / words_each) {
      const int64_t n = std::min(kTile / words_each, end - i);
      stream.words(i * words_each, n * words_each, words);
      convert(words, self.data<T>() + i, n);
    }
  });
}

void rand_fill(const Call& call) {
  switch_float("rand_fill", call.in(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int64_t each = std::is_same_v<T, double> ? 2 : 1;
    fill_from_words<T>(call, each, [](const uint32_t* words, T* out, int64_t n) {
      for (int64_t i = 0; i < n; ++i) uniform_from(words + each * i, out[i]);
    });
  });
}

// cos of 0 <= x <= 2 pi: pi/2 removed in two parts, then Taylor's series, whose remainder on [-pi/4, pi/4] is 5e-17.
inline double cos_first_turn(double x) {
  const double t = x * (2 / std::numbers::pi) + kRound, n = t - kRound;
  const uint64_t q = bits_of(t);
  const double r = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, z = r * r;
  double sine = -1.0 / 1307674368000, cosine = 1.0 / 20922789888000;
  for (const double c : {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6})
    sine = sine * z + c;
  for (const double c : {-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5})
    cosine = cosine * z + c;
  const double value = q & 1 ? r + r * z * sine : 1.0 + z * cosine;
  return float_of(bits_of(value) ^ ((q + 1) & 2) << 62);
}

// Box and Muller's transform, one normal of each pair; in float32 bit for bit what the pointwise kernels make of it.
#ifdef TESSERACK_CPU_EXP_AVX512
TS_INLINE __m512 normals_avx512(__m512i first, __m512i second) {
  const auto leading = [](__m512i words) {
    return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_srli_epi32(0xffff, words, 8));
  };
  const __m512 u = _mm512_fnmadd_ps(leading(first), _mm512_set1_ps(0x1p-24f), _mm512_set1_ps(1.0f));
  const __m512 angle = _mm512_mul_ps(leading(second), _mm512_set1_ps(2.0f * std::numbers::pi_v<float> * 0x1p-24f));
  return _mm512_mul_ps(sqrt_avx512(_mm512_mul_ps(_mm512_set1_ps(-2.0f), log_avx512(u))), cos_avx512(angle));
}
#endif
inline float first_turn_cos(float x) {
#if defined(__FMA__)
  return short_cos(x);
#else
  return cos_f32(x);
#endif
}
// Two loops, since of one the processor holds too few turns at once to hide how long each takes.
inline void normals(const uint32_t* __restrict first, const uint32_t* __restrict second, float* __restrict out,
                    int64_t n) {
  const auto leading = [](uint32_t word) { return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f; };
  for (int64_t i = 0; i < n; ++i) out[i] = -2.0f * log_normal(1.0f - leading(first[i]), 0, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    out[i] = std::sqrt(out[i]) * first_turn_cos(2.0f * std::numbers::pi_v<float> * leading(second[i]));
}
// Of at most kTile words.
inline void normals(const uint32_t* words, float* out, int64_t n) {
#ifdef TESSERACK_CPU_EXP_AVX512
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (int64_t i = 0; i < n; i += 16) {
    const int64_t left = 2 * (n - i);
    const uint32_t present = left >= 32 ? ~0u : (1u << left) - 1;
    const __m512i low = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(present), words + 2 * i);
    const __m512i high = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(present >> 16), words + 2 * i + 16);
    const __m512 z =
        normals_avx512(_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high));
    _mm512_mask_storeu_ps(out + i, left >= 32 ? 0xffff : static_cast<__mmask16>((1u << (n - i)) - 1), z);
  }
#else
  alignas(64) uint32_t first[kTile / 2] = {}, second[kTile / 2] = {}; // or GCC takes them for uninitialized
  for (int64_t i = 0; i < n; ++i) first[i] = words[2 * i], second[i] = words[2 * i + 1];
  normals(first, second, out, n);
#endif
}
template <class T> void normals_from_words(const uint32_t* words, T* out, int64_t n) {
  if constexpr (std::is_same_v<T, float>) return normals(words, out, n);
  alignas(64) float values[kTile / 2];
  normals(words, values, n);
  for (int64_t i = 0; i < n; ++i) out[i] = store<T>(values[i]);
}
template <> void normals_from_words<double>(const uint32_t* words, double* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double u1 = fraction53(word64(words + 4 * i)), u2 = fraction53(word64(words + 4 * i + 2));
    out[i] = std::sqrt(-2.0 * log_normal_f64(1.0 - u1)) * cos_first_turn(2.0 * std::numbers::pi * u2);
  }
}

// Straight from the blocks, without putting words in order: two normals of each lie side by side in a register of first
// words and one of second. Returns how many of n it made, beginning with `first`, which begins a block.
int64_t normals_from_blocks(uint64_t key, uint64_t first, float* out, int64_t n) {
  constexpr int64_t step = kPhiloxTile / 2;
#ifdef TESSERACK_CPU_EXP_AVX512
  constexpr __mmask16 odd = 0xaaaa;
  int64_t i = 0;
  for (; i + step <= n; i += step) {
    const PhiloxBlocks c(key, first / 4 + static_cast<uint64_t>(i / 2));
    for (int g = 0; g < kPhiloxGroups; ++g) {
      const auto beside = [](PhiloxVector low, PhiloxVector high) {
        return _mm512_mask_blend_epi32(odd, (__m512i)low, (__m512i)(high << 32));
      };
      _mm512_storeu_ps(out + i + g * 16, normals_avx512(beside(c.c0[g], c.c2[g]), beside(c.c1[g], c.c3[g])));
    }
  }
  return i;
#else
  alignas(64) uint32_t words[2][kTile / 2];
  const auto put = [](uint32_t* to, PhiloxVector low, PhiloxVector high) {
    const PhiloxVector beside = (low & 0xFFFFFFFFu) | high << 32;
    std::memcpy(to, &beside, sizeof beside);
  };
  int64_t made = 0;
  while (made + step <= n) {
    int64_t i = 0;
    for (const int64_t end = std::min(kTile / 2, n - made); i + step <= end; i += step) {
      const PhiloxBlocks c(key, first / 4 + static_cast<uint64_t>((made + i) / 2));
      for (int64_t g = 0, at = i; g < kPhiloxGroups; ++g, at += 2 * kPhiloxLanes)
        put(words[0] + at, c.c0[g], c.c2[g]), put(words[1] + at, c.c1[g], c.c3[g]);
    }
    normals(words[0], words[1], out + made, i);
    made += i;
  }
  return made;
#endif
}

void randn_fill(const Call& call) {
  switch_float("randn_fill", call.in(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, float>) {
      const uint64_t key = static_cast<uint64_t>(call.param(0).as_int());
      const uint64_t first = static_cast<uint64_t>(call.param(1).as_int());
      return parallel_for(0, call.in(0).numel(), kRandomGrain / 2, [&](int64_t begin, int64_t end) {
        alignas(64) uint32_t words[kPhiloxTile];
        float* const out = call.in(0).data<float>();
        while (begin < end) {
          const uint64_t at = first + 2 * static_cast<uint64_t>(begin);
          if (at % 4 == 0) begin += normals_from_blocks(key, at, out + begin, end - begin);
          const int64_t n = std::min<int64_t>(at % 4 == 2 ? 1 : kPhiloxTile / 2, end - begin);
          philox_words(key, first + 2 * static_cast<uint64_t>(begin), 2 * n, words);
          normals(words, out + begin, n);
          begin += n;
        }
      });
    }
    fill_from_words<T>(call, std::is_same_v<T, double> ? 4 : 2, normals_from_words<T>);
  });
}

// word % span by a multiplication: the quotient rounded down from floor(2^(32 + shift) / span) is one too small at
// most.
struct Remainder {
  uint32_t span, factor, shift;
  bool power; // of two; 2^32 too, as 0

  explicit Remainder(uint64_t n) : span(static_cast<uint32_t>(n)), factor(0), shift(0), power((n & (n - 1)) == 0) {
    if (power) return;
    shift = 31u - static_cast<uint32_t>(std::countl_zero(span));
    factor = static_cast<uint32_t>((uint64_t{1} << (32 + shift)) / span);
  }
  void fill(const uint32_t* words, int64_t low, int64_t* out, int64_t n) const {
    if (power) {
      for (int64_t i = 0; i < n; ++i) out[i] = low + static_cast<int64_t>(words[i] & (span - 1));
      return;
    }
    const uint64_t m = factor, by = span, right = 32 + shift;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t word = words[i], quotient = (word * m) >> right;
      const uint32_t rest = static_cast<uint32_t>(word) - static_cast<uint32_t>(quotient * by);
      out[i] = low + static_cast<int64_t>(rest >= span ? rest - span : rest);
    }
  }
  // By way of int64, as each loop alone becomes vectors.
  template <class T> void fill(const uint32_t* words, int64_t low, T* out, int64_t n) const {
    alignas(64) int64_t values[kTile];
    fill(words, low, values, n);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(values[i]);
  }
};

// params after the stream's two: the number of values, 0 for 2^64, and the least of them. One word for up to 2^32
// values.
void randint_fill(const Call& call) {
  const uint64_t span = static_cast<uint64_t>(call.param(2).as_int());
  const int64_t low = call.param(3).as_int();
  const bool narrow = span != 0 && span <= uint64_t{1} << 32;
  const auto fill = [&]<class T>(T) {
    if (narrow)
      return fill_from_words<T>(call, 1, [&, remainder = Remainder(span)](const uint32_t* words, T* out, int64_t n) {
        remainder.fill(words, low, out, n);
      });
    fill_from_words<T>(call, 2, [&](const uint32_t* words, T* out, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t word = word64(words + 2 * i), rest = span == 0 ? word : word % span;
        out[i] = static_cast<T>(static_cast<uint64_t>(low) + rest);
      }
    });
  };
  switch (call.in(0).dtype()) {
  case TS_INT64: return fill(int64_t{});
  case TS_INT32: return fill(int32_t{});
  case TS_UINT8: return fill(uint8_t{});
  default:
    backend::fail(TS_ERROR, "randint_fill: expected int64, int32 or uint8, got %s",
                  backend::dtype_name(call.in(0).dtype()));
  }
}

} // namespace

constexpr uint64_t kDrawnIntegers = uint64_t{1} << TS_INT64 | uint64_t{1} << TS_INT32 | uint64_t{1} << TS_UINT8;
TS_KERNEL_AS("randint_fill", randint_fill, kDrawnIntegers, TS_L_CONTIGUOUS);
TS_KERNEL_AS("random_bits", random_bits, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("rand_fill", rand_fill, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("randn_fill", randn_fill, 0, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
