// random_bits, rand_fill and randn_fill: positions of one Philox stream, so any split among threads gives the same.
#include "dtype_switch.h"
#include "math/math_f32.h"
#include "math/math_f64.h"
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

inline uint64_t word64(const uint32_t* words) { return words[0] | static_cast<uint64_t>(words[1]) << 32; }

// One uniform of [0, 1) from its words: as many leading bits as the type's precision holds.
inline void uniform_from(const uint32_t* words, float& out) { out = static_cast<float>(words[0] >> 8) * 0x1p-24f; }
inline void uniform_from(const uint32_t* words, double& out) {
  out = static_cast<double>(word64(words) >> 11) * 0x1p-53;
}
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
  const int64_t q = static_cast<int64_t>(static_cast<int32_t>(x * (2 / std::numbers::pi) + 0.5));
  const double n = static_cast<double>(static_cast<int32_t>(q));
  const double r = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, z = r * r;
  double sine = -1.0 / 1307674368000, cosine = 1.0 / 20922789888000;
  for (const double c : {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6})
    sine = sine * z + c;
  for (const double c : {-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5})
    cosine = cosine * z + c;
  const double value = q & 1 ? r + r * z * sine : 1.0 + z * cosine;
  return (q + 1) & 2 ? -value : value;
}

// Box and Muller's transform, one normal of each pair; in float32 bit for bit what the pointwise kernels make of it.
template <class T> void normals_from_words(const uint32_t* words, T* out, int64_t n) {
  alignas(64) float values[kTile / 2];
  for (int64_t i = 0; i < n; ++i) {
    const float u1 = static_cast<float>(static_cast<int32_t>(words[2 * i] >> 8)) * 0x1p-24f;
    const float u2 = static_cast<float>(static_cast<int32_t>(words[2 * i + 1] >> 8)) * 0x1p-24f;
    const float radius = std::sqrt(-2.0f * log_f32(1.0f - u1));
    values[i] = radius * cos_f32(2.0f * std::numbers::pi_v<float> * u2);
  }
  for (int64_t i = 0; i < n; ++i) out[i] = store<T>(values[i]);
}
template <> void normals_from_words<double>(const uint32_t* words, double* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double u1 = static_cast<double>(static_cast<int64_t>(word64(words + 4 * i) >> 11)) * 0x1p-53;
    const double u2 = static_cast<double>(static_cast<int64_t>(word64(words + 4 * i + 2) >> 11)) * 0x1p-53;
    out[i] = std::sqrt(-2.0 * log_f64(1.0 - u1)) * cos_first_turn(2.0 * std::numbers::pi * u2);
  }
}

void randn_fill(const Call& call) {
  switch_float("randn_fill", call.in(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
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
