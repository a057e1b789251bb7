// Associative folds over runs of a compute type: the arithmetic of reduce, one vector register at a time.
#ifndef TESSERACK_CPU_FOLD_H
#define TESSERACK_CPU_FOLD_H

#include "storage.h"

#include <cstring>
#include <limits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T> struct VectorOf { typedef T type __attribute__((vector_size(kVectorBytes))); };
template <typename T> using Vector = typename VectorOf<T>::type;
template <typename T> constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T> inline Vector<T> load_vector(const T* p) {
  Vector<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A fold has: Acc, held while a run is folded; Wide, in which runs are added up and stored; start(); step(acc, x);
// merge(a, b) of two accumulators. step and merge of float folds also take vectors.
template <typename T> struct SumFold {
  using Acc = T;
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  static Acc start() { return T(0); }
  template <typename V> static V step(V acc, V x) { return acc + x; }
  template <typename V> static V merge(V a, V b) { return a + b; }
};
// Of the elements' squares. first(x) is step(start(), x).
template <typename T> struct SquaresFold : SumFold<T> {
  template <typename V> static V first(V x) { return x * x; }
  template <typename V> static V step(V acc, V x) { return acc + x * x; }
};
// Of the elements that are numbers: a NaN counts as zero.
template <typename T> struct NumbersFold : SumFold<T> {
  template <typename V> static V first(V x) { return x == x ? x : V{}; }
  template <typename V> static V step(V acc, V x) { return acc + (x == x ? x : V{}); }
};
template <typename T> struct ProdFold {
  using Acc = T;
  using Wide = T;
  static Acc start() { return T(1); }
  template <typename V> static V step(V acc, V x) { return acc * x; }
  template <typename V> static V merge(V a, V b) { return a * b; }
};
// The larger (or smaller) of acc and x, and a NaN of either: two instructions, where compilers find five.
template <bool Larger, typename V> inline V extreme(V acc, V x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<V, Vector<float>>) {
    const auto a = reinterpret_cast<__m512>(acc), v = reinterpret_cast<__m512>(x);
    const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    return reinterpret_cast<V>(Larger ? _mm512_mask_max_ps(v, number, v, a) : _mm512_mask_min_ps(v, number, v, a));
  } else if constexpr (std::is_same_v<V, Vector<double>>) {
    const auto a = reinterpret_cast<__m512d>(acc), v = reinterpret_cast<__m512d>(x);
    const __mmask8 number = _mm512_cmp_pd_mask(v, v, _CMP_ORD_Q);
    return reinterpret_cast<V>(Larger ? _mm512_mask_max_pd(v, number, v, a) : _mm512_mask_min_pd(v, number, v, a));
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<V, Vector<float>>) {
    const auto a = reinterpret_cast<__m256>(acc), v = reinterpret_cast<__m256>(x);
    const __m256 found = Larger ? _mm256_max_ps(v, a) : _mm256_min_ps(v, a);
    return reinterpret_cast<V>(_mm256_blendv_ps(found, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
  } else if constexpr (std::is_same_v<V, Vector<double>>) {
    const auto a = reinterpret_cast<__m256d>(acc), v = reinterpret_cast<__m256d>(x);
    const __m256d found = Larger ? _mm256_max_pd(v, a) : _mm256_min_pd(v, a);
    return reinterpret_cast<V>(_mm256_blendv_pd(found, v, _mm256_cmp_pd(v, v, _CMP_UNORD_Q)));
  }
#endif
  return (Larger ? x > acc : x < acc) | (x != x) ? x : acc;
}

template <typename T> struct MaxFold {
  using Acc = T;
  using Wide = T;
  static Acc start() {
    return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  }
  template <typename V> static V step(V acc, V x) { return extreme<true>(acc, x); }
  template <typename V> static V merge(V a, V b) { return step(a, b); }
};
template <typename T> struct MinFold {
  using Acc = T;
  using Wide = T;
  static Acc start() {
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }
  template <typename V> static V step(V acc, V x) { return extreme<false>(acc, x); }
  template <typename V> static V merge(V a, V b) { return step(a, b); }
};
// Truth, held as wide as a byte's elements are for bytes: a vector then tests as many as it holds.
template <typename T> using Truth = std::conditional_t<sizeof(T) == 1, uint8_t, int32_t>;
template <typename T> struct AnyFold {
  using Acc = Truth<T>;
  using Wide = Truth<T>;
  static Acc start() { return 0; }
  static Acc step(Acc acc, T x) { return merge(acc, static_cast<Acc>(x != T(0))); }
  static Acc merge(Acc a, Acc b) { return static_cast<Acc>(a | b); }
};
template <typename T> struct AllFold {
  using Acc = Truth<T>;
  using Wide = Truth<T>;
  static Acc start() { return 1; }
  static Acc step(Acc acc, T x) { return merge(acc, static_cast<Acc>(x != T(0))); }
  static Acc merge(Acc a, Acc b) { return static_cast<Acc>(a & b); }
};

// Elements folded in Acc before the result moves to Wide: bounds the rounding of a float sum.
constexpr int64_t kRun = 8192;

// How far ahead a long run asks for its lines: beyond the 4 KiB page where hardware prefetching stops.
constexpr int64_t kAhead = 4096;

// Folds the lanes of a vector into one value, halves upon halves, in registers: through memory it takes as long as a
// row of 512 elements.
template <typename Fold, typename T, int Lanes, typename V> inline T fold_lanes(V v) {
  if constexpr (Lanes == 2)
    return Fold::merge(T(v[0]), T(v[1]));
  else
    return [&]<int... K>(std::integer_sequence<int, K...>) {
      const auto low = __builtin_shufflevector(v, v, K...);
      const auto high = __builtin_shufflevector(v, v, (K + Lanes / 2)...);
      return fold_lanes<Fold, T, Lanes / 2>(Fold::merge(low, high));
    }
  (std::make_integer_sequence<int, Lanes / 2>());
}

// Folds `Ways` vectors, a power of two of them, `Step` apart: those half as far apart last.
template <typename Fold, int Ways, int Step = 1, typename V> inline V merge_vectors(const V* v) {
  if constexpr (Ways == 1)
    return v[0];
  else
    return Fold::merge(merge_vectors<Fold, Ways / 2, 2 * Step>(v), merge_vectors<Fold, Ways / 2, 2 * Step>(v + Step));
}

// Folds the lanes of Ways vectors into one value; Ways is a power of two.
template <typename Fold, int Ways, typename T> inline T fold_vectors(const Vector<T> (&v)[Ways]) {
  return fold_lanes<Fold, T, kLanes<T>>(merge_vectors<Fold, Ways>(v));
}

template <typename T> inline T sum_lanes(Vector<T> v) {
  Vector<T> one[1] = {v};
  return fold_vectors<SumFold<T>, 1, T>(one);
}

// An accumulator of one element: itself, unless the fold says otherwise.
template <typename Fold, typename V> inline V first_of(V x) {
  if constexpr (requires { Fold::first(x); })
    return Fold::first(x);
  else
    return x;
}

template <typename Fold, typename T>
constexpr bool by_vectors = std::is_same_v<typename Fold::Acc, T>&& std::is_floating_point_v<T>;

// Folds the n elements of each of `Rows` rows, at least eight vectors long, keeping eight vectors of each in flight.
// One row is rounded as several are. Ahead: asks for lines that the processor would ask for too late.
// Out of line: its registers are not to be saved for a row of four.
template <typename Fold, int Rows, bool Ahead, typename T>
__attribute__((noinline)) void fold_abreast(const T* p, int64_t stride, int64_t n, typename Fold::Acc* out) {
  constexpr int lanes = kLanes<T>, ways = 8;
  const Vector<T> start = Fold::start() - Vector<T>{};
  Vector<T> acc[Rows][ways];
  for (auto& row : acc)
    for (Vector<T>& v : row) v = start;
  int64_t i = 0;
  for (; i + ways * lanes <= n; i += ways * lanes) {
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int k = 0; k < ways; ++k) {
        const T* at = p + r * stride + i + k * lanes;
        if (Ahead && k * kVectorBytes % 64 == 0) __builtin_prefetch(reinterpret_cast<const char*>(at) + kAhead);
        acc[r][k] = Fold::step(acc[r][k], load_vector(at));
      }
  }
  for (int r = 0; r < Rows; ++r) {
    const T* row = p + r * stride;
    int64_t j = i;
    for (; j + lanes <= n; j += lanes) acc[r][0] = Fold::step(acc[r][0], load_vector(row + j));
    out[r] = fold_vectors<Fold, ways, T>(acc[r]);
    for (; j < n; ++j) out[r] = Fold::step(out[r], row[j]);
  }
}

// Folds n contiguous elements. Integer loops the compiler vectorises itself.
template <typename Fold, bool Long = false, typename T> inline typename Fold::Acc fold_run(const T* p, int64_t n) {
  typename Fold::Acc acc = Fold::start();
  int64_t i = 0;
  if constexpr (by_vectors<Fold, T>) {
    constexpr int lanes = kLanes<T>;
    if (n >= 8 * lanes) {
      fold_abreast<Fold, 1, Long>(p, 0, n, &acc);
      return acc;
    }
    if (n >= lanes) {
      Vector<T> one[1] = {first_of<Fold>(load_vector(p))};
      for (i = lanes; i + lanes <= n; i += lanes) one[0] = Fold::step(one[0], load_vector(p + i));
      acc = fold_vectors<Fold, 1, T>(one);
    }
  }
  for (; i < n; ++i) acc = Fold::step(acc, p[i]);
  return acc;
}

// Folds the even and the odd ones of n contiguous elements, n even.
template <typename Fold, typename T> inline void fold_pairs(const T* p, int64_t n, T (&two)[2]) {
  constexpr int lanes = kLanes<T>, ways = 4;
  Vector<T> acc[ways];
  for (Vector<T>& v : acc) v = Fold::start() - Vector<T>{};
  int64_t i = 0;
  for (; i + ways * lanes <= n; i += ways * lanes)
#pragma GCC unroll 4
    for (int k = 0; k < ways; ++k) acc[k] = Fold::step(acc[k], load_vector(p + i + k * lanes));
  for (; i + lanes <= n; i += lanes) acc[0] = Fold::step(acc[0], load_vector(p + i));
  const Vector<T> all = n < ways * lanes ? acc[0] : merge_vectors<Fold, ways>(acc); // the others hold nothing
  for (int k = 0; k < 2; ++k) {
    two[k] = T(all[k]);
    for (int j = 2; j < lanes; j += 2) two[k] = Fold::merge(two[k], T(all[j + k]));
  }
  T even = two[0], odd = two[1];
  for (; i < n; i += 2) even = Fold::step(even, p[i]), odd = Fold::step(odd, p[i + 1]);
  two[0] = even, two[1] = odd;
}

// Several runs at once: one stream of reads does not use what memory and the last cache deliver.
constexpr int kStreams = 4;
template <typename Fold, typename T> inline typename Fold::Wide fold_streams(const T* p) {
  constexpr int lanes = kLanes<T>, ways = 4;
  const Vector<T> start = Fold::start() - Vector<T>{};
  Vector<T> acc[kStreams][ways];
  for (auto& stream : acc)
    for (Vector<T>& v : stream) v = start;
  for (int64_t i = 0; i < kRun; i += ways * lanes) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s)
#pragma GCC unroll 4
      for (int k = 0; k < ways; ++k) acc[s][k] = Fold::step(acc[s][k], load_vector(p + s * kRun + i + k * lanes));
  }
  typename Fold::Wide wide = static_cast<typename Fold::Wide>(Fold::start());
  for (auto& stream : acc)
    wide = Fold::merge(wide, static_cast<typename Fold::Wide>(fold_vectors<Fold, ways, T>(stream)));
  return wide;
}

