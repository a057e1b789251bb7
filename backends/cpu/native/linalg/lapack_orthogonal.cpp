// Orthogonal factors: QR, products of its reflectors, and least squares.
#ifndef TESSERACK_CPU_NO_OPENBLAS
#include "isa_pick.h"
#include "lapack.h"

#include <vector>

namespace tesserack::cpu {

// QR of `count` matrices (m, n) by columns, both sizes at most 16, as geqrf leaves it; one whose squares could leave
// the range of numbers stays as it is, and is noted (linalg/qr_small.isa.cpp).
TS_ISA_FUNCTION(void, qr_small_f32, (float* a, float* tau, int64_t count, int64_t m, int64_t n, bool* failed));
TS_ISA_FUNCTION(void, qr_small_f64, (double* a, double* tau, int64_t count, int64_t m, int64_t n, bool* failed));
// The first n columns of the product of k reflectors that stand in (m, n), as orgqr.
TS_ISA_FUNCTION(void, reflectors_small_f32,
                (float* a, const float* tau, int64_t count, int64_t m, int64_t n, int64_t k));
TS_ISA_FUNCTION(void, reflectors_small_f64,
                (double* a, const double* tau, int64_t count, int64_t m, int64_t n, int64_t k));

} // namespace tesserack::cpu

