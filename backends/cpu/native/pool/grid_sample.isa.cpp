// grid_sample: for a block of places the elements they read, with weights; then all channels.
#include "dtype_switch.h"
#include "grid_taps.h"
#include "reduce/fold.h"
#include "threads.h"

#include <algorithm>
#include <array>

namespace tesserack::cpu {
namespace {

using backend::Call;

constexpr uint64_t kFloats =
    uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16 | uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;

#if defined(__AVX2__)
#define TESSERACK_CPU_GATHERED_TAPS 1
// By the processor's own gather, which compilers avoid.
template <int N>
void gather_taps(float* __restrict sums, const int32_t* index, const float* weight, const float* plane, int64_t count,
                 bool first) {
  constexpr int64_t lanes = kVectorBytes / 4;
  for (int64_t p = 0; p < count; p += lanes) { // a block's arrays are as long as whole registers
#if defined(__AVX512F__)
    __m512 sum = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + p);
    for (int tap = 0; tap < N; ++tap) {
      const __m512i at = _mm512_loadu_si512(index + tap * kBlock + p);
      const __mmask16 inside = _mm512_cmpge_epi32_mask(at, _mm512_setzero_si512());
      const __m512 value = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, at, plane, 4);
      sum = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(weight + tap * kBlock + p), value, sum, inside);
    }
    _mm512_storeu_ps(sums + p, sum);
#else
    __m256 sum = first ? _mm256_setzero_ps() : _mm256_loadu_ps(sums + p);
    for (int tap = 0; tap < N; ++tap) {
      const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + tap * kBlock + p));
      const __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1)));
      const __m256 value = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), plane, at, inside, 4);
      const __m256 added = _mm256_fmadd_ps(_mm256_loadu_ps(weight + tap * kBlock + p), value, sum);
      sum = _mm256_blendv_ps(sum, added, inside);
    }
    _mm256_storeu_ps(sums + p, sum);
#endif
  }
}
template <int N>
void gather_taps(double* __restrict sums, const int32_t* index, const double* weight, const double* plane,
                 int64_t count, bool first) {
  constexpr int64_t lanes = kVectorBytes / 8;
  for (int64_t p = 0; p < count; p += lanes) {
#if defined(__AVX512F__)
    __m512d sum = first ? _mm512_setzero_pd() : _mm512_loadu_pd(sums + p);
    for (int tap = 0; tap < N; ++tap) {
      const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + tap * kBlock + p));
      const __mmask8 inside = _mm256_cmpge_epi32_mask(at, _mm256_setzero_si256());
      const __m512d value = _mm512_mask_i32gather_pd(_mm512_setzero_pd(), inside, at, plane, 8);
      sum = _mm512_mask3_fmadd_pd(_mm512_loadu_pd(weight + tap * kBlock + p), value, sum, inside);
    }
    _mm512_storeu_pd(sums + p, sum);
#else
    __m256d sum = first ? _mm256_setzero_pd() : _mm256_loadu_pd(sums + p);
    for (int tap = 0; tap < N; ++tap) {
      const __m128i at = _mm_loadu_si128(reinterpret_cast<const __m128i*>(index + tap * kBlock + p));
      const __m256d inside = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_cmpgt_epi32(at, _mm_set1_epi32(-1))));
      const __m256d value = _mm256_mask_i32gather_pd(_mm256_setzero_pd(), plane, at, inside, 8);
      const __m256d added = _mm256_fmadd_pd(_mm256_loadu_pd(weight + tap * kBlock + p), value, sum);
      sum = _mm256_blendv_pd(sum, added, inside);
    }
    _mm256_storeu_pd(sums + p, sum);
#endif
  }
}
#endif