// Out of line: inlined copies made most of the build's time.
template <typename Fold, typename T> __attribute__((noinline)) typename Fold::Wide fold_many(const T* p, int64_t n) {
  using Wide = typename Fold::Wide;
  if (n <= kRun) return static_cast<Wide>(fold_run<Fold>(p, n));
  Wide wide = static_cast<Wide>(Fold::start());
  int64_t i = 0;
  if constexpr (by_vectors<Fold, T>)
    for (; i + kStreams * kRun <= n; i += kStreams * kRun) wide = Fold::merge(wide, fold_streams<Fold>(p + i));
  for (; i < n; i += kRun)
    wide = Fold::merge(wide, static_cast<Wide>(fold_run<Fold, true>(p + i, n - i < kRun ? n - i : kRun)));
  return wide;
}

// Folds any number of contiguous elements into Wide.
template <typename Fold, typename T> inline typename Fold::Wide fold_long(const T* p, int64_t n) {
  if constexpr (by_vectors<Fold, T>)
    if (n < kLanes<T>) {
      typename Fold::Acc acc = Fold::start();
      for (int64_t i = 0; i < n; ++i) acc = Fold::step(acc, p[i]);
      return static_cast<typename Fold::Wide>(acc);
    }
  return fold_many<Fold>(p, n);
}