namespace tesserack::cpu::lapack {
namespace {

constexpr lapack_int kSmall = 16; // matrices of which many are factored at once
constexpr int64_t kMany = 8, kAtOnce = 256;

// Reflectors from which blocks of them, multiplied as matrices, are quicker than geqrf and orgqr, which take narrower
// blocks and reflect one by one within: 512 x 512 in 0.65 of the time.
constexpr lapack_int kBlocked = 128;

// As geqrf. The diagonal of each block's triangular factor holds the scales.
template <class T>
lapack_int factor_in_blocks(lapack_int m, lapack_int n, T* a, lapack_int lda, T* tau, std::vector<T>& work) {
  constexpr lapack_int width = 32;
  const lapack_int k = std::min(m, n);
  work.resize(static_cast<size_t>(width) * static_cast<size_t>(k + n));
  T* const t = work.data();
  const lapack_int info = Routines<T>::geqrt(LAPACK_COL_MAJOR, m, n, width, a, lda, t, width, t + width * k);
  for (lapack_int j = 0; j < k; ++j) tau[j] = t[j % width + static_cast<int64_t>(j) * width];
  return info;
}

// As orgqr: the reflectors act on columns of the identity, the last block of them first.
template <class T>
lapack_int multiply_in_blocks(lapack_int m, lapack_int n, lapack_int k, T* a, lapack_int lda, const T* tau,
                              std::vector<T>& work) {
  constexpr lapack_int width = 64;
  work.resize(static_cast<size_t>(width) * static_cast<size_t>(m + n + width));
  T *const v = work.data(), *const t = v + static_cast<int64_t>(width) * m, *const rest = t + width * width;
  const auto column = [&](lapack_int j) { return a + static_cast<int64_t>(j) * lda; };
  const auto unit = [&](lapack_int j) {
    std::fill_n(column(j), m, T(0));
    column(j)[j] = T(1);
  };
  for (lapack_int j = k; j < n; ++j) unit(j);
  for (lapack_int first = (k - 1) / width * width; first >= 0; first -= width) {
    const lapack_int block = std::min(width, k - first), rows = m - first;
    for (lapack_int j = 0; j < block; ++j) {
      std::copy_n(column(first + j) + first, rows, v + static_cast<int64_t>(j) * rows);
      unit(first + j);
    }
    Routines<T>::larft(LAPACK_COL_MAJOR, 'F', 'C', rows, block, v, rows, tau + first, t, width);
    const lapack_int info = Routines<T>::larfb(LAPACK_COL_MAJOR, 'L', 'N', 'F', 'C', rows, n - first, block, v, rows, t,
                                               width, column(first) + first, lda, rest, n - first);
    if (info != 0) return info;
  }
  return 0;
}

// out0 = R, and below it the reflectors, of itself; out1 = their scales
template <class T> void qr(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int m = a.rows(), n = a.cols(), k = std::min(m, n);
  const Blocks<T> tau(call, call.out(1), a.count(), k);
  for_batch(a.count(), 1.3 * k * k * std::max(m, n), [&](int64_t first, int64_t last) {
    if (k >= kBlocked) {
      std::vector<T> blocks;
      for (int64_t i = first; i < last; ++i) factor_in_blocks<T>(m, n, a[i], a.leading(), tau[i], blocks);
      return;
    }
    const auto factor = [&](int64_t i, T* work, lapack_int length) {
      return Routines<T>::geqrf(LAPACK_COL_MAJOR, m, n, a[i], a.leading(), tau[i], work, length);
    };
    Work<T> work([&](T* w, lapack_int length) { factor(first, w, length); });
    if constexpr (!is_complex<T>)
      if (m <= kSmall && n <= kSmall && last - first >= kMany) {
        bool failed[kAtOnce];
        for (int64_t i = first; i < last; i += kAtOnce) {
          const int64_t count = std::min(kAtOnce, last - i);
          if constexpr (std::is_same_v<T, float>)
            pick_qr_small_f32()(a[i], tau[i], count, m, n, failed);
          else
            pick_qr_small_f64()(a[i], tau[i], count, m, n, failed);
          for (int64_t j = 0; j < count; ++j)
            if (failed[j]) factor(i + j, work.data(), work.length());
        }
        return;
      }
    for (int64_t i = first; i < last; ++i) factor(i, work.data(), work.length());
  });
}

// out0 = the first columns of the product of the reflectors in it; in0 = their scales
template <class T> void reflectors(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const Tensor scales = call.in(0);
  const lapack_int m = a.rows(), n = a.cols(), k = static_cast<lapack_int>(scales.numel() / a.count());
  expect(call, n <= m && k <= n, "no more reflectors than columns than rows");
  const Blocks<T> tau(call, scales, a.count(), k);
  for_batch(a.count(), 1.3 * n * n * m, [&](int64_t first, int64_t last) {
    if (k >= kBlocked) {
      std::vector<T> blocks;
      for (int64_t i = first; i < last; ++i) multiply_in_blocks<T>(m, n, k, a[i], a.leading(), tau[i], blocks);
      return;
    }
    const bool small = m <= kSmall && last - first >= kMany;
    if constexpr (std::is_same_v<T, float>)
      if (small) return pick_reflectors_small_f32()(a[first], tau[first], last - first, m, n, k);
    if constexpr (std::is_same_v<T, double>)
      if (small) return pick_reflectors_small_f64()(a[first], tau[first], last - first, m, n, k);
    const auto multiply = [&](int64_t i, T* work, lapack_int length) {
      return Routines<T>::orgqr(LAPACK_COL_MAJOR, m, n, k, a[i], a.leading(), tau[i], work, length);
    };
    Work<T> work([&](T* w, lapack_int length) { multiply(first, w, length); });
    for (int64_t i = first; i < last; ++i) multiply(i, work.data(), work.length());
  });
}

// out0 = out0 times the whole product of reflectors in0 with scales in1; params: from the left, adjoint
template <class T> void apply_reflectors(const Call& call) {
  const Matrices<T> c(call, call.out(0)), a(call, call.in(0));
  const Tensor scales = call.in(1);
  const lapack_int k = static_cast<lapack_int>(scales.numel() / a.count());
  const bool left = call.param(0).as_bool(), adjoint = call.param(1).as_bool();
  expect(call, c.count() == a.count() && a.rows() == (left ? c.rows() : c.cols()) && k <= a.rows() && k <= a.cols(),
         "reflectors as long as the side they are applied to");
  const Blocks<T> tau(call, scales, a.count(), k);
  const char side = left ? 'L' : 'R', trans = adjoint ? Routines<T>::kAdjoint : 'N';
  for_batch(a.count(), 4.0 * k * c.rows() * c.cols(), [&](int64_t first, int64_t last) {
    const auto multiply = [&](int64_t i, T* work, lapack_int length) {
      return Routines<T>::ormqr(LAPACK_COL_MAJOR, side, trans, c.rows(), c.cols(), k, a[i], a.leading(), tau[i], c[i],
                                c.leading(), work, length);
    };
    Work<T> work([&](T* w, lapack_int length) { multiply(first, w, length); });
    for (int64_t i = first; i < last; ++i) multiply(i, work.data(), work.length());
  });
}

enum Driver { kGels, kGelsy, kGelsd, kGelss };

// One least-squares problem after another, with the workspaces of the drivers.
template <class T> class LeastSquares {
public:
  LeastSquares(lapack_int m, lapack_int n, lapack_int right_sides, Driver driver, Real<T> rcond)
      : m_(m), n_(n), right_(right_sides), lda_(std::max(1, m)), ldb_(std::max({1, m, n})), driver_(driver),
        rcond_(rcond) {
    const size_t least = static_cast<size_t>(std::max(1, std::min(m, n)));
    if (driver == kGelsy) {
      pivots_.resize(static_cast<size_t>(n));
      reals_.resize(is_complex<T> ? 2 * static_cast<size_t>(n) : 0);
      // Of less tall ones the columns are ordered as quickly.
      if (n >= 4 && m >= n + n / 2) scales_.resize(static_cast<size_t>(n));
    } else if (driver == kGelss) {
      reals_.resize(is_complex<T> ? 5 * least : 0);
    }
  }

  lapack_int operator()(T* a, T* b, Real<T>* s, lapack_int* rank, T* work, lapack_int length) {
    using R = Routines<T>;
    constexpr int kLayout = LAPACK_COL_MAJOR;
    std::fill(pivots_.begin(), pivots_.end(), 0);
    const lapack_int rows = length >= 0 && !scales_.empty() && reduce(a, b) ? n_ : m_;
    if (driver_ == kGels) return R::gels(kLayout, 'N', m_, n_, right_, a, lda_, b, ldb_, work, length);
    if constexpr (is_complex<T>) {
      if (driver_ == kGelsy)
        return R::gelsy(kLayout, rows, n_, right_, a, lda_, b, ldb_, pivots_.data(), rcond_, rank, work, length,
                        reals_.data());
      if (driver_ == kGelss)
        return R::gelss(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length, reals_.data());
      ask_small(a, b, s, rank, work);
      return R::gelsd(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length, reals_.data(),
                      integers_.data());
    } else {
      if (driver_ == kGelsy)
        return R::gelsy(kLayout, rows, n_, right_, a, lda_, b, ldb_, pivots_.data(), rcond_, rank, work, length);
      if (driver_ == kGelss) return R::gelss(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length);
      ask_small(a, b, s, rank, work);
      return R::gelsd(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length, integers_.data());
    }
  }

private:
  // Whether no number is so large or small that norms of columns leave the range of numbers, and none is none.
  bool ordinary(const T* a) const {
    Real<T> largest = 0, sum = 0;
    for (int64_t e = 0, end = int64_t{lda_} * n_; e < end; ++e) {
      const Real<T> value = std::abs(a[e]);
      largest = std::max(largest, value), sum += value;
    }
    constexpr Real<T> range = sizeof(Real<T>) == 4 ? Real<T>(1e15) : Real<T>(1e150);
    return sum <= range && largest >= 1 / range; // a sum that is no number is not
  }

  // Of a tall matrix a = QR: R in place of a, Q^H b in place of b, both by products of blocks. gelsy, which orders
  // columns one by one, then has R alone to do with. False, and both as they were, where that may lose numbers.
  bool reduce(T* a, T* b) {
    if (!ordinary(a)) return false;
    const auto factor = [&](T* w, lapack_int length) {
      return Routines<T>::geqrf(LAPACK_COL_MAJOR, m_, n_, a, lda_, scales_.data(), w, length);
    };
    if (n_ >= kBlocked) {
      factor_in_blocks<T>(m_, n_, a, lda_, scales_.data(), blocks_);
    } else {
      Work<T> work(factor);
      factor(work.data(), work.length());
    }
    const auto multiply = [&](T* w, lapack_int length) {
      return Routines<T>::ormqr(LAPACK_COL_MAJOR, 'L', Routines<T>::kAdjoint, m_, right_, n_, a, lda_, scales_.data(),
                                b, ldb_, w, length);
    };
    Work<T> work(multiply);
    multiply(work.data(), work.length());
    for (int64_t j = 0; j < n_; ++j) std::fill(a + j * lda_ + j + 1, a + j * lda_ + n_, T(0));
    return true;
  }

  // gelsd says the sizes of its other workspaces when asked for the first.
  void ask_small(T* a, T* b, Real<T>* s, lapack_int* rank, T* work) {
    if (!integers_.empty()) return;
    lapack_int integers = 1;
    Real<T> reals = 1;
    if constexpr (is_complex<T>)
      Routines<T>::gelsd(LAPACK_COL_MAJOR, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, -1, &reals,
                         &integers);
    else
      Routines<T>::gelsd(LAPACK_COL_MAJOR, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, -1, &integers);
    integers_.resize(static_cast<size_t>(std::max(1, integers)));
    reals_.resize(static_cast<size_t>(reals) + 1);
  }

  lapack_int m_, n_, right_, lda_, ldb_;
  Driver driver_;
  Real<T> rcond_;
  std::vector<lapack_int> pivots_, integers_;
  std::vector<T> scales_, blocks_; // those of a preceding QR, if any
  std::vector<Real<T>> reals_;
};

// out1 (max(m, n) rows) = solution of out0 x = out1, then what is left; out0 is spent. out2 = rank, out3 = singular
// values, out4 = info; params: driver (0 gels, 1 gelsy, 2 gelsd, 3 gelss), rcond
template <class T> void least_squares(const Call& call) {
  const Matrices<T> a(call, call.out(0)), b(call, call.out(1));
  const lapack_int m = a.rows(), n = a.cols(), k = std::min(m, n);
  const int64_t driver = call.param(0).as_int();
  expect(call, b.count() == a.count() && b.rows() == std::max(m, n) && driver >= 0 && driver <= kGelss,
         "right sides with room for the solution, and a driver from 0 to 3");
  const Blocks<int32_t> rank(call, call.out(2), a.count(), 1), info(call, call.out(4), a.count(), 1);
  const Blocks<Real<T>> s(call, call.out(3), a.count(), k);
  const Real<T> rcond = static_cast<Real<T>>(call.param(1).as_float());
  for_batch(a.count(), 4.0 * k * k * std::max(m, n), [&](int64_t first, int64_t last) {
    LeastSquares<T> solve(m, n, b.cols(), static_cast<Driver>(driver), rcond);
    Work<T> work([&](T* w, lapack_int length) { solve(a[first], b[first], s[first], rank[first], w, length); });
    for (int64_t i = first; i < last; ++i) *info[i] = solve(a[i], b[i], s[i], rank[i], work.data(), work.length());
  });
}

TESSERACK_LAPACK_KERNEL("lapack_qr", qr);
TESSERACK_LAPACK_KERNEL("lapack_reflectors", reflectors);
TESSERACK_LAPACK_KERNEL("lapack_apply_reflectors", apply_reflectors);
TESSERACK_LAPACK_KERNEL("lapack_least_squares", least_squares);

} // namespace
} // namespace tesserack::cpu::lapack
#endif
