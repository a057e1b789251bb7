// One matrix product of any dtype and any strides: what matmul, linear and convolution without oneDNN are made of.
#ifndef TESSERACK_CPU_MATMUL_H
#define TESSERACK_CPU_MATMUL_H

#include <cstdint>

namespace tesserack::cpu {

struct Matrix {
  char* data;
  int64_t row_stride, col_stride; // in elements
};

// c (m, n) = a (m, k) @ b (k, n) + addend. The addend may be absent (data null), broadcast by zero strides, or c
// itself, which accumulates.
struct Gemm {
  int32_t dtype;
  int64_t m, n, k;
  Matrix a, b, c, addend;
};

// Uses max_threads() threads where the work is worth them.
void run_gemm(const Gemm& gemm);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MATMUL_H
