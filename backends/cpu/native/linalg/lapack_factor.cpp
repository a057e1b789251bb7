// Triangular factors and solving with them: LU, Cholesky, LDL, and triangular systems.
#ifndef TESSERACK_CPU_NO_OPENBLAS
#include "isa_pick.h"
#include "triangles.h"

namespace tesserack::cpu {

// Of `count` matrices (n, n), n <= 16, by columns; one that is not positive definite stays as it is, and is noted
// (linalg/cholesky_small.isa.cpp).
TS_ISA_FUNCTION(void, cholesky_small_f32, (float* a, int64_t count, int64_t n, bool upper, bool* failed));
TS_ISA_FUNCTION(void, cholesky_small_f64, (double* a, int64_t count, int64_t n, bool upper, bool* failed));
// x (n, cols) of A x = x, of as small ones with their factors.
TS_ISA_FUNCTION(void, cholesky_solve_small_f32,
                (float* x, const float* a, int64_t count, int64_t n, int64_t cols, bool upper));
TS_ISA_FUNCTION(void, cholesky_solve_small_f64,
                (double* x, const double* a, int64_t count, int64_t n, int64_t cols, bool upper));

// Of as many square ones as small; one with a pivot that is zero or no number stays as it is, and is noted
// (linalg/lu_small.isa.cpp). x (n, cols) becomes that of A x = x.
TS_ISA_FUNCTION(void, lu_small_f32, (float* a, int32_t* pivots, int64_t count, int64_t n, bool* failed));
TS_ISA_FUNCTION(void, lu_small_f64, (double* a, int32_t* pivots, int64_t count, int64_t n, bool* failed));
TS_ISA_FUNCTION(void, lu_solve_small_f32,
                (float* x, const float* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols));
TS_ISA_FUNCTION(void, lu_solve_small_f64,
                (double* x, const double* a, const int32_t* pivots, int64_t count, int64_t n, int64_t cols));

} // namespace tesserack::cpu

