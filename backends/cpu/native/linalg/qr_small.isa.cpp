// QR of many small matrices at once, and the products of their reflectors, one matrix to each lane of the registers.
// Reflectors are LAPACK's: 1 - tau v v^T, v below a 1 in its column.
#include "pointwise/geometry.h"

#include <algorithm>
#include <cmath>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void qr_small_f32(float* a, float* tau, int64_t count, int64_t m, int64_t n, bool* failed);
void qr_small_f64(double* a, double* tau, int64_t count, int64_t m, int64_t n, bool* failed);
void reflectors_small_f32(float* a, const float* tau, int64_t count, int64_t m, int64_t n, int64_t k);
void reflectors_small_f64(double* a, const double* tau, int64_t count, int64_t m, int64_t n, int64_t k);

namespace {

constexpr int64_t kMost = 16, kMatrices = 16;

// A number of each matrix.
template <class T> using Lanes = T[kMatrices];

// Elements whose squares, and those of what is a unit in the last place of them, are normal numbers.
template <class T> constexpr T kLeast = sizeof(T) == 4 ? T(1e-12) : T(1e-130);
template <class T> constexpr T kGreatest = sizeof(T) == 4 ? T(1e15) : T(1e130);

template <class T> void load(Lanes<T>* to, const T* a, int64_t count, int64_t elements, T missing) {
  for (int64_t e = 0; e < elements; ++e)
    for (int64_t b = 0; b < kMatrices; ++b) to[e][b] = b < count ? a[b * elements + e] : missing;
}
template <class T> void store(T* a, const Lanes<T>* from, int64_t count, int64_t elements, const bool* except) {
  for (int64_t b = 0; b < count; ++b)
    for (int64_t e = 0; e < elements; ++e)
      if (!except || !except[b]) a[b * elements + e] = from[e][b];
}

// column -= tau v (v . column), of v from row 0 with a 1 before its `rest` further elements.
template <class T> void reflect(Lanes<T>* column, const Lanes<T>* v, const Lanes<T>& tau, int64_t rest) {
  Lanes<T> sum;
  for (int64_t b = 0; b < kMatrices; ++b) sum[b] = column[0][b];
  for (int64_t i = 1; i <= rest; ++i)
    for (int64_t b = 0; b < kMatrices; ++b) sum[b] += v[i][b] * column[i][b];
  for (int64_t b = 0; b < kMatrices; ++b) sum[b] *= tau[b], column[0][b] -= sum[b];
  for (int64_t i = 1; i <= rest; ++i)
    for (int64_t b = 0; b < kMatrices; ++b) column[i][b] -= v[i][b] * sum[b];
}

// Makes a column its reflector, with what it reflects the column to in place of the 1.
template <class T> void make_reflector(Lanes<T>* column, Lanes<T>& tau, int64_t rest, Lanes<T>& wrong) {
  Lanes<T> squares = {}, largest = {}, scale;
  for (int64_t i = 1; i <= rest; ++i)
    for (int64_t b = 0; b < kMatrices; ++b) {
      const T value = std::abs(column[i][b]);
      squares[b] += value * value;
      largest[b] = value > largest[b] ? value : largest[b];
    }
  for (int64_t b = 0; b < kMatrices; ++b) {
    const T alpha = column[0][b], norm = std::sqrt(alpha * alpha + squares[b]);
    const T beta = alpha < T(0) ? norm : -norm, far = alpha - beta;
    const bool none = largest[b] == T(0), small = (largest[b] < kLeast<T>)&!none;
    wrong[b] = (norm < kGreatest<T>)&!small ? wrong[b] : T(1); // NaN is wrong, too
    tau[b] = none ? T(0) : -far / beta;
    scale[b] = none ? T(0) : T(1) / far;
    column[0][b] = none ? alpha : beta;
  }
  for (int64_t i = 1; i <= rest; ++i)
    for (int64_t b = 0; b < kMatrices; ++b) column[i][b] *= scale[b];
}

template <class T> void factor(T* a, T* tau, int64_t count, int64_t m, int64_t n, bool* failed) {
  alignas(64) Lanes<T> held[kMost * kMost], scales[kMost], wrong = {};
  const int64_t k = std::min(m, n);
  load(held, a, count, m * n, T(1));
  for (int64_t j = 0; j < k; ++j) {
    Lanes<T>* const v = held + j * m + j;
    make_reflector<T>(v, scales[j], m - 1 - j, wrong);
    for (int64_t c = j + 1; c < n; ++c) reflect<T>(held + c * m + j, v, scales[j], m - 1 - j);
  }
  for (int64_t b = 0; b < count; ++b) failed[b] = wrong[b] != T(0);
  store(a, held, count, m * n, failed);
  store(tau, scales, count, k, failed);
}

template <class T> void multiply(T* a, const T* tau, int64_t count, int64_t m, int64_t n, int64_t k) {
  alignas(64) Lanes<T> v[kMost * kMost], q[kMost * kMost], scales[kMost];
  load(v, a, count, m * n, T(0));
  load(scales, tau, count, k, T(0));
  for (int64_t c = 0; c < n; ++c)
    for (int64_t r = 0; r < m; ++r) std::fill_n(q[c * m + r], kMatrices, T(r == c));
  for (int64_t j = k - 1; j >= 0; --j)
    for (int64_t c = j; c < n; ++c) reflect<T>(q + c * m + j, v + j * m + j, scales[j], m - 1 - j);
  store<T>(a, q, count, m * n, nullptr);
}

template <class T> void factor_all(T* a, T* tau, int64_t count, int64_t m, int64_t n, bool* failed) {
  for (int64_t b = 0; b < count; b += kMatrices)
    factor(a + b * m * n, tau + b * std::min(m, n), std::min(kMatrices, count - b), m, n, failed + b);
}
template <class T> void multiply_all(T* a, const T* tau, int64_t count, int64_t m, int64_t n, int64_t k) {
  for (int64_t b = 0; b < count; b += kMatrices)
    multiply(a + b * m * n, tau + b * k, std::min(kMatrices, count - b), m, n, k);
}

} // namespace

void qr_small_f32(float* a, float* tau, int64_t count, int64_t m, int64_t n, bool* failed) {
  factor_all(a, tau, count, m, n, failed);
}
void qr_small_f64(double* a, double* tau, int64_t count, int64_t m, int64_t n, bool* failed) {
  factor_all(a, tau, count, m, n, failed);
}
void reflectors_small_f32(float* a, const float* tau, int64_t count, int64_t m, int64_t n, int64_t k) {
  multiply_all(a, tau, count, m, n, k);
}
void reflectors_small_f64(double* a, const double* tau, int64_t count, int64_t m, int64_t n, int64_t k) {
  multiply_all(a, tau, count, m, n, k);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