// Adds weight * plane[index] of `N` taps where there is an index; the first of a place begin with zero. What stands
// where there is none is never used.
template <int N, class T, class A>
void add_taps(A* __restrict sums, const int32_t* __restrict index, const A* __restrict weight,
              const T* __restrict plane, int64_t count, bool first) {
#ifdef TESSERACK_CPU_GATHERED_TAPS
  if constexpr (std::is_floating_point_v<T>) return gather_taps<N>(sums, index, weight, plane, count, first);
#endif
  for (int64_t p = 0; p < count; ++p) {
    A sum = first ? A{0} : sums[p];
    for (int tap = 0; tap < N; ++tap) {
      const int32_t at = index[tap * kBlock + p];
      const A added = fused(weight[tap * kBlock + p], static_cast<A>(load(plane[std::max(at, 0)])), sum);
      sum = at >= 0 ? added : sum;
    }
    sums[p] = sum;
  }
}

#if defined(__AVX2__) && !defined(__AVX512F__)
#define TESSERACK_CPU_PAIRED_TAPS 1
// Of a plane's four taps those beside each other in a row, read by one load of both; where only one is inside, it lies
// in a pair with its neighbour, whose weight and mask are zero. Much quicker than gathers, which read them one by one.
struct alignas(64) Pairs {
  std::array<std::array<int32_t, kBlock>, 2> base; // per row
  std::array<std::array<std::array<float, kBlock>, 2>, 2> weight;
  std::array<std::array<std::array<int32_t, kBlock>, 2>, 2> mask; // all bits or none

  static bool fit(const Shape& s) { return s.dims == 2 && s.mode == kLinear && s.size[1] > 1; }
  void set(const Taps<float>& taps, int64_t count) {
    for (size_t row = 0; row < 2; ++row) {
      const int tap = 2 * static_cast<int>(row);
      const int32_t *left = taps.index.data() + taps.at(tap, 0), *right = taps.index.data() + taps.at(tap + 1, 0);
      const float *before = taps.weight.data() + taps.at(tap, 0), *after = taps.weight.data() + taps.at(tap + 1, 0);
      set_row(left, right, before, after, base[row].data(), weight[row][0].data(), weight[row][1].data(),
              mask[row][0].data(), mask[row][1].data(), count);
    }
  }
  __attribute__((noinline)) static void set_row(const int32_t* __restrict left, const int32_t* __restrict right,
                                                const float* __restrict before, const float* __restrict after,
                                                int32_t* __restrict base, float* __restrict first,
                                                float* __restrict second, int32_t* __restrict first_mask,
                                                int32_t* __restrict second_mask, int64_t count) {
    for (int64_t p = 0; p < count; ++p) {
      const int32_t i = left[p], j = right[p], alone = j < 0 ? i - 1 : j, pair = i < 0 || j < 0 ? alone : i;
      const float w = before[p], v = after[p], one = i < 0 ? v : 0.0f, other = j < 0 ? w : v;
      base[p] = pair < 0 ? 0 : pair;
      first[p] = j < 0 ? 0.0f : i < 0 ? one : w;
      second[p] = i < 0 ? 0.0f : other;
      first_mask[p] = j < 0 ? 0 : -1;
      second_mask[p] = i < 0 ? 0 : -1;
    }
  }
};

TS_INLINE __m256 masked_product_sum(const float* weight, const int32_t* mask, __m256 value, __m256 sum) {
  const __m256 kept = _mm256_and_ps(value, _mm256_load_ps(reinterpret_cast<const float*>(mask)));
  return _mm256_fmadd_ps(_mm256_load_ps(weight), kept, sum);
}
void add_pairs(float* __restrict sums, const Pairs& pairs, const float* plane, int64_t count) {
  for (int64_t p = 0; p < count; p += 8) { // a block's arrays are as long as whole registers
    __m256 sum = _mm256_setzero_ps();
    for (size_t row = 0; row < 2; ++row) {
      const int32_t* base = pairs.base[row].data() + p;
      const auto two = [&](int k) {
        const __m128 one = _mm_castsi128_ps(_mm_loadu_si64(plane + base[k]));
        return _mm_loadh_pi(one, reinterpret_cast<const __m64*>(plane + base[k + 1]));
      };
      const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(two(0)), two(4), 1);
      const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(two(2)), two(6), 1);
      const __m256 left = _mm256_shuffle_ps(low, high, 0x88), right = _mm256_shuffle_ps(low, high, 0xdd);
      sum = masked_product_sum(pairs.weight[row][0].data() + p, pairs.mask[row][0].data() + p, left, sum);
      sum = masked_product_sum(pairs.weight[row][1].data() + p, pairs.mask[row][1].data() + p, right, sum);
    }
    _mm256_storeu_ps(sums + p, sum);
  }
}
#endif

