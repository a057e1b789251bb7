// Triangles by halves: most of the work is then in products of matrices, which OpenBLAS does faster than
// its own solving and inverting of triangles with a few hundred rows.
#ifndef TESSERACK_CPU_TRIANGLES_H
#define TESSERACK_CPU_TRIANGLES_H

#include "lapack.h"

namespace tesserack::cpu::lapack {

constexpr lapack_int kInvertedFrom = 8; // below, asking costs what it saves

template <class T> bool is_identity(const T* x, lapack_int n, lapack_int leading) {
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i)
      if (x[j * leading + i] != T(i == j ? 1 : 0)) return false;
  return true;
}

// B = alpha A B or alpha B A of a triangle A.
template <class T>
void multiply_triangle(CBLAS_SIDE side, char uplo, lapack_int rows, lapack_int cols, T alpha, const T* a, T* b,
                       lapack_int leading) {
  const CBLAS_UPLO which = uplo == 'U' ? CblasUpper : CblasLower;
  if constexpr (is_complex<T>)
    Routines<T>::trmm(CblasColMajor, side, which, CblasNoTrans, CblasNonUnit, rows, cols, &alpha, a, leading, b,
                      leading);
  else
    Routines<T>::trmm(CblasColMajor, side, which, CblasNoTrans, CblasNonUnit, rows, cols, alpha, a, leading, b,
                      leading);
}

// A triangle becomes its inverse: both halves do, and the block between them is multiplied by one and the other.
// OpenBLAS's own takes six times as long at 256.
template <class T> void invert_triangle(T* a, lapack_int n, lapack_int leading, char uplo) {
  constexpr lapack_int kWhole = 16;
  if (n <= kWhole) {
    Routines<T>::trtri(LAPACK_COL_MAJOR, uplo, 'N', n, a, leading);
    return;
  }
  const lapack_int half = n / 2, rest = n - half;
  T* const other = a + int64_t{half} * leading + half;
  invert_triangle(a, half, leading, uplo);
  invert_triangle(other, rest, leading, uplo);
  if (uplo == 'U') {
    T* const between = a + int64_t{half} * leading;
    multiply_triangle<T>(CblasLeft, uplo, half, rest, T(-1), a, between, leading);
    multiply_triangle<T>(CblasRight, uplo, half, rest, T(1), other, between, leading);
  } else {
    multiply_triangle<T>(CblasLeft, uplo, rest, half, T(-1), other, a + half, leading);
    multiply_triangle<T>(CblasRight, uplo, rest, half, T(1), a, a + half, leading);
  }
}

// X of op(A) X = X, A a triangle (n, n).
template <class T>
void solve_triangle(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, lapack_int n, lapack_int cols, const T* a,
                    lapack_int leading, T* x, lapack_int x_leading) {
  constexpr lapack_int kWhole = std::is_same_v<T, float> ? 8 : 16, kColumnsFrom = 8;
  const T one = 1, minus_one = -1;
  if (n <= kWhole || cols < kColumnsFrom) {
    if constexpr (is_complex<T>)
      Routines<T>::trsm(CblasColMajor, CblasLeft, uplo, trans, diag, n, cols, &one, a, leading, x, x_leading);
    else
      Routines<T>::trsm(CblasColMajor, CblasLeft, uplo, trans, diag, n, cols, one, a, leading, x, x_leading);
    return;
  }
  const lapack_int half = std::max<lapack_int>(kWhole, n / 2 / kWhole * kWhole), rest = n - half;
  const T *const other = a + int64_t{half} * leading + half, *const between = uplo == CblasUpper
                                                                                  ? a + int64_t{half} * leading
                                                                                  : a + half;
  T* const below = x + half;
  // The half whose rows of op(A) hold no other unknowns comes first.
  const bool from_above = (uplo == CblasLower) == (trans == CblasNoTrans);
  const auto solve = [&](bool above) {
    solve_triangle(uplo, trans, diag, above ? half : rest, cols, above ? a : other, leading, above ? x : below,
                   x_leading);
  };
  solve(from_above);
  const T* const known = from_above ? x : below;
  T* const unknown = from_above ? below : x;
  const lapack_int m = from_above ? rest : half, k = from_above ? half : rest;
  if constexpr (is_complex<T>)
    Routines<T>::gemm(CblasColMajor, trans, CblasNoTrans, m, cols, k, &minus_one, between, leading, known, x_leading,
                      &one, unknown, x_leading);
  else
    Routines<T>::gemm(CblasColMajor, trans, CblasNoTrans, m, cols, k, minus_one, between, leading, known, x_leading,
                      one, unknown, x_leading);
  solve(!from_above);
}

} // namespace tesserack::cpu::lapack

#endif // TESSERACK_CPU_TRIANGLES_H
