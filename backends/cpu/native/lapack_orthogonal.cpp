// Orthogonal factors: QR, products of its reflectors, and least squares.
#ifndef TESSERACK_CPU_NO_OPENBLAS
#include "lapack.h"

namespace tesserack::cpu::lapack {
namespace {

// out0 = R, and below it the reflectors, of itself; out1 = their scales
template <class T> void qr(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int m = a.rows(), n = a.cols(), k = std::min(m, n);
  const Blocks<T> tau(call, call.out(1), a.count(), k);
  for_batch(a.count(), 1.3 * k * k * std::max(m, n), [&](int64_t first, int64_t last) {
    const auto factor = [&](int64_t i, T* work, lapack_int length) {
      return Routines<T>::geqrf(LAPACK_COL_MAJOR, m, n, a[i], a.leading(), tau[i], work, length);
    };
    Work<T> work([&](T* w, lapack_int length) { factor(first, w, length); });
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
    } else if (driver == kGelss) {
      reals_.resize(is_complex<T> ? 5 * least : 0);
    }
  }

  lapack_int operator()(T* a, T* b, Real<T>* s, lapack_int* rank, T* work, lapack_int length) {
    using R = Routines<T>;
    constexpr int kLayout = LAPACK_COL_MAJOR;
    std::fill(pivots_.begin(), pivots_.end(), 0);
    if (driver_ == kGels) return R::gels(kLayout, 'N', m_, n_, right_, a, lda_, b, ldb_, work, length);
    if constexpr (is_complex<T>) {
      if (driver_ == kGelsy)
        return R::gelsy(kLayout, m_, n_, right_, a, lda_, b, ldb_, pivots_.data(), rcond_, rank, work, length,
                        reals_.data());
      if (driver_ == kGelss)
        return R::gelss(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length, reals_.data());
      ask_small(a, b, s, rank, work);
      return R::gelsd(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length, reals_.data(),
                      integers_.data());
    } else {
      if (driver_ == kGelsy)
        return R::gelsy(kLayout, m_, n_, right_, a, lda_, b, ldb_, pivots_.data(), rcond_, rank, work, length);
      if (driver_ == kGelss) return R::gelss(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length);
      ask_small(a, b, s, rank, work);
      return R::gelsd(kLayout, m_, n_, right_, a, lda_, b, ldb_, s, rcond_, rank, work, length, integers_.data());
    }
  }

private:
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
