// The `matmul` kernel behind every product of matrices.
#pragma once
#include "ops/check.h"
#include "tensor/tensor.h"

namespace ts {

// Operands of the same floating or integer dtype, not complex-mixed: RuntimeError naming op otherwise.
// (M, K) @ (K, N), any strides.
Tensor multiply_matrices(const Tensor& a, const Tensor& b, const char* op);
// torch.matmul's rules for all ranks.
Tensor multiply(const Tensor& a, const Tensor& b, const char* op);
// out (batch..., M, N) = a (batch..., M, K) @ b (batch..., K, N) + add, which broadcasts or is undefined.
void launch_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& add = {});

} // namespace ts
