// Products as oneDNN takes them.
#ifndef TESSERACK_CPU_MULTIPLY_ONEDNN_H
#define TESSERACK_CPU_MULTIPLY_ONEDNN_H

#include "matmul.h"
#include "onednn.h"
#include "threads.h"

namespace tesserack::cpu {

// Whether a library may read the matrix as it lies: one unit stride, the other at least as long as a line.
inline bool is_plain(const Matrix& m, int64_t rows, int64_t cols) {
  return (m.col_stride == 1 && m.row_stride >= cols) || (m.row_stride == 1 && m.col_stride >= rows);
}

inline onednn::Type onednn_type(int32_t dtype) {
  return dtype == TS_BFLOAT16 ? onednn::Type::bf16 : dtype == TS_FLOAT16 ? onednn::Type::f16 : onednn::Type::f32;
}

// c of the operands' dtype or float32, with contiguous rows; an addend that is one row. False where oneDNN does not
// take it.
inline bool multiply_onednn(const Gemm& g, onednn::Type result) {
  const bool row_bias = g.addend.data != nullptr;
  if ((g.dtype != TS_BFLOAT16 && g.dtype != TS_FLOAT16 && g.dtype != TS_FLOAT32) || !is_plain(g.a, g.m, g.k) ||
      !is_plain(g.b, g.k, g.n))
    return false;
  if (g.c.col_stride != 1 || g.c.row_stride < g.n) return false;
  if (row_bias && (g.addend.row_stride != 0 || g.addend.col_stride != 1)) return false;
  const int threads = g.m * g.n * g.k < kThreadsFrom ? 1 : max_threads();
  const onednn::MatmulProblem problem{
      onednn_type(g.dtype), result,         threads,        row_bias,       g.m,           g.n, g.k,
      g.a.row_stride,       g.a.col_stride, g.b.row_stride, g.b.col_stride, g.c.row_stride};
  return onednn::matmul(problem, g.a.data, g.b.data, g.addend.data, g.c.data);
}

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MULTIPLY_ONEDNN_H
