#include "ops/linalg/matmul_launch.h"
#include "dispatch/launch.h"
#include "ops/common/raw.h"
#include "ops/pointwise/fused_programs.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const KernelId kMatmul("matmul");

// For kernels that do not take complex numbers: four products of real ones.
void product_of_parts(const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor x[2], y[2];
  for (bool imaginary : {false, true}) {
    x[imaginary] = raw_contiguous(raw_part(a, imaginary));
    y[imaginary] = raw_contiguous(raw_part(b, imaginary));
  }
  auto times = [&](int i, int j) {
    Tensor p = empty_tensor(out.sizes(), real_type(out.dtype()), out.device());
    launch_matmul(p, x[i], y[j]);
    return p;
  };
  raw_copy(raw_part(out, false), ops::sub(times(0, 0), times(1, 1)));
  raw_copy(raw_part(out, true), ops::add(times(0, 1), times(1, 0)));
}

// With an addend, false when the kernel takes none.
bool matmul_launch_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& addend, int64_t work) {
  Launch launch(kMatmul, out.device());
  launch.out(out).in(a).in(b).compute(accumulate_type(out.dtype())).work(work);
  if (addend.defined()) return launch.in(addend).run();
  if (!is_complex(out.dtype()))
    launch.run_required();
  else if (!launch.run())
    product_of_parts(out, a, b);
  return true;
}

// Multiplications, which say better than element counts how long the kernel takes.
int64_t work_of(const Tensor& out, int64_t inner) {
  int64_t work = 0;
  return __builtin_mul_overflow(out.numel(), inner, &work) ? INT64_MAX : work / 64;
}

Tensor as_matrix(const Tensor& t, IntSpan sizes, IntSpan strides) { return alias(t, sizes, strides, t->byte_offset); }

// (batch..., M, K) as (batch * M, K) without a copy, or undefined.
Tensor folded(const Tensor& t) {
  int64_t inner = t.sizes().back();
  int64_t sizes[] = {inner ? t.numel() / inner : 0, inner};
  if (inner == 0) return {};
  auto strides = view_strides(t.sizes(), t.strides(), sizes);
  return strides ? as_matrix(t, sizes, *strides) : Tensor();
}

IntSpan batch_of(const Tensor& t) { return t.sizes().first(t.sizes().size() - 2); }

void multiply_batches(const Tensor& out, const Tensor& a, const Tensor& b) {
  Dims a_sizes = broadcast_sizes(batch_of(a), batch_of(b), "matmul"), b_sizes = a_sizes, out_sizes = a_sizes;
  int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  for (auto [sizes, rows, cols] : {std::tuple{&a_sizes, m, k}, {&b_sizes, k, n}, {&out_sizes, m, n}}) {
    sizes->push_back(rows);
    sizes->push_back(cols);
  }
  launch_matmul(same(out.sizes(), out_sizes) ? out : as_matrix(out, out_sizes, contiguous_strides(out_sizes)),
                raw_expand(a, a_sizes, "matmul"), raw_expand(b, b_sizes, "matmul"));
}

Tensor matrix_product_outline(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK(a.ndim() == 2 && b.ndim() == 2, op, ": expected two matrices, got shapes ", a.sizes(), " and ", b.sizes());
  check_same_dtype(a, b, op);
  IntSpan x = a.sizes(), y = b.sizes();
  TS_CHECK(x[1] == y[0], op, ": mat1 and mat2 shapes cannot be multiplied (", x[0], "x", x[1], " and ", y[0], "x", y[1],
           ")");
  int64_t sizes[] = {x[0], y[1]};
  return outline(sizes, a.dtype(), a.device());
}

} // namespace

void launch_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& add) {
  if (out.numel() == 0) return;
  if (a.numel() == 0 || b.numel() == 0)
    return add.defined() ? raw_copy(out, raw_expand(add, out.sizes(), "matmul")) : raw_fill(out, 0);
  int64_t work = work_of(out, a.sizes().back());
  if (add.defined()) {
    Tensor addend = raw_expand(add, out.sizes(), "matmul");
    if (matmul_launch_product(out, a, b, addend, work)) return;
    matmul_launch_product(out, a, b, {}, work);
    ops::add_(out, addend);
    return;
  }
  matmul_launch_product(out, a, b, {}, work);
}

