// Products of half types: by oneDNN, or through float32 copies.
#include "matmul_kernels.h"
#include "multiply_onednn.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
namespace {

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

bool multiply_small_half(const Gemm& g) {
  constexpr int64_t kElements = 1024;
  if (g.m * g.n == 1 || g.m * g.k > kElements || g.k * g.n > kElements || g.m * g.n > kElements || g.k == 0)
    return false;
  alignas(64) float a[kElements], b[kElements], c[kElements], addend[kElements];
  const auto wide = [&](const Matrix& from, int64_t rows, int64_t cols, float* to) -> Matrix {
    char* const data = reinterpret_cast<char*>(to);
    if (from.col_stride != 1 && from.row_stride == 1) { // as it lies
      pick_widen_half()(g.dtype, cols, rows, {from.data, from.col_stride, 1}, to);
      return {data, 1, rows};
    }
    pick_widen_half()(g.dtype, rows, cols, from, to);
    return {data, cols, 1};
  };
  Gemm floats{TS_FLOAT32, g.m, g.n, g.k, wide(g.a, g.m, g.k, a), wide(g.b, g.k, g.n, b), {}, {}};
  floats.c = {reinterpret_cast<char*>(c), g.n, 1};
  if (g.addend.data != nullptr) floats.addend = wide(g.addend, g.m, g.n, addend);
  run_gemm(floats);
  pick_narrow_half()(g.dtype, g.m, g.n, c, g.c);
  return true;
}

void multiply_half(const Gemm& gemm, float beta, float alpha) {
  Gemm g = gemm;
  if (beta == 0) g.addend = {}; // which is not read then, whatever it holds
  const bool plain = alpha == 1 && (g.addend.data == nullptr || beta == 1);
  constexpr int64_t kDotUpTo = 1 << 14; // elements; float32 sums of more would round worse than those of the libraries
  if (plain && g.m == 1 && g.n == 1 && g.addend.data == nullptr && g.k <= kDotUpTo && g.a.col_stride == 1 &&
      g.b.row_stride == 1) {
    float dot = pick_dot_half()(g.dtype, g.k, g.a.data, g.b.data);
    return pick_narrow_half()(g.dtype, 1, 1, &dot, g.c);
  }
  if (plain && multiply_onednn(g, onednn_type(g.dtype))) return;
  std::vector<float> product(static_cast<size_t>(g.m * g.n));
  Gemm wide = g;
  wide.addend = {};
  wide.c = {as_bytes(product), g.n, 1};
  if (!multiply_onednn(wide, onednn::Type::f32)) multiply_widened(g, product);
  constexpr int64_t kElementsAtOnce = 1 << 14;
  const int64_t rows = std::max<int64_t>(1, kElementsAtOnce / g.n);
  parallel_for(0, (g.m + rows - 1) / rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      blend_rows(g, beta, alpha, product.data(), i * rows, std::min(g.m, (i + 1) * rows));
  });
}

} // namespace tesserack::cpu