// The one element of each place, or zero.
template <class T>
void take_nearest(T* __restrict out, const int32_t* __restrict index, const T* __restrict plane, int64_t count) {
  int64_t p = 0;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    for (; p + 16 <= count; p += 16) {
      const __m512i at = _mm512_loadu_si512(index + p);
      const __mmask16 inside = _mm512_cmpge_epi32_mask(at, _mm512_setzero_si512());
      _mm512_storeu_ps(out + p, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, at, plane, 4));
    }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, float>)
    for (; p + 8 <= count; p += 8) {
      const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + p));
      const __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1)));
      _mm256_storeu_ps(out + p, _mm256_mask_i32gather_ps(_mm256_setzero_ps(), plane, at, inside, 4));
    }
#endif
  for (; p < count; ++p) {
    const T value = plane[std::max(index[p], 0)];
    out[p] = index[p] >= 0 ? value : T{};
  }
}

// What a block of places reads, and the sums of what it reads of a plane.
template <class T> class Reader {
  using A = Accumulator<T>;
  Taps<A> taps;
  std::array<A, kBlock> sums{};
#ifdef TESSERACK_CPU_PAIRED_TAPS
  static constexpr bool kPairs = std::is_same_v<T, float>;
  Pairs pairs{}; // what is beyond a block's end is read too
#else
  static constexpr bool kPairs = false;
#endif
  bool paired;

public:
  explicit Reader(const Shape& s) : taps(s, false), paired(false) {
#ifdef TESSERACK_CPU_PAIRED_TAPS
    paired = kPairs && Pairs::fit(s);
#endif
  }
  void set(const Shape& s, const T* grid, int64_t count) {
    fill_taps(taps, s, grid, count);
#ifdef TESSERACK_CPU_PAIRED_TAPS
    if constexpr (kPairs)
      if (paired) pairs.set(taps, count);
#endif
  }
  void read(const T* plane, T* to, int64_t count) {
    const int32_t* index = taps.index.data();
    const A* weight = taps.weight.data();
    if (taps.count == 1) return take_nearest(to, index, plane, count);
#ifdef TESSERACK_CPU_PAIRED_TAPS
    if constexpr (kPairs)
      if (paired) add_pairs(sums.data(), pairs, plane, count);
#endif
    for (int tap = 0; !paired && tap + 4 <= taps.count; tap += 4)
      add_taps<4>(sums.data(), index + tap * kBlock, weight + tap * kBlock, plane, count, tap == 0);
    for (int64_t p = 0; p < count; ++p) to[p] = store<T>(sums[static_cast<size_t>(p)]);
  }
};

template <class T> void forward(const Call& call) {
  const Shape s(call.in(0), call.in(1), call);
  const T *input = call.in(0).data<T>(), *grid = call.in(1).data<T>();
  T* out = call.out(0).data<T>();
  const int64_t blocks = (s.places + kBlock - 1) / kBlock, work = kBlock * s.taps() * s.channels;
  parallel_for(0, s.batch * blocks, std::max<int64_t>(1, 16384 / work), [&](int64_t begin, int64_t end) {
    Reader<T> reader(s);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t n = b / blocks, first = b % blocks * kBlock, count = std::min(kBlock, s.places - first);
      reader.set(s, grid + (n * s.places + first) * s.dims, count);
      for (int64_t c = n * s.channels; c < (n + 1) * s.channels; ++c)
        reader.read(input + c * s.elements, out + c * s.places + first, count);
    }
  });
}

// Inputs: input, grid; params: mode, padding, align_corners.
void grid_sample(const Call& call) {
  switch_float(call.op(), call.in(0).dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(call); });
}

} // namespace

TS_KERNEL_AS("grid_sample", grid_sample, kFloats, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
