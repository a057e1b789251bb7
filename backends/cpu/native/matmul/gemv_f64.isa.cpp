// Products of a float64 matrix with a vector: where rows lie in runs four dot products abreast, where columns do four
// of them added up at once. Both read as fast as the memory delivers.
#include "matmul.h"
#include "reduce/fold.h"

#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

bool gemv_f64(const Gemm& gemm, bool accumulate);

namespace {

template <int Rows> void dot(const double* a, int64_t row, const double* x, int64_t k, double* sums) {
  constexpr int lanes = kLanes<double>;
  Vector<double> acc[Rows][2] = {};
  int64_t i = 0;
  for (; i + 2 * lanes <= k; i += 2 * lanes)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Vector<double> v = load_vector(x + i + half * lanes);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) acc[r][half] += load_vector(a + r * row + i + half * lanes) * v;
    }
  for (int r = 0; r < Rows; ++r) sums[r] = fold_vectors<SumFold<double>, 2, double>(acc[r]);
  for (; i < k; ++i)
    for (int r = 0; r < Rows; ++r) sums[r] += a[r * row + i] * x[i];
}

// c += a @ x, a's columns in runs `col` apart.
void add_columns(double* __restrict c, const double* a, int64_t col, const double* x, int64_t step, int64_t rows,
                 int64_t k) {
  constexpr int64_t block = 1024; // of c, which then stays in the L1 cache
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t n = std::min(block, rows - first);
    double* __restrict to = c + first;
    int64_t p = 0;
    for (; p + 4 <= k; p += 4) {
      const double *a0 = a + first + p * col, *a1 = a0 + col, *a2 = a1 + col, *a3 = a2 + col;
      const double x0 = x[p * step], x1 = x[(p + 1) * step], x2 = x[(p + 2) * step], x3 = x[(p + 3) * step];
      for (int64_t i = 0; i < n; ++i) to[i] += (a0[i] * x0 + a1[i] * x1) + (a2[i] * x2 + a3[i] * x3);
    }
    for (; p < k; ++p) {
      const double *a0 = a + first + p * col, x0 = x[p * step];
      for (int64_t i = 0; i < n; ++i) to[i] += a0[i] * x0;
    }
  }
}

void dot_rows(double* c, const double* a, int64_t row, const double* x, int64_t rows, int64_t k, bool accumulate) {
  for (int64_t i = 0; i < rows; i += 4) {
    const int64_t left = std::min<int64_t>(4, rows - i);
    double sums[4];
    if (left == 4)
      dot<4>(a + i * row, row, x, k, sums);
    else
      for (int64_t r = 0; r < left; ++r) dot<1>(a + (i + r) * row, 0, x, k, sums + r);
    for (int64_t r = 0; r < left; ++r) c[i + r] = accumulate ? c[i + r] + sums[r] : sums[r];
  }
}

} // namespace

bool gemv_f64(const Gemm& g, bool accumulate) {
  // A row times a matrix is the transposed matrix times a column.
  const bool column = g.n == 1;
  if (g.dtype != TS_FLOAT64 || (!column && g.m != 1)) return false;
  const Matrix matrix = column ? g.a : Matrix{g.b.data, g.b.col_stride, g.b.row_stride};
  const int64_t step = column ? g.b.row_stride : g.a.col_stride, rows = column ? g.m : g.n;
  if ((column ? g.c.row_stride : g.c.col_stride) != 1) return false;
  const double *a = reinterpret_cast<const double*>(matrix.data),
               *x = reinterpret_cast<const double*>(column ? g.b.data : g.a.data);
  double* c = reinterpret_cast<double*>(g.c.data);
  if (matrix.col_stride == 1 && step == 1) {
    dot_rows(c, a, matrix.row_stride, x, rows, g.k, accumulate);
    return true;
  }
  if (matrix.row_stride != 1) return false;
  if (!accumulate) std::fill_n(c, rows, 0.0);
  add_columns(c, a, matrix.col_stride, x, step, rows, g.k);
  return true;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
