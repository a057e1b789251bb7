// The `matmul` kernel behind every product of matrices.
#pragma once
#include "ops/common/check.h"
#include "tensor/tensor.h"

namespace ts {

// Operands of the same dtype: RuntimeError naming op otherwise. (M, K) @ (K, N), any strides: a fresh tensor.
Tensor multiply_matrices(const Tensor& a, const Tensor& b, const char* op);
// torch.matmul's rules for all ranks: the product in outline, and into a contiguous tensor of that shape.
Tensor product_outline(const Tensor& a, const Tensor& b, const char* op);
void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b);

// A matrix as a kernel is to see it: t itself, turned on its side, or rows of another size.
struct Matrix {
  Tensor tensor;
  int64_t sizes[2], strides[2];
  Matrix(const Tensor& t, bool turned);                // two dims
  Matrix(const Tensor& t, int64_t rows, int64_t cols); // any dims, copied where it is not contiguous
  Matrix turned() const;
};
// out (M, N) = a (M, K) @ b (K, N)
void launch_product(const Tensor& out, const Matrix& a, const Matrix& b);
// out (batch..., M, N) = a (batch..., M, K) @ b (batch..., K, N) + add, which broadcasts or is undefined.
void launch_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& add = {});

} // namespace ts
