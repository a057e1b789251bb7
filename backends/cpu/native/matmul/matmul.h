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

// The product's rows [begin, end).
Gemm rows_of(const Gemm& gemm, int64_t begin, int64_t end);

// Multiply-adds between two looks for the user's Ctrl-C: half a second of one thread.
constexpr int64_t kPatience = int64_t{1} << 35;

constexpr int64_t kThreadsFrom = 100'000; // multiply-adds

// Uses max_threads() threads where the work is worth them.
void run_gemm(const Gemm& gemm);

// One of a batch of float16 or bfloat16, so small that a library's call takes longer than it. False if it is not.
bool multiply_small_half(const Gemm& gemm);

// The same product, where strides of dims of size 1 are such that a library takes it.
Gemm with_usual_strides(const Gemm& gemm);

// c = beta * addend + alpha * (a @ b) of float16 or bfloat16 (matmul_half.cpp), rounded once. Of usual
// strides, and k is not 0.
void multiply_half(const Gemm& gemm, float beta = 1, float alpha = 1);

// The same where b is a weight: packed once for as long as it stays what it is. False where that does not pay.
bool run_gemm_keeping(const Gemm& gemm);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MATMUL_H
