// Products of half types: by oneDNN, or through float32 copies.
#include "matmul_kernels.h"
#include "onednn.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
namespace {

// Whether a library may read the matrix as it lies: one unit stride, the other at least as long as a line.
bool is_plain(const Matrix& m, int64_t rows, int64_t cols) {
  return (m.col_stride == 1 && m.row_stride >= cols) || (m.row_stride == 1 && m.col_stride >= rows);
}

// c of bfloat16 or float32, with contiguous rows.
bool multiply_onednn(const Gemm& g, onednn::Type result, bool row_bias) {
  if (g.dtype != TS_BFLOAT16 || !is_plain(g.a, g.m, g.k) || !is_plain(g.b, g.k, g.n)) return false;
  if (g.c.col_stride != 1 || g.c.row_stride < g.n) return false;
  const int threads = g.m * g.n * g.k < kThreadsFrom ? 1 : max_threads();
  const onednn::MatmulProblem problem{
      onednn::Type::bf16, result,         threads,        row_bias,       g.m,           g.n, g.k,
      g.a.row_stride,     g.a.col_stride, g.b.row_stride, g.b.col_stride, g.c.row_stride};
  return onednn::matmul(problem, g.a.data, g.b.data, g.addend.data, g.c.data);
}

char* as_bytes(std::vector<float>& v) { return reinterpret_cast<char*>(v.data()); }

// c (m, n), row-major, = a @ b.
void multiply_widened(const Gemm& g, std::vector<float>& c) {
  std::vector<float> a(static_cast<size_t>(g.m * g.k)), b(static_cast<size_t>(g.k * g.n));
  pick_widen_half()(g.dtype, g.m, g.k, g.a, a.data());
  // A transposed operand is widened as it lies.
  const bool b_transposed = g.b.col_stride != 1 && g.b.row_stride == 1;
  const Matrix flipped{g.b.data, g.b.col_stride, g.b.row_stride};
  b_transposed ? pick_widen_half()(g.dtype, g.n, g.k, flipped, b.data())
               : pick_widen_half()(g.dtype, g.k, g.n, g.b, b.data());
  Gemm wide{TS_FLOAT32, g.m, g.n, g.k, {as_bytes(a), g.k, 1}, {as_bytes(b), g.n, 1}, {as_bytes(c), g.n, 1}, {}};
  if (b_transposed) wide.b = {as_bytes(b), 1, g.k};
  run_gemm(wide);
}

// Rows [begin, end) of the result from those of the product, which are overwritten.
void blend_rows(const Gemm& whole, float beta, float alpha, float* product, int64_t begin, int64_t end) {
  const Gemm g = rows_of(whole, begin, end);
  product += begin * g.n;
  const int64_t count = g.m * g.n;
  if (alpha != 1)
    for (int64_t i = 0; i < count; ++i) product[i] *= alpha;
  if (g.addend.data != nullptr) {
    std::vector<float> addend(static_cast<size_t>(count));
    pick_widen_half()(g.dtype, g.m, g.n, g.addend, addend.data());
    for (int64_t i = 0; i < count; ++i) product[i] += beta * addend[static_cast<size_t>(i)];
  }
  pick_narrow_half()(g.dtype, g.m, g.n, product, g.c);
}

} // namespace

void multiply_half(const Gemm& gemm, float beta, float alpha) {
  Gemm g = gemm;
  if (beta == 0) g.addend = {}; // which is not read then, whatever it holds
  const bool row_bias = g.addend.data != nullptr && g.addend.row_stride == 0 && g.addend.col_stride == 1;
  const bool plain = alpha == 1 && (g.addend.data == nullptr || (row_bias && beta == 1));
  if (plain && multiply_onednn(g, onednn::Type::bf16, row_bias)) return;
  std::vector<float> product(static_cast<size_t>(g.m * g.n));
  Gemm wide = g;
  wide.addend = {};
  wide.c = {as_bytes(product), g.n, 1};
  if (!multiply_onednn(wide, onednn::Type::f32, false)) multiply_widened(g, product);
  constexpr int64_t kElementsAtOnce = 1 << 14;
  const int64_t rows = std::max<int64_t>(1, kElementsAtOnce / g.n);
  parallel_for(0, (g.m + rows - 1) / rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      blend_rows(g, beta, alpha, product.data(), i * rows, std::min(g.m, (i + 1) * rows));
  });
}

} // namespace tesserack::cpu
