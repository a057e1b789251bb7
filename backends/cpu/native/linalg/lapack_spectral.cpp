// Singular values, and eigenvalues of symmetric and of general matrices.
#ifndef TESSERACK_CPU_NO_OPENBLAS
#include "lapack.h"

#include <cmath>

namespace tesserack::cpu::lapack {
namespace {

// Iterations need not end on these.
constexpr int32_t kNotFinite = -1;

template <class T> bool all_finite(const T* elements, int64_t n) {
  const auto* reals = reinterpret_cast<const Real<T>*>(elements);
  Real<T> sum = 0; // x - x is 0, or NaN where x is not finite
  for (int64_t i = 0; i < (is_complex<T> ? 2 * n : n); ++i) sum += reals[i] - reals[i];
  return sum == 0;
}

// The same of one triangle of a matrix (n, n) by columns, all that a Hermitian routine reads.
template <class T> bool triangle_finite(const T* a, int64_t n, bool upper) {
  for (int64_t j = 0; j < n; ++j)
    if (!all_finite(a + j * n + (upper ? 0 : j), upper ? j + 1 : n - j)) return false;
  return true;
}

// out0 is spent; out1 = singular values, out2 = U, out3 = Vh, out4 = info; params[0]: 'N', 'S' or 'A'
template <class T> void svd(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int m = a.rows(), n = a.cols(), k = std::min(m, n);
  const char job = static_cast<char>(call.param(0).as_int());
  expect(call,
         (job == 'N' || job == 'S' || job == 'A') && (job == 'N') == call.out(2).is_none() &&
             (job == 'N') == call.out(3).is_none(),
         "job N, S or A, and vectors unless N");
  const lapack_int u_cols = job == 'S' ? k : m, v_rows = job == 'S' ? k : n;
  const Blocks<Real<T>> s(call, call.out(1), a.count(), k);
  const Blocks<T> u(call, call.out(2), a.count(), int64_t{m} * u_cols),
      v(call, call.out(3), a.count(), int64_t{v_rows} * n);
  const Blocks<int32_t> info(call, call.out(4), a.count(), 1);
  for_batch(a.count(), 10.0 * k * k * std::max(m, n), [&](int64_t first, int64_t last) {
    std::vector<lapack_int> integers(8 * static_cast<size_t>(k));
    const size_t low = static_cast<size_t>(k), high = static_cast<size_t>(std::max(m, n));
    std::vector<Real<T>> reals(
        is_complex<T> ? (job == 'N' ? 7 * low : low * std::max(5 * low + 7, 2 * high + 2 * low + 1)) : 0);
    const auto decompose = [&](int64_t i, T* work, lapack_int length) {
      if constexpr (is_complex<T>)
        return Routines<T>::gesdd(LAPACK_COL_MAJOR, job, m, n, a[i], a.leading(), s[i], u[i], m, v[i], v_rows, work,
                                  length, reals.data(), integers.data());
      else
        return Routines<T>::gesdd(LAPACK_COL_MAJOR, job, m, n, a[i], a.leading(), s[i], u[i], m, v[i], v_rows, work,
                                  length, integers.data());
    };
    Work<T> work([&](T* w, lapack_int length) { decompose(first, w, length); });
    for (int64_t i = first; i < last; ++i)
      *info[i] = all_finite(a[i], int64_t{m} * n) ? decompose(i, work.data(), work.length()) : kNotFinite;
  });
}

template <class T>
lapack_int hermitian_eigen(char job, char uplo, lapack_int n, T* a, Real<T>* w, T* work, lapack_int length,
                           Real<T>* reals, lapack_int n_reals, lapack_int* integers, lapack_int n_integers) {
  constexpr int kLayout = LAPACK_COL_MAJOR;
  if constexpr (std::is_same_v<T, float>)
    return scipy_LAPACKE_ssyevd_work(kLayout, job, uplo, n, a, n, w, work, length, integers, n_integers);
  else if constexpr (std::is_same_v<T, double>)
    return scipy_LAPACKE_dsyevd_work(kLayout, job, uplo, n, a, n, w, work, length, integers, n_integers);
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return scipy_LAPACKE_cheevd_work(kLayout, job, uplo, n, a, n, w, work, length, reals, n_reals, integers,
                                     n_integers);
  else
    return scipy_LAPACKE_zheevd_work(kLayout, job, uplo, n, a, n, w, work, length, reals, n_reals, integers,
                                     n_integers);
}

// out0 = eigenvectors of itself, of which one triangle is read; out1 = eigenvalues, out2 = info; params: vectors, upper
template <class T> void eigh(const Call& call) {
  const Matrices<T> a(call, call.out(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n, "square matrices");
  const Blocks<Real<T>> w(call, call.out(1), a.count(), n);
  const Blocks<int32_t> info(call, call.out(2), a.count(), 1);
  const char job = call.param(0).as_bool() ? 'V' : 'N', uplo = call.param(1).as_bool() ? 'U' : 'L';
  for_batch(a.count(), 9.0 * n * n * n, [&](int64_t first, int64_t last) {
    lapack_int n_integers = 1;
    Real<T> n_reals = 1;
    Work<T> work([&](T* wanted, lapack_int) {
      hermitian_eigen(job, uplo, n, a[first], w[first], wanted, -1, &n_reals, -1, &n_integers, -1);
    });
    std::vector<lapack_int> integers(static_cast<size_t>(std::max(1, n_integers)));
    std::vector<Real<T>> reals(static_cast<size_t>(n_reals) + 1);
    for (int64_t i = first; i < last; ++i)
      *info[i] = triangle_finite(a[i], n, uplo == 'U')
                     ? hermitian_eigen(job, uplo, n, a[i], w[i], work.data(), work.length(), reals.data(),
                                       static_cast<lapack_int>(reals.size()), integers.data(),
                                       static_cast<lapack_int>(integers.size()))
                     : kNotFinite;
  });
}

// Real routines give conjugate pairs: the parts of a pair's first vector stand in two columns.
template <class R>
void join_pairs(lapack_int n, const R* re, const R* im, const R* columns, std::complex<R>* w, std::complex<R>* v) {
  for (lapack_int j = 0; j < n; ++j) w[j] = {re[j], im[j]};
  if (!v) return;
  for (lapack_int j = 0; j < n; ++j) {
    const bool pair = im[j] != 0 && j + 1 < n;
    for (lapack_int i = 0; i < n; ++i) {
      const R real = columns[int64_t{j} * n + i], imaginary = pair ? columns[int64_t{j + 1} * n + i] : R(0);
      v[int64_t{j} * n + i] = {real, imaginary};
      if (pair) v[int64_t{j + 1} * n + i] = {real, -imaginary};
    }
    if (pair) ++j;
  }
}

// out0 is spent; out1 = eigenvalues and out2 = eigenvectors or absent, both complex; out3 = info
template <class T> void eig(const Call& call) {
  using R = Real<T>;
  const Matrices<T> a(call, call.out(0));
  const lapack_int n = a.rows();
  expect(call, a.cols() == n, "square matrices");
  const Blocks<std::complex<R>> w(call, call.out(1), a.count(), n), v(call, call.out(2), a.count(), int64_t{n} * n);
  const Blocks<int32_t> info(call, call.out(3), a.count(), 1);
  const bool vectors = !call.out(2).is_none();
  const char job = vectors ? 'V' : 'N';
  for_batch(a.count(), 25.0 * n * n * n, [&](int64_t first, int64_t last) {
    std::vector<R> reals(2 * static_cast<size_t>(n)), columns(!is_complex<T> && vectors ? size_t(n) * size_t(n) : 1);
    const auto decompose = [&](int64_t i, T* work, lapack_int length) {
      if constexpr (is_complex<T>) {
        T none{};
        return Routines<T>::geev(LAPACK_COL_MAJOR, 'N', job, n, a[i], n, w[i], &none, 1, vectors ? v[i] : &none,
                                 vectors ? n : 1, work, length, reals.data());
      } else {
        return Routines<T>::geev(LAPACK_COL_MAJOR, 'N', job, n, a[i], n, reals.data(), reals.data() + n, nullptr, 1,
                                 columns.data(), vectors ? n : 1, work, length);
      }
    };
    Work<T> work([&](T* wanted, lapack_int length) { decompose(first, wanted, length); });
    for (int64_t i = first; i < last; ++i) {
      *info[i] = all_finite(a[i], int64_t{n} * n) ? decompose(i, work.data(), work.length()) : kNotFinite;
      if constexpr (!is_complex<T>)
        if (*info[i] != kNotFinite) join_pairs(n, reals.data(), reals.data() + n, columns.data(), w[i], v[i]);
    }
  });
}

TESSERACK_LAPACK_KERNEL("lapack_svd", svd);
TESSERACK_LAPACK_KERNEL("lapack_eigh", eigh);
TESSERACK_LAPACK_KERNEL("lapack_eig", eig);

} // namespace
} // namespace tesserack::cpu::lapack
#endif
