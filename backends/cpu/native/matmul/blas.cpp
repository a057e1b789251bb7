#include "blas.h"

#include <tesserack/abi.h>

#ifndef TESSERACK_CPU_NO_OPENBLAS

#include <algorithm>
#include <cblas.h>
#include <limits>

namespace tesserack::cpu::blas {
namespace {

const bool single_threaded = (scipy_openblas_set_num_threads(1), true);

struct Operand {
  CBLAS_TRANSPOSE transpose;
  blasint leading;
  bool valid;
};

bool fits(int64_t value) { return value <= std::numeric_limits<blasint>::max(); }

// How BLAS would read a (rows, cols) matrix; the stride of a dimension of size 1 means nothing.
Operand describe(const Matrix& matrix, int64_t rows, int64_t cols) {
  const int64_t row = rows == 1 ? std::max<int64_t>(1, cols) : matrix.row_stride;
  const int64_t col = cols == 1 ? std::max<int64_t>(1, rows) : matrix.col_stride;
  if ((matrix.col_stride == 1 || cols == 1) && row >= std::max<int64_t>(1, cols) && fits(row))
    return {CblasNoTrans, static_cast<blasint>(row), true};
  if ((matrix.row_stride == 1 || rows == 1) && col >= std::max<int64_t>(1, rows) && fits(col))
    return {CblasTrans, static_cast<blasint>(col), true};
  return {CblasNoTrans, 0, false};
}

// One row times one column, for which gemm would pack both.
void add_dot(const Gemm& g, const Operand& a, const Operand& b, bool accumulate) {
  const blasint k = static_cast<blasint>(g.k), a_step = a.transpose == CblasNoTrans ? 1 : a.leading,
                b_step = b.transpose == CblasNoTrans ? b.leading : 1;
  if (g.dtype == TS_FLOAT32) {
    float* c = reinterpret_cast<float*>(g.c.data);
    *c = (accumulate ? *c : 0) + scipy_cblas_sdot(k, reinterpret_cast<const float*>(g.a.data), a_step,
                                                  reinterpret_cast<const float*>(g.b.data), b_step);
  } else if (g.dtype == TS_FLOAT64) {
    double* c = reinterpret_cast<double*>(g.c.data);
    *c = (accumulate ? *c : 0) + scipy_cblas_ddot(k, reinterpret_cast<const double*>(g.a.data), a_step,
                                                  reinterpret_cast<const double*>(g.b.data), b_step);
  } else {
    const auto add = [&]<class T>(T* c, auto dot) {
      T sum[2];
      dot(k, g.a.data, a_step, g.b.data, b_step, sum);
      for (int part = 0; part < 2; ++part) c[part] = (accumulate ? c[part] : 0) + sum[part];
    };
    if (g.dtype == TS_COMPLEX64)
      add(reinterpret_cast<float*>(g.c.data), scipy_cblas_cdotu_sub);
    else
      add(reinterpret_cast<double*>(g.c.data), scipy_cblas_zdotu_sub);
  }
}

bool taken(const Gemm& g, const Operand& a, const Operand& b, const Operand& c) {
  if (!single_threaded || !a.valid || !b.valid || !c.valid || c.transpose != CblasNoTrans) return false;
  const bool has_routine =
      g.dtype == TS_FLOAT32 || g.dtype == TS_FLOAT64 || g.dtype == TS_COMPLEX64 || g.dtype == TS_COMPLEX128;
  return has_routine && fits(g.m) && fits(g.n) && fits(g.k);
}

} // namespace

bool has_library() { return single_threaded; }

bool takes(const Gemm& g) {
  return taken(g, describe(g.a, g.m, g.k), describe(g.b, g.k, g.n), describe(g.c, g.m, g.n));
}

bool gemm(const Gemm& g, bool accumulate) {
  const Operand a = describe(g.a, g.m, g.k), b = describe(g.b, g.k, g.n), c = describe(g.c, g.m, g.n);
  if (!taken(g, a, b, c)) return false;
  const blasint m = static_cast<blasint>(g.m), n = static_cast<blasint>(g.n), k = static_cast<blasint>(g.k);
  if (m == 1 && n == 1) {
    add_dot(g, a, b, accumulate);
    return true;
  }
  switch (g.dtype) {
  case TS_FLOAT32:
    scipy_cblas_sgemm(CblasRowMajor, a.transpose, b.transpose, m, n, k, 1.0f, reinterpret_cast<const float*>(g.a.data),
                      a.leading, reinterpret_cast<const float*>(g.b.data), b.leading, accumulate ? 1.0f : 0.0f,
                      reinterpret_cast<float*>(g.c.data), c.leading);
    return true;
  case TS_FLOAT64:
    scipy_cblas_dgemm(CblasRowMajor, a.transpose, b.transpose, m, n, k, 1.0, reinterpret_cast<const double*>(g.a.data),
                      a.leading, reinterpret_cast<const double*>(g.b.data), b.leading, accumulate ? 1.0 : 0.0,
                      reinterpret_cast<double*>(g.c.data), c.leading);
    return true;
  case TS_COMPLEX64: {
    const float one[2] = {1, 0}, beta[2] = {accumulate ? 1.0f : 0.0f, 0};
    scipy_cblas_cgemm(CblasRowMajor, a.transpose, b.transpose, m, n, k, one, g.a.data, a.leading, g.b.data, b.leading,
                      beta, g.c.data, c.leading);
    return true;
  }
  case TS_COMPLEX128: {
    const double one[2] = {1, 0}, beta[2] = {accumulate ? 1.0 : 0.0, 0};
    scipy_cblas_zgemm(CblasRowMajor, a.transpose, b.transpose, m, n, k, one, g.a.data, a.leading, g.b.data, b.leading,
                      beta, g.c.data, c.leading);
    return true;
  }
  default: return false;
  }
}

} // namespace tesserack::cpu::blas

#else

namespace tesserack::cpu::blas {

bool has_library() { return false; }
bool gemm(const Gemm&, bool) { return false; }
bool takes(const Gemm&) { return false; }

} // namespace tesserack::cpu::blas

#endif
