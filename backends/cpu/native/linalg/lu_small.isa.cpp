// LU factors of many small matrices at once, with rows exchanged, and solving with them, one matrix to each lane of the
// registers.
#include "pointwise/geometry.h"
#include "reduce/fold.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void lu_small_f32(float* a, int32_t* pivots, int64_t count, int64_t n, bool* failed);
void lu_small_f64(double* a, int32_t* pivots, int64_t count, int64_t n, bool* failed);
void lu_solve_small_f32(float* x, const float* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols);
void lu_solve_small_f64(double* x, const double* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols);

namespace {

constexpr int64_t kMost = 16;

// A number of each matrix, as many as a register holds: arrays the compiler takes apart. `held[j * n + i]` is row i of
// column j.
template <class T> struct Vector { typedef T type __attribute__((vector_size(kVectorBytes), may_alias)); };
template <class T> using Lanes = typename Vector<T>::type;
template <class T> constexpr int64_t kMatrices = kVectorBytes / static_cast<int64_t>(sizeof(T));

// Of the lanes without a matrix an identity.
template <class T> void load(T* to, const T* a, int64_t count, int64_t n) {
  constexpr int64_t lanes = kMatrices<T>;
  for (int64_t b = 0; b < count; ++b)
    for (int64_t e = 0; e < n * n; ++e) to[e * lanes + b] = a[b * n * n + e];
  for (int64_t b = count; b < lanes; ++b)
    for (int64_t e = 0; e < n * n; ++e) to[e * lanes + b] = T(e % (n + 1) == 0);
}

// The row of the largest magnitude at or below the diagonal of column j, the first of several; noted is where LAPACK
// should judge it: it is zero, or so small that its reciprocal is none, or no number.
template <class T> Lanes<T> choose_pivots(const Lanes<T>* column, int64_t j, int64_t n, Lanes<T>& wrong) {
  Lanes<T> largest = column[j] < T(0) ? -column[j] : column[j], row = Lanes<T>{} + T(j);
  for (int64_t i = j + 1; i < n; ++i) {
    const Lanes<T> value = column[i] < T(0) ? -column[i] : column[i], own = Lanes<T>{} + T(i);
    row = value > largest ? own : row;
    largest = value > largest ? value : largest;
  }
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const Lanes<T> one = Lanes<T>{} + T(1);
  wrong = (largest >= least) & (largest <= most) ? wrong : one;
  return row;
}

template <class T> void factor(T* a, int32_t* pivots, int64_t count, int64_t n, bool* failed) {
  constexpr int64_t lanes = kMatrices<T>;
  alignas(64) T numbers[kMost * kMost * lanes], rows[kMost * lanes];
  Lanes<T>*const held = reinterpret_cast<Lanes<T>*>(numbers), *const chosen = reinterpret_cast<Lanes<T>*>(rows);
  Lanes<T> wrong = {};
  load(numbers, a, count, n);
  for (int64_t j = 0; j < n; ++j) {
    Lanes<T>* const column = held + j * n;
    chosen[j] = choose_pivots<T>(column, j, n, wrong);
    for (int64_t b = 0; b < count; ++b)
      if (const int64_t other = static_cast<int64_t>(rows[j * lanes + b]); other != j)
        for (int64_t c = 0; c < n; ++c)
          std::swap(numbers[(c * n + j) * lanes + b], numbers[(c * n + other) * lanes + b]);
    const Lanes<T> pivot = column[j];
    for (int64_t i = j + 1; i < n; ++i) column[i] /= pivot;
    for (int64_t c = j + 1; c < n; ++c) {
      Lanes<T>* const to = held + c * n;
      const Lanes<T> head = to[j];
      for (int64_t i = j + 1; i < n; ++i) to[i] -= column[i] * head;
    }
  }
  // What is no number shows in what is left below it, too.
  const Lanes<T> one = Lanes<T>{} + T(1);
  for (int64_t e = 0; e < n * n; ++e) wrong = held[e] - held[e] == T(0) ? wrong : one;
  for (int64_t b = 0; b < count; ++b) {
    failed[b] = wrong[b] != T(0);
    if (failed[b]) continue;
    for (int64_t e = 0; e < n * n; ++e) a[b * n * n + e] = numbers[e * lanes + b];
    for (int64_t j = 0; j < n; ++j) pivots[b * n + j] = static_cast<int32_t>(rows[j * lanes + b]) + 1;
  }
}

template <class T> void factor_all(T* a, int32_t* pivots, int64_t count, int64_t n, bool* failed) {
  for (int64_t b = 0; b < count; b += kMatrices<T>)
    factor(a + b * n * n, pivots + b * n, std::min(kMatrices<T>, count - b), n, failed + b);
}

// x (n, cols) of `count` <= kMatrices systems, by columns: rows exchanged, L y = x, then U x = y.
template <class T> void solve(T* x, const T* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols) {
  constexpr int64_t lanes = kMatrices<T>;
  alignas(64) T numbers[kMost * kMost * lanes], sides[kMost * lanes] = {};
  const Lanes<T>* const held = reinterpret_cast<const Lanes<T>*>(numbers);
  Lanes<T>* const y = reinterpret_cast<Lanes<T>*>(sides);
  int64_t from[lanes][kMost];
  load(numbers, a, count, n);
  for (int64_t b = 0; b < count; ++b) {
    for (int64_t i = 0; i < n; ++i) from[b][i] = i;
    for (int64_t i = 0; i < n; ++i) std::swap(from[b][i], from[b][pivots[b * n + i] - 1]);
  }
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t b = 0; b < count; ++b)
      for (int64_t i = 0; i < n; ++i) sides[i * lanes + b] = x[(b * cols + c) * n + from[b][i]];
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = k + 1; i < n; ++i) y[i] -= held[k * n + i] * y[k];
    for (int64_t k = n - 1; k >= 0; --k) {
      y[k] /= held[k * n + k];
      for (int64_t i = 0; i < k; ++i) y[i] -= held[k * n + i] * y[k];
    }
    for (int64_t b = 0; b < count; ++b)
      for (int64_t i = 0; i < n; ++i) x[(b * cols + c) * n + i] = sides[i * lanes + b];
  }
}

template <class T> void solve_all(T* x, const T* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols) {
  for (int64_t b = 0; b < count; b += kMatrices<T>)
    solve(x + b * n * cols, a + b * n * n, pivots + b * n, std::min(kMatrices<T>, count - b), n, cols);
}

} // namespace

void lu_small_f32(float* a, int32_t* pivots, int64_t count, int64_t n, bool* failed) {
  factor_all(a, pivots, count, n, failed);
}
void lu_small_f64(double* a, int32_t* pivots, int64_t count, int64_t n, bool* failed) {
  factor_all(a, pivots, count, n, failed);
}
void lu_solve_small_f32(float* x, const float* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols) {
  solve_all(x, a, pivots, count, n, cols);
}
void lu_solve_small_f64(double* x, const double* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols) {
  solve_all(x, a, pivots, count, n, cols);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
