#include "ops/matmul_launch.h"
#include "dispatch/launch.h"
#include "ops/api.h"
#include "ops/raw.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const KernelId kMatmul("matmul");

// With an addend, false when the kernel takes none.
bool product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& addend, int64_t work) {
  Launch launch(kMatmul, out.device());
  launch.out(out).in(a).in(b).compute(accumulate_type(out.dtype())).work(work);
  if (addend.defined()) return launch.in(addend).run();
  launch.run_required();
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

Tensor multiply_batches(const Tensor& a, const Tensor& b, const char* op) {
  auto batch_of = [](const Tensor& t) { return t.sizes().first(t.sizes().size() - 2); };
  Dims a_sizes = broadcast_sizes(batch_of(a), batch_of(b), op), b_sizes = a_sizes, out_sizes = a_sizes;
  int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  for (auto [sizes, rows, cols] : {std::tuple{&a_sizes, m, k}, {&b_sizes, k, n}, {&out_sizes, m, n}}) {
    sizes->push_back(rows);
    sizes->push_back(cols);
  }
  Tensor out = empty_tensor(out_sizes, a.dtype(), a.device());
  launch_matmul(out, raw_expand(a, a_sizes, op), raw_expand(b, b_sizes, op));
  return out;
}

} // namespace

void launch_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& add) {
  if (out.numel() == 0) return;
  if (a.numel() == 0 || b.numel() == 0)
    return add.defined() ? raw_copy(out, raw_expand(add, out.sizes(), "matmul")) : raw_fill(out, 0);
  int64_t work = work_of(out, a.sizes().back());
  if (add.defined()) {
    Tensor addend = raw_expand(add, out.sizes(), "matmul");
    if (product(out, a, b, addend, work)) return;
    product(out, a, b, {}, work);
    ops::add_(out, addend);
    return;
  }
  product(out, a, b, {}, work);
}

Tensor multiply_matrices(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK(a.ndim() == 2 && b.ndim() == 2, op, ": expected two matrices, got shapes ", a.sizes(), " and ", b.sizes());
  check_same_dtype(a, b, op);
  IntSpan x = a.sizes(), y = b.sizes();
  TS_CHECK(x[1] == y[0], op, ": mat1 and mat2 shapes cannot be multiplied (", x[0], "x", x[1], " and ", y[0], "x", y[1],
           ")");
  int64_t sizes[] = {x[0], y[1]};
  Tensor out = empty_tensor(sizes, a.dtype(), a.device());
  launch_matmul(out, a, b);
  return out;
}

Tensor multiply(const Tensor& a, const Tensor& b, const char* op) {
  if (a.ndim() == 2 && b.ndim() == 2) return multiply_matrices(a, b, op);
  TS_CHECK(a.ndim() > 0 && b.ndim() > 0, op, ": both arguments need to be at least 1D, but they are ", a.ndim(),
           "D and ", b.ndim(), "D");
  check_same_dtype(a, b, op);
  bool row = a.ndim() == 1, column = b.ndim() == 1;
  int64_t row_sizes[] = {1, a.numel()}, column_sizes[] = {b.numel(), 1};
  int64_t row_strides[] = {0, a.strides().back()}, column_strides[] = {b.strides().back(), 0};
  Tensor x = row ? as_matrix(a, row_sizes, row_strides) : a;
  Tensor y = column ? as_matrix(b, column_sizes, column_strides) : b;
  TS_CHECK(x.size(-1) == y.size(-2), op, ": mat1 and mat2 shapes cannot be multiplied: the inner sizes ", x.size(-1),
           " and ", y.size(-2), " of shapes ", a.sizes(), " and ", b.sizes(), " differ");
  Dims sizes = broadcast_sizes(x.sizes().first(x.sizes().size() - 2), y.sizes().first(y.sizes().size() - 2), op);
  if (!row) sizes.push_back(x.size(-2));
  if (!column) sizes.push_back(y.size(-1));
  // A stack of matrices times one matrix is one taller product.
  if (Tensor tall = y.ndim() == 2 && x.ndim() > 2 ? folded(x) : Tensor(); tall.defined())
    return reshaped(multiply_matrices(tall, y, op), sizes);
  Tensor out = x.ndim() == 2 && y.ndim() == 2 ? multiply_matrices(x, y, op) : multiply_batches(x, y, op);
  return reshaped(std::move(out), sizes);
}

} // namespace ts
