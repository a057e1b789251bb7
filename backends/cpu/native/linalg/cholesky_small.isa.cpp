// Cholesky factors of many small matrices at once, and solving with them, one matrix to each lane of the registers.
#include "pointwise/geometry.h"

#include <algorithm>
#include <cmath>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void cholesky_small_f32(float* a, int64_t count, int64_t n, bool upper, bool* failed);
void cholesky_small_f64(double* a, int64_t count, int64_t n, bool upper, bool* failed);
void cholesky_solve_small_f32(float* x, const float* a, int64_t count, int64_t n, int64_t cols, bool upper);
void cholesky_solve_small_f64(double* x, const double* a, int64_t count, int64_t n, int64_t cols, bool upper);

namespace {

constexpr int64_t kMost = 16, kMatrices = 16;

// `count` <= kMatrices matrices (n, n) by columns. One that is not positive definite stays as it is, and is noted.
template <class T> void factor(T* a, int64_t count, int64_t n, bool upper, bool* failed) {
  alignas(64) T lower[kMost * kMost][kMatrices];
  const int64_t size = n * n, row = upper ? n : 1, column = upper ? 1 : n; // of the lower factor
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      for (int64_t b = 0; b < kMatrices; ++b)
        lower[i * n + j][b] = b < count ? a[b * size + i * row + j * column] : T(i == j);
  bool wrong[kMatrices] = {};
  for (int64_t j = 0; j < n; ++j) {
    T* const pivot = lower[j * n + j];
    for (int64_t k = 0; k < j; ++k) {
      const T* const left = lower[j * n + k];
      for (int64_t b = 0; b < kMatrices; ++b) pivot[b] -= left[b] * left[b];
    }
    for (int64_t b = 0; b < kMatrices; ++b) {
      wrong[b] |= !(pivot[b] > T(0));
      pivot[b] = std::sqrt(pivot[b]);
    }
    for (int64_t i = j + 1; i < n; ++i) {
      T* const to = lower[i * n + j];
      for (int64_t k = 0; k < j; ++k) {
        const T *const left = lower[i * n + k], *const right = lower[j * n + k];
        for (int64_t b = 0; b < kMatrices; ++b) to[b] -= left[b] * right[b];
      }
      for (int64_t b = 0; b < kMatrices; ++b) to[b] /= pivot[b];
    }
  }
  for (int64_t b = 0; b < count; ++b) {
    failed[b] = wrong[b];
    if (wrong[b]) continue;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) a[b * size + i * row + j * column] = lower[i * n + j][b];
  }
}

template <class T> void factor_all(T* a, int64_t count, int64_t n, bool upper, bool* failed) {
  for (int64_t b = 0; b < count; b += kMatrices)
    factor(a + b * n * n, std::min(kMatrices, count - b), n, upper, failed + b);
}

// x (n, cols) of `count` <= kMatrices systems, by columns: L y = x, then L^T x = y.
template <class T> void solve(T* x, const T* a, int64_t count, int64_t n, int64_t cols, bool upper) {
  alignas(64) T lower[kMost * kMost][kMatrices], y[kMost][kMatrices];
  const int64_t size = n * n, row = upper ? n : 1, column = upper ? 1 : n;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      for (int64_t b = 0; b < kMatrices; ++b)
        lower[i * n + j][b] = b < count ? a[b * size + i * row + j * column] : T(i == j);
  const auto take = [&](int64_t to, int64_t from, const T* factor) {
    for (int64_t b = 0; b < kMatrices; ++b) y[to][b] -= factor[b] * y[from][b];
  };
  const auto divide = [&](int64_t i) {
    for (int64_t b = 0; b < kMatrices; ++b) y[i][b] /= lower[i * n + i][b];
  };
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t b = 0; b < kMatrices; ++b) y[i][b] = b < count ? x[(b * cols + c) * n + i] : T(0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < i; ++k) take(i, k, lower[i * n + k]);
      divide(i);
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < n; ++k) take(i, k, lower[k * n + i]);
      divide(i);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t b = 0; b < count; ++b) x[(b * cols + c) * n + i] = y[i][b];
  }
}

template <class T> void solve_all(T* x, const T* a, int64_t count, int64_t n, int64_t cols, bool upper) {
  for (int64_t b = 0; b < count; b += kMatrices)
    solve(x + b * n * cols, a + b * n * n, std::min(kMatrices, count - b), n, cols, upper);
}

} // namespace

void cholesky_solve_small_f32(float* x, const float* a, int64_t count, int64_t n, int64_t cols, bool upper) {
  solve_all(x, a, count, n, cols, upper);
}
void cholesky_solve_small_f64(double* x, const double* a, int64_t count, int64_t n, int64_t cols, bool upper) {
  solve_all(x, a, count, n, cols, upper);
}

void cholesky_small_f32(float* a, int64_t count, int64_t n, bool upper, bool* failed) {
  factor_all(a, count, n, upper, failed);
}
void cholesky_small_f64(double* a, int64_t count, int64_t n, bool upper, bool* failed) {
  factor_all(a, count, n, upper, failed);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
