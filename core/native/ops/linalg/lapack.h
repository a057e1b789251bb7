// What the operators of linear algebra share: checks of matrices, memory as LAPACK reads it, and its complaints.
//
// LAPACK's matrices lie column by column. `columns` makes the memory of such a batch, a contiguous tensor
// (batch..., cols, rows) that kernels take, and `as_matrix` shows it as (batch..., rows, cols).
#pragma once
#include "dispatch/op_handles.h"
#include "ops/common/raw.h"
#include <functional>
#include <string>

namespace ts::lapack {

// RuntimeErrors in PyTorch's words.
void check_matrix(const Tensor& a, const char* op, const char* name = "A");
void check_square(const Tensor& a, const char* op, const char* name = "A");
void check_floating(const Tensor& a, const char* op); // float32, float64, complex64 or complex128
void check_same(const Tensor& a, const Tensor& b, const char* op);

inline IntSpan batch_of(const Tensor& a, size_t last = 2) { return a.sizes().first(a.sizes().size() - last); }
Dims with_batch(IntSpan batch, std::initializer_list<int64_t> sizes);
inline int64_t rows(const Tensor& a) { return a.size(-2); }
inline int64_t cols(const Tensor& a) { return a.size(-1); }
inline DType real_dtype(DType t) {
  return t == DType::Complex64 ? DType::Float32 : t == DType::Complex128 ? DType::Float64 : t;
}
inline DType complex_dtype(DType t) {
  return t == DType::Float32 ? DType::Complex64 : t == DType::Float64 ? DType::Complex128 : t;
}

Tensor columns(IntSpan batch, int64_t rows, int64_t cols, DType dtype, Device device);
Tensor columns_of(const Tensor& a);                // a copy
Tensor columns_of(const Tensor& a, IntSpan batch); // a copy, broadcast to this batch
inline Tensor as_matrix(const Tensor& memory) { return raw_transpose(memory, memory.ndim() - 2, memory.ndim() - 1); }
// Results that lie so, and the memory of one.
Tensor outline_columns(IntSpan batch, int64_t rows, int64_t cols, DType dtype, Device device);
inline Tensor memory_of(const Tensor& matrix) { return raw_transpose(matrix, matrix.ndim() - 2, matrix.ndim() - 1); }
void copy_broadcast(const Tensor& out, const Tensor& a); // out = a, broadcast
Tensor contiguous_rows(const Tensor& a, IntSpan sizes);  // `a` broadcast, in contiguous memory
Tensor zeros_int32(IntSpan sizes, Device device);

// LinAlgError for the first matrix whose info is not zero: "op: (Batch element k): " and what `says` of it.
void check_info(const Tensor& info, const char* op, const std::function<std::string(int32_t)>& says);
std::string singular_matrix(const char* what, int32_t info); // "the solver failed"
std::string not_definite(int32_t info);

struct Factors {
  Tensor lu, pivots, info; // of memory by columns
};
// LU with partial pivoting: fresh, or into memory that is there.
Factors factor(const Tensor& a);
void factor_into(const Factors& f, const Tensor& a);
// Solves A X = x (op 0), or with A transposed (1) or adjoint (2), in place of `x`, memory by columns.
Tensor solve_factored(const Factors& f, const Tensor& x, int64_t op);
Factors broadcast_factors(const Tensor& lu, const Tensor& pivots, IntSpan batch); // copies
void check_sides(const Tensor& a, const Tensor& b, bool left, const char* op);

// Differentiable, for gradients and composites.
Tensor transposed(const Tensor& a);
Tensor adjoint(const Tensor& a);
Tensor lower(const Tensor& a, int64_t diagonal = 0);
Tensor upper(const Tensor& a, int64_t diagonal = 0);
Tensor diagonal_of(const Tensor& a);
Tensor diagonal_matrix(const Tensor& d);
Tensor identity(int64_t n, const Tensor& like);
Tensor identities(IntSpan batch, int64_t n, const Tensor& like); // contiguous
Tensor eye(int64_t rows, int64_t cols, const Tensor& like);
inline Tensor column(const Tensor& v) { return ops::unsqueeze(v, int64_t{-1}); }
inline Tensor row(const Tensor& v) { return ops::unsqueeze(v, int64_t{-2}); }
Tensor real_part(const Tensor& a);
inline Tensor slice(const Tensor& a, int64_t dim, int64_t start, int64_t end) {
  return ops::slice(a, dim, start, end, int64_t{1});
}
double epsilon(DType t);

} // namespace ts::lapack