// acc[j] = fold of column j over `rows` rows of `cols` contiguous elements.
template <typename Fold, typename T>
__attribute__((noinline)) void fold_rows(typename Fold::Acc* __restrict acc, const T* p, int64_t row_stride,
                                         int64_t rows, int64_t cols) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T* __restrict a = p + r * row_stride, * __restrict b = a + row_stride, * __restrict c = b + row_stride, * __restrict d = c + row_stride;
    for (int64_t j = 0; j < cols; ++j)
      acc[j] = Fold::step(Fold::step(Fold::step(Fold::step(acc[j], a[j]), b[j]), c[j]), d[j]);
  }
  for (; r < rows; ++r) {
    const T* __restrict a = p + r * row_stride;
    for (int64_t j = 0; j < cols; ++j) acc[j] = Fold::step(acc[j], a[j]);
  }
}

// Folds in float64 over float32, converted in registers.
template <typename Fold, typename T>
constexpr bool widens = std::is_same_v<T, double>&& std::is_same_v<typename Fold::Acc, double>;

template <typename Fold> __attribute__((noinline)) double fold_floats(const float* p, int64_t n) {
  constexpr int lanes = kLanes<double>, ways = 8;
  const auto load = [](const float* at) -> Vector<double> { // GCC 12 converts the halves of a vector by way of memory
#if defined(__AVX512F__)
    // The plain form reads a vector that GCC 12 finds uninitialized.
    return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(at));
#elif defined(__AVX2__)
    return _mm256_cvtps_pd(_mm_loadu_ps(at));
#else
    return Vector<double>{at[0], at[1]};
#endif
  };
  Vector<double> acc[ways];
  for (Vector<double>& v : acc) v = Fold::start() - Vector<double>{};
  int64_t i = 0;
  for (; i + ways * lanes <= n; i += ways * lanes)