namespace tesserack::cpu::lapack {
namespace {

constexpr lapack_int kSmall = 16; // matrices of which many are factored and solved at once
constexpr int64_t kMany = 8;
constexpr int64_t kAtOnce = 256; // of which it is noted who failed

double cube(lapack_int n) { return static_cast<double>(n) * n * n; }

// The first pivot that is not a number, from one, or 0: OpenBLAS's potrf goes on with it, LAPACK's stops there.
template <class T> lapack_int first_nan(const T* factor, lapack_int n, lapack_int leading) {
  for (lapack_int k = 0; k < n; ++k)
    if (const T pivot = factor[int64_t{k} * leading + k]; pivot != pivot) return k + 1;
  return 0;
}

// What getrf says of a pivot that is zero: nothing where one before it is not a number, as MKL has it. OpenBLAS takes
// those of complex numbers for zero.
template <class T> lapack_int zero_pivot(lapack_int info, const T* factor, lapack_int leading) {
  return info > 0 && first_nan(factor, info, leading) ? 0 : info;
}

// out0 = LU of itself, out1 = pivots, out2 = info
template <class T> void lu(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int m = a.rows(), n = a.cols(), k = std::min(m, n);
  const Blocks<int32_t> pivots(call, call.out(1), a.count(), k), info(call, call.out(2), a.count(), 1);
  const auto factor = [&](int64_t i) {
    const lapack_int stopped = Routines<T>::getrf(LAPACK_COL_MAJOR, m, n, a[i], a.leading(), pivots[i]);
    *info[i] = zero_pivot(stopped, a[i], a.leading());
  };
  for_batch(a.count(), 0.7 * k * k * std::max(m, n), [&](int64_t first, int64_t last) {
    if constexpr (!is_complex<T>) {
      if (m == n && n <= kSmall && last - first >= kMany) {
        bool failed[kAtOnce];
        for (int64_t i = first; i < last; i += kAtOnce) {
          const int64_t count = std::min(kAtOnce, last - i);
          if constexpr (std::is_same_v<T, float>)
            pick_lu_small_f32()(a[i], pivots[i], count, n, failed);
          else
            pick_lu_small_f64()(a[i], pivots[i], count, n, failed);
          for (int64_t j = 0; j < count; ++j) failed[j] ? factor(i + j) : void(*info[i + j] = 0);
        }
        return;
      }
    }
    for (int64_t i = first; i < last; ++i) factor(i);
  });
}

void check_pivots(const Call& call, const int32_t* pivots, lapack_int n, int32_t low) {
  for (lapack_int k = 0; k < n; ++k)
    expect(call, pivots[k] >= low && pivots[k] <= n && pivots[k] != 0, "pivots that name rows of the matrix");
}

// x, an identity, becomes the inverse of what its LU factors make: that of L first, then U is solved for it.
template <class T>
void invert_by_lu(T* x, lapack_int leading, const T* factors, lapack_int its_leading, const int32_t* pivots,
                  lapack_int n) {
  for (int64_t j = 0; j < n; ++j)
    std::copy(factors + j * its_leading + j + 1, factors + j * its_leading + n, x + j * leading + j + 1);
  invert_triangle(x, n, leading, 'L');
  solve_triangle(CblasUpper, CblasNoTrans, CblasNonUnit, n, n, factors, its_leading, x, leading);
  for (int64_t k = n; k-- > 0;)
    if (const int64_t other = pivots[k] - 1; other != k)
      std::swap_ranges(x + k * leading, x + k * leading + n, x + other * leading);
}

template <class T>
void solve_by_lu(CBLAS_TRANSPOSE trans, lapack_int n, lapack_int cols, const T* a, lapack_int leading,
                 const int32_t* pivots, T* x, lapack_int x_leading) {
  const bool turned = trans != CblasNoTrans;
  if (!turned) Routines<T>::laswp(LAPACK_COL_MAJOR, cols, x, x_leading, 1, n, pivots, 1);
  solve_triangle(turned ? CblasUpper : CblasLower, trans, turned ? CblasNonUnit : CblasUnit, n, cols, a, leading, x,
                 x_leading);
  solve_triangle(turned ? CblasLower : CblasUpper, trans, turned ? CblasUnit : CblasNonUnit, n, cols, a, leading, x,
                 x_leading);
  if (turned) Routines<T>::laswp(LAPACK_COL_MAJOR, cols, x, x_leading, 1, n, pivots, -1);
}

// out0 = X of op(A) X = out0; in0 = LU, in1 = pivots; op by params[0]: 0 none, 1 transpose, 2 adjoint
template <class T> void lu_solve(const Call& call) {
  constexpr lapack_int kByHalvesFrom = 64; // below, OpenBLAS's own is as quick
  const Matrices<T> x(call, call.out(0)), a(call, call.in(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n && x.rows() == n && x.count() == a.count(), "square factors, and right sides that fit");
  const Blocks<int32_t> pivots(call, call.in(1), a.count(), n);
  const int64_t op = call.param(0).as_int();
  const char trans = op == 0 ? 'N' : op == 1 ? 'T' : Routines<T>::kAdjoint;
  const CBLAS_TRANSPOSE turn = op == 0 ? CblasNoTrans : op == 1 ? CblasTrans : CblasConjTrans;
  for (int64_t i = 0; i < a.count(); ++i) check_pivots(call, pivots[i], n, 1);
  for_batch(a.count(), 2.0 * n * n * x.cols(), [&](int64_t first, int64_t last) {
    const bool small = op == 0 && n <= kSmall && last - first >= kMany;
    if constexpr (std::is_same_v<T, float>)
      if (small) return pick_lu_solve_small_f32()(x[first], a[first], pivots[first], last - first, n, x.cols());
    if constexpr (std::is_same_v<T, double>)
      if (small) return pick_lu_solve_small_f64()(x[first], a[first], pivots[first], last - first, n, x.cols());
    for (int64_t i = first; i < last; ++i) {
      if (op == 0 && x.cols() == n && n >= kInvertedFrom && is_identity(x[i], n, x.leading()))
        invert_by_lu(x[i], x.leading(), a[i], a.leading(), pivots[i], n);
      else if (n >= kByHalvesFrom)
        solve_by_lu(turn, n, x.cols(), a[i], a.leading(), pivots[i], x[i], x.leading());
      else
        Routines<T>::getrs(LAPACK_COL_MAJOR, trans, n, x.cols(), a[i], a.leading(), pivots[i], x[i], x.leading());
    }
  });
}

// out0 = the permutation of rows that pivots (in0) make, row i of the permuted being row out0[i]: (batch..., m)
void permutation(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  expect(call, out.ndim() >= 1 && out.numel() > 0 && in.ndim() >= 1, "pivots, and a permutation with elements");
  const int64_t m = out.size(out.ndim() - 1), count = out.numel() / m, k = in.size(in.ndim() - 1);
  expect(call, out.dtype() == TS_INT64 && out.is_contiguous() && k <= m, "no more pivots than rows");
  const Blocks<int32_t> pivots(call, in, count, k);
  for (int64_t i = 0; i < count; ++i) {
    int64_t* rows = out.data<int64_t>() + i * m;
    for (int64_t r = 0; r < m; ++r) rows[r] = r;
    for (int64_t r = 0; r < k; ++r) {
      const int32_t other = pivots[i][r];
      expect(call, other >= 1 && other <= m, "pivots that name rows of the matrix");
      std::swap(rows[r], rows[other - 1]);
    }
  }
}

// out0 = Cholesky factor of itself, out1 = info; params[0]: upper. The other triangle is left as it was
template <class T> void cholesky(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n, "square matrices");
  const Blocks<int32_t> info(call, call.out(1), a.count(), 1);
  const bool upper = call.param(0).as_bool();
  const auto factor = [&](int64_t i) {
    const lapack_int stopped = Routines<T>::potrf(LAPACK_COL_MAJOR, upper ? 'U' : 'L', n, a[i], a.leading());
    const lapack_int nan = first_nan(a[i], stopped > 0 ? stopped - 1 : n, a.leading());
    *info[i] = nan ? nan : stopped;
  };
  for_batch(a.count(), cube(n) / 3, [&](int64_t first, int64_t last) {
    if constexpr (!is_complex<T>) {
      if (n <= kSmall && last - first >= kMany) {
        bool failed[kAtOnce];
        for (int64_t i = first; i < last; i += kAtOnce) {
          const int64_t count = std::min(kAtOnce, last - i);
          if constexpr (std::is_same_v<T, float>)
            pick_cholesky_small_f32()(a[i], count, n, upper, failed);
          else
            pick_cholesky_small_f64()(a[i], count, n, upper, failed);
          // LAPACK says where the others go wrong.
          for (int64_t k = 0; k < count; ++k) failed[k] ? factor(i + k) : void(*info[i + k] = 0);
        }
        return;
      }
    }
    for (int64_t i = first; i < last; ++i) factor(i);
  });
}

// x, an identity, becomes the inverse of A: a third of the operations that solving for n right sides takes. False, and
// x as it was, where the factor has a zero on its diagonal.
template <class T>
bool invert_factored(T* x, lapack_int leading, const T* factor, lapack_int its_leading, lapack_int n, char uplo) {
  for (int64_t j = 0; j < n; ++j)
    if (factor[j * its_leading + j] == T(0)) return false;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = uplo == 'U' ? 0 : j, end = uplo == 'U' ? j + 1 : n; i < end; ++i)
      x[j * leading + i] = factor[j * its_leading + i];
  invert_triangle(x, n, leading, uplo);
  Routines<T>::lauum(LAPACK_COL_MAJOR, uplo, n, x, leading);
  // By squares, both of whose sides stay in the first cache.
  constexpr int64_t kSide = 16;
  for (int64_t left = 0; left < n; left += kSide)
    for (int64_t top = left; top < n; top += kSide)
      for (int64_t j = left, right = std::min<int64_t>(n, left + kSide); j < right; ++j)
        for (int64_t i = std::max(top, j + 1), end = std::min<int64_t>(n, top + kSide); i < end; ++i) {
          T &below = x[j * leading + i], &above = x[i * leading + j];
          T& to = uplo == 'U' ? below : above;
          const T from = uplo == 'U' ? above : below;
          if constexpr (is_complex<T>)
            to = std::conj(from);
          else
            to = from;
        }
  return true;
}

// out0 = X of A X = out0; in0 = Cholesky factor of A; params[0]: upper
template <class T> void cholesky_solve(const Call& call) {
  const Matrices<T> x(call, call.out(0)), a(call, call.in(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n && x.rows() == n && x.count() == a.count(), "square factors, and right sides that fit");
  const char uplo = call.param(0).as_bool() ? 'U' : 'L';
  for_batch(a.count(), 2.0 * n * n * x.cols(), [&](int64_t first, int64_t last) {
    const bool small = n <= kSmall && last - first >= kMany;
    if constexpr (std::is_same_v<T, float>)
      if (small) return pick_cholesky_solve_small_f32()(x[first], a[first], last - first, n, x.cols(), uplo == 'U');
    if constexpr (std::is_same_v<T, double>)
      if (small) return pick_cholesky_solve_small_f64()(x[first], a[first], last - first, n, x.cols(), uplo == 'U');
    for (int64_t i = first; i < last; ++i)
      if (x.cols() != n || n < kInvertedFrom || !is_identity(x[i], n, x.leading()) ||
          !invert_factored<T>(x[i], x.leading(), a[i], a.leading(), n, uplo))
        Routines<T>::potrs(LAPACK_COL_MAJOR, uplo, n, x.cols(), a[i], a.leading(), x[i], x.leading());
  });
}

template <class T> constexpr auto hermitian_factor() {
  if constexpr (std::is_same_v<T, std::complex<float>>) {
    return scipy_LAPACKE_chetrf_work;
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return scipy_LAPACKE_zhetrf_work;
  } else {
    return Routines<T>::sytrf;
  }
}
template <class T> constexpr auto hermitian_solve() {
  if constexpr (std::is_same_v<T, std::complex<float>>) {
    return scipy_LAPACKE_chetrs_work;
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return scipy_LAPACKE_zhetrs_work;
  } else {
    return Routines<T>::sytrs;
  }
}

// out0 = LDL factors of itself, of which the lower triangle is read; out1 = pivots, out2 = info; params[0]: hermitian
template <class T> void ldl(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n, "square matrices");
  const Blocks<int32_t> pivots(call, call.out(1), a.count(), n), info(call, call.out(2), a.count(), 1);
  const auto factor = call.param(0).as_bool() ? hermitian_factor<T>() : Routines<T>::sytrf;
  for_batch(a.count(), cube(n) / 3, [&](int64_t first, int64_t last) {
    Work<T> work(
        [&](T* w, lapack_int l) { factor(LAPACK_COL_MAJOR, 'L', n, a[first], a.leading(), pivots[first], w, l); });
    for (int64_t i = first; i < last; ++i)
      *info[i] = factor(LAPACK_COL_MAJOR, 'L', n, a[i], a.leading(), pivots[i], work.data(), work.length());
  });
}

// out0 = X of A X = out0; in0 = LDL factors, in1 = pivots; params[0]: hermitian
template <class T> void ldl_solve(const Call& call) {
  const Matrices<T> x(call, call.out(0)), a(call, call.in(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n && x.rows() == n && x.count() == a.count(), "square factors, and right sides that fit");
  const Blocks<int32_t> pivots(call, call.in(1), a.count(), n);
  const auto solve = call.param(0).as_bool() ? hermitian_solve<T>() : Routines<T>::sytrs;
  for (int64_t i = 0; i < a.count(); ++i) {
    check_pivots(call, pivots[i], n, -n);
    // Negative ones come in pairs: blocks of two.
    for (lapack_int k = 0; k < n; ++k)
      if (pivots[i][k] < 0) expect(call, ++k < n && pivots[i][k] < 0, "pivots of blocks of two in pairs");
  }
  for_batch(a.count(), 2.0 * n * n * x.cols(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      solve(LAPACK_COL_MAJOR, 'L', n, x.cols(), a[i], a.leading(), pivots[i], x[i], x.leading());
  });
}

// out0 = X of op(A) X = out0, A (in0) triangular; params: upper, op (0 none, 1 transpose, 2 adjoint), unit diagonal
template <class T> void triangular_solve(const Call& call) {
  const Matrices<T> x(call, call.out(0)), a(call, call.in(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n && x.rows() == n && x.count() == a.count(), "square factors, and right sides that fit");
  const CBLAS_UPLO uplo = call.param(0).as_bool() ? CblasUpper : CblasLower;
  const int64_t op = call.param(1).as_int();
  const CBLAS_TRANSPOSE trans = op == 0 ? CblasNoTrans : op == 1 ? CblasTrans : CblasConjTrans;
  const CBLAS_DIAG diag = call.param(2).as_bool() ? CblasUnit : CblasNonUnit;
  for_batch(a.count(), 1.0 * n * n * x.cols(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      solve_triangle(uplo, trans, diag, n, x.cols(), a[i], a.leading(), x[i], x.leading());
  });
}

TESSERACK_LAPACK_KERNEL("lapack_lu", lu);
TESSERACK_LAPACK_KERNEL("lapack_lu_solve", lu_solve);
TESSERACK_LAPACK_KERNEL("lapack_cholesky", cholesky);
TESSERACK_LAPACK_KERNEL("lapack_cholesky_solve", cholesky_solve);
TESSERACK_LAPACK_KERNEL("lapack_ldl", ldl);
TESSERACK_LAPACK_KERNEL("lapack_ldl_solve", ldl_solve);
TESSERACK_LAPACK_KERNEL("lapack_triangular_solve", triangular_solve);
TS_KERNEL_AS("lapack_permutation", permutation, 0, TS_L_CONTIGUOUS);

} // namespace
} // namespace tesserack::cpu::lapack
#endif