bool multiply_program_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& add,
                           const ts_program* epilogue) {
  if (out.numel() == 0 || a.numel() == 0 || is_complex(out.dtype()) || out.device().is_meta()) return false;
  const ts_kernel* kernel = backend_of(out.device()).kernel(kMatmul, out.device().index);
  if (!kernel || !(kernel->flags & TS_K_EPILOGUE)) return false;
  return Launch(kMatmul, out.device())
      .out(out)
      .in(a)
      .in(b)
      .in(add.defined() ? raw_expand(add, out.sizes(), "matmul") : add)
      .epilogue(epilogue)
      .compute(accumulate_type(out.dtype()))
      .work(work_of(out, a.sizes().back()))
      .run();
}

Tensor multiply_matrices(const Tensor& a, const Tensor& b, const char* op) {
  Tensor out = matrix_product_outline(a, b, op);
  give_memory(*out.impl());
  launch_matmul(out, a, b);
  return out;
}

Tensor product_outline(const Tensor& a, const Tensor& b, const char* op) {
  if (a.ndim() == 2 && b.ndim() == 2) return matrix_product_outline(a, b, op);
  TS_CHECK(a.ndim() > 0 && b.ndim() > 0, op, ": both arguments need to be at least 1D, but they are ", a.ndim(),
           "D and ", b.ndim(), "D");
  check_same_dtype(a, b, op);
  bool row = a.ndim() == 1, column = b.ndim() == 1;
  int64_t inner = column ? b.numel() : b.size(-2);
  TS_CHECK(a.size(-1) == inner, op, ": mat1 and mat2 shapes cannot be multiplied: the inner sizes ", a.size(-1),
           " and ", inner, " of shapes ", a.sizes(), " and ", b.sizes(), " differ");
  Dims sizes = broadcast_sizes(row ? IntSpan() : batch_of(a), column ? IntSpan() : batch_of(b), op);
  if (!row) sizes.push_back(a.size(-2));
  if (!column) sizes.push_back(b.size(-1));
  return outline(sizes, a.dtype(), a.device());
}

void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (a.ndim() == 2 && b.ndim() == 2) return launch_matmul(out, a, b);
  int64_t row_sizes[] = {1, a.numel()}, column_sizes[] = {b.numel(), 1};
  int64_t row_strides[] = {0, a.strides().back()}, column_strides[] = {b.strides().back(), 0};
  Tensor x = a.ndim() == 1 ? as_matrix(a, row_sizes, row_strides) : a;
  Tensor y = b.ndim() == 1 ? as_matrix(b, column_sizes, column_strides) : b;
  // A stack of matrices times one matrix is one taller product.
  if (Tensor tall = y.ndim() == 2 && x.ndim() > 2 ? folded(x) : Tensor(); tall.defined()) x = tall;
  if (x.ndim() != 2 || y.ndim() != 2) return multiply_batches(out, x, y);
  int64_t sizes[] = {x.size(0), y.size(1)};
  launch_matmul(as_matrix(out, sizes, contiguous_strides(sizes)), x, y);
}

Matrix::Matrix(const Tensor& t, bool turn) : tensor(t) {
  for (size_t d = 0; d < 2; ++d) {
    sizes[d] = t.sizes()[turn ? 1 - d : d];
    strides[d] = t.strides()[turn ? 1 - d : d];
  }
}
Matrix::Matrix(const Tensor& t, int64_t rows, int64_t cols) : sizes{rows, cols}, strides{cols, 1} {
  if (t.ndim() == 2 && t.size(0) == rows) {
    tensor = t;
    std::copy_n(t.strides().data(), 2, strides);
  } else {
    tensor = raw_contiguous(t);
  }
}
Matrix Matrix::turned() const {
  Matrix m = *this;
  std::swap(m.sizes[0], m.sizes[1]);
  std::swap(m.strides[0], m.strides[1]);
  return m;
}

void launch_product(const Tensor& out, const Matrix& a, const Matrix& b) {
  int64_t sizes[] = {a.sizes[0], b.sizes[1]}, strides[] = {b.sizes[1], 1};
  if (a.sizes[1] == 0) return raw_fill(out, 0);
  if (is_complex(out.dtype())) {
    matmul_launch_product(as_matrix(out, sizes, strides), as_matrix(a.tensor, a.sizes, a.strides),
                          as_matrix(b.tensor, b.sizes, b.strides), {}, work_of(out, a.sizes[1]));
    return;
  }
  Launch(kMatmul, out.device())
      .out(out, sizes, strides)
      .in(a.tensor, a.sizes, a.strides)
      .in(b.tensor, b.sizes, b.strides)
      .compute(accumulate_type(out.dtype()))
      .work(work_of(out, a.sizes[1]))
      .run_required();
}

} // namespace ts