#pragma GCC unroll 8
    for (int k = 0; k < ways; ++k) acc[k] = Fold::step(acc[k], load(p + i + k * lanes));
  for (; i + lanes <= n; i += lanes) acc[0] = Fold::step(acc[0], load(p + i));
  double all = fold_vectors<Fold, ways, double>(acc);
  for (; i < n; ++i) all = Fold::step(all, static_cast<double>(p[i]));
  return all;
}

// acc[j] = fold of column j, as fold_rows has it.
template <typename Fold>
__attribute__((noinline)) void fold_float_rows(double* __restrict acc, const float* p, int64_t row_stride, int64_t rows,
                                               int64_t cols) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* __restrict a = p + r * row_stride, * __restrict b = a + row_stride, * __restrict c = b + row_stride, * __restrict d = c + row_stride;
    for (int64_t j = 0; j < cols; ++j) {
      const double low = Fold::step(Fold::step(acc[j], static_cast<double>(a[j])), static_cast<double>(b[j]));
      acc[j] = Fold::step(Fold::step(low, static_cast<double>(c[j])), static_cast<double>(d[j]));
    }
  }
  for (; r < rows; ++r)
    for (int64_t j = 0; j < cols; ++j) acc[j] = Fold::step(acc[j], static_cast<double>(p[r * row_stride + j]));
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_FOLD_H
