// Cholesky factors of many small matrices at once, one matrix to each lane of the registers.
#include "pointwise/geometry.h"

#include <algorithm>
#include <cmath>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void cholesky_small_f32(float* a, int64_t count, int64_t n, bool upper, bool* failed);
void cholesky_small_f64(double* a, int64_t count, int64_t n, bool upper, bool* failed);

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

} // namespace

void cholesky_small_f32(float* a, int64_t count, int64_t n, bool upper, bool* failed) {
  factor_all(a, count, n, upper, failed);
}
void cholesky_small_f64(double* a, int64_t count, int64_t n, bool upper, bool* failed) {
  factor_all(a, count, n, upper, failed);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
