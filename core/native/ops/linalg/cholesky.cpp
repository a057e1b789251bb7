// Factors of symmetric matrices and solving with them: Cholesky and LDL.
#include "dispatch/launch.h"
#include "ops/common/arguments.h"
#include "ops/common/declare.h"
#include "ops/common/no_gradient.h"
#include "ops/common/raw.h"
#include "ops/linalg/lapack.h"
#include "runtime/warn_once.h"
#include "tensor/geometry.h"

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kCholeskyCode = "a factorisation in place, with workspace and status";

using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

const KernelId kCholesky("lapack_cholesky"), kCholeskySolve("lapack_cholesky_solve"), kLdl("lapack_ldl"),
    kLdlSolve("lapack_ldl_solve");
const Op cholesky_triangular("_linalg_solve_triangular"), cholesky_ex_op("linalg_cholesky_ex"),
    ldl_factor_ex_op("linalg_ldl_factor_ex"), cholesky_left("_cholesky_solve");

// --- Cholesky

Pair cholesky_ex_rule(const Tensor& self, bool, bool) {
  const char* op = "linalg.cholesky";
  check_floating(self, op);
  check_square(self, op);
  IntSpan batch = batch_of(self);
  return {outline_columns(batch, rows(self), rows(self), self.dtype(), self.device()),
          outline(batch, DType::Int32, self.device())};
}
void cholesky_ex(const Tensor& out, const Tensor& info, const Tensor& self, bool up, bool check_errors) {
  static const Op keep_lower("tril_"), keep_upper("triu_");
  raw_copy(out, self);
  raw_fill(info, Scalar(0));
  if (out.numel())
    Launch(kCholesky, self.device())
        .out(memory_of(out))
        .out(info)
        .param(up)
        .work(out.numel() * rows(self))
        .run_required();
  if (check_errors) check_info(info, "linalg.cholesky", not_definite);
  (up ? keep_lower : keep_upper)(memory_of(out)); // rows there are columns here
}

// With A = L L^H and P = tril(L^H gL) of halved diagonal, gA = L^-H (P + P^H) / 2 L^-1.
void cholesky_gradient(GradContext& c) {
  bool up = c.value<bool>(1);
  Tensor l = up ? adjoint(c.result(0)) : c.result(0), g = up ? adjoint(c.grad(0)) : c.grad(0);
  Tensor p = lower(ops::matmul(adjoint(l), g));
  p = ops::sub(p, ops::mul(diagonal_matrix(real_part(diagonal_of(p))), 0.5));
  Tensor middle = ops::mul(ops::add(p, adjoint(p)), 0.5);
  Tensor lh = adjoint(l), right = cholesky_triangular(lh, middle, true, false);
  Tensor g_full = adjoint(cholesky_triangular(lh, adjoint(right), true, false));
  c.set(0, g_full);
}

Tensor cholesky(const Tensor& self, bool up) { return cholesky_ex_op.multi<2>(self, up, true)[0]; }
Tensor cholesky_old(const Tensor& self, bool up) {
  static std::atomic<bool> warned{false};
  warn_once(warned, "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future "
                    "PyTorch release.");
  return cholesky(self, up);
}

Tensor cholesky_solve_rule(const Tensor& b, const Tensor& factor, bool) {
  const char* op = "cholesky_solve";
  check_floating(factor, op);
  check_square(factor, op, "A");
  check_matrix(b, op, "b");
  check_same(factor, b, op);
  check_sides(factor, b, true, op);
  return outline_columns(broadcast_sizes(batch_of(factor), batch_of(b), op), rows(b), cols(b), b.dtype(), b.device());
}
void cholesky_solve_left(const Tensor& out, const Tensor& b, const Tensor& factor, bool up) {
  copy_broadcast(out, b);
  Launch(kCholeskySolve, b.device())
      .out(memory_of(out))
      .in(columns_of(factor, batch_of(out)))
      .param(up)
      .work(out.numel() * rows(factor))
      .run_required();
}

// A = L L^H, so that gL = -(gA + gA^H) L, of gA = -gB X^H.
void cholesky_solve_gradient(GradContext& c) {
  bool up = c.value<bool>(2);
  Tensor factor = c.arg(1), gb = cholesky_left(c.grad(), factor, up);
  c.set(0, gb);
  if (!c.needs(1)) return;
  Tensor half = ops::matmul(gb, adjoint(c.result())), whole = ops::neg(ops::add(half, adjoint(half)));
  // Of all entries, though one triangle is read: as PyTorch, whose factorisation takes what counts.
  c.set(1, up ? ops::matmul(factor, whole) : ops::matmul(whole, factor));
}

Tensor cholesky_solve(const Tensor& b, const Tensor& factor, bool up) { return cholesky_left(b, factor, up); }

Tensor cholesky_inverse_rule(const Tensor& factor, bool) {
  check_floating(factor, "cholesky_inverse");
  check_square(factor, "cholesky_inverse");
  return outline_columns(batch_of(factor), rows(factor), rows(factor), factor.dtype(), factor.device());
}
// LinAlgError of the first factor whose diagonal has a zero: it has no inverse.
void refuse_zeros_on_the_diagonal(const Tensor& factor) {
  Tensor zero = ops::eq(diagonal_of(factor), 0);
  if (!raw_truth(ops::any(zero))) return;
  Tensor marks = ops::to_dtype(zero, DType::Int32), first = ops::add(ops::argmax(marks, int64_t{-1}), 1);
  check_info(ops::to_dtype(ops::mul(first, ops::amax(marks, IntSpan(Dims{-1}), false)), DType::Int32),
             "cholesky_inverse", [](int32_t k) { return singular_matrix("the inversion", k); });
}
void cholesky_inverse(const Tensor& out, const Tensor& factor, bool up) {
  if (out.numel() == 0) return;
  refuse_zeros_on_the_diagonal(factor);
  cholesky_solve_left(out, identities(batch_of(factor), rows(factor), factor), factor, up);
}
// As above, of gA = -A^-H g A^-H.
void cholesky_inverse_gradient(GradContext& c) {
  Tensor inverse = c.result(), half = ops::matmul(ops::matmul(inverse, c.grad()), inverse);
  Tensor whole = ops::neg(ops::add(half, adjoint(half)));
  c.set(0, c.value<bool>(1) ? ops::matmul(c.arg(0), whole) : ops::matmul(whole, c.arg(0)));
}

// --- LDL

Triple ldl_factor_ex_rule(const Tensor& self, bool, bool) {
  const char* op = "linalg.ldl_factor_ex";
  check_floating(self, op);
  check_square(self, op);
  IntSpan batch = batch_of(self);
  return {outline_columns(batch, rows(self), rows(self), self.dtype(), self.device()),
          outline(with_batch(batch, {rows(self)}), DType::Int32, self.device()),
          outline(batch, DType::Int32, self.device())};
}
void ldl_factor_ex(const Tensor& ld, const Tensor& pivots, const Tensor& info, const Tensor& self, bool hermitian,
                   bool check_errors) {
  static const Op keep_lower("tril_");
  raw_copy(ld, self);
  raw_fill(info, Scalar(0));
  if (ld.numel())
    Launch(kLdl, self.device())
        .out(memory_of(ld))
        .out(pivots)
        .out(info)
        .param(hermitian)
        .work(ld.numel() * rows(self))
        .run_required();
  if (check_errors)
    check_info(info, "linalg.ldl_factor_ex", [](int32_t k) {
      return concat("The factorization could not be completed because the diagonal block of order ", k,
                    " is singular.");
    });
  keep_lower(ld);
}
Pair ldl_factor(const Tensor& self, bool hermitian) {
  auto found = ldl_factor_ex_op.multi<3>(self, hermitian, true);
  return {found[0], found[1]};
}
Tensor ldl_solve_rule(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool) {
  const char* op = "linalg.ldl_solve";
  check_floating(ld, op);
  check_square(ld, op, "LD");
  check_matrix(b, op, "B");
  check_same(ld, b, op);
  check_sides(ld, b, true, op);
  TS_CHECK(pivots.dtype() == DType::Int32 && same(ld.sizes().first(ld.sizes().size() - 1), pivots.sizes()), op,
           ": Expected pivots of int32, one for each row, got ", pivots.dtype(), " of sizes ", pivots.sizes());
  check_same_device(ld, pivots, op);
  return outline_columns(broadcast_sizes(batch_of(ld), batch_of(b), op), rows(b), cols(b), b.dtype(), b.device());
}
void ldl_solve(const Tensor& out, const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian) {
  IntSpan batch = batch_of(out);
  copy_broadcast(out, b);
  Launch(kLdlSolve, b.device())
      .out(memory_of(out))
      .in(columns_of(ld, batch))
      .in(contiguous_rows(pivots, with_batch(batch, {rows(ld)})))
      .param(hermitian)
      .work(out.numel() * rows(ld))
      .run_required();
}
void declare_cholesky() {
  constexpr const char* kDoc = "L of A = L L^H (or U of A = U^H U) of positive-definite matrices (..., n, n), of which "
                               "one triangle is read. LinAlgError if one is not positive-definite.";
  def("linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)")
      .facts("autocast:float32/-")
      .rule<cholesky_ex_rule>()
      .computation<cholesky_ex, 2>(kCholeskyCode)
      .reads_host()
      .saves("result")
      .gradient(cholesky_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("As cholesky, with info instead of an error: 0, or the order of the first minor that is not positive.");
  def("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor")
      .facts("autocast:float32/-")
      .body<cholesky>()
      .out(kSameDtype)
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("cholesky(Tensor self, bool upper=False) -> Tensor")
      .facts("leaf autocast:float32/-")
      .body<cholesky_old>()
      .out()
      .doc(kDoc);
  def("_cholesky_solve(Tensor self, Tensor input2, bool upper) -> Tensor")
      .rule<cholesky_solve_rule>()
      .computation<cholesky_solve_left>(kCholeskyCode)
      .saves("input2 result")
      .gradient(cholesky_solve_gradient)
      .hidden()
      .doc("X of A X = self.");
  def("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor")
      .facts("leaf stored:none autocast:float32/-")
      .body<cholesky_solve>()
      .out()
      .doc("X of A X = self, from the Cholesky factor input2 of A.");
  def("cholesky_inverse(Tensor self, bool upper=False) -> Tensor")
      .facts("stored:none autocast:float32/-")
      .rule<cholesky_inverse_rule>()
      .computation<cholesky_inverse>(kCholeskyCode)
      .reads_host()
      .saves("self result")
      .gradient(cholesky_inverse_gradient)
      .out()
      .doc("The inverse of A, from its Cholesky factor. LinAlgError if the factor's diagonal has a zero.");
}

void declare_ldl() {
  def("linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, Tensor "
      "pivots, "
      "Tensor info)")
      .rule<ldl_factor_ex_rule>()
      .computation<ldl_factor_ex, 3>(kCholeskyCode)
      .reads_host()
      .gradient(no_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("As ldl_factor, with info instead of an error.");
  def("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)")
      .body<ldl_factor>()
      .out()
      .hidden()
      .in("linalg")
      .doc("L and the blocks of D of A = L D L^T (L D L^H if hermitian), symmetric (..., n, n), for ldl_solve (Bunch "
           "and "
           "Kaufman, 1977).");
  def("linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor")
      .rule<ldl_solve_rule>()
      .computation<ldl_solve>(kCholeskyCode)
      .gradient(no_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("X of A X = B from ldl_factor's results of A.");
}

} // namespace

TS_OPERATORS(linalg_cholesky) {
  declare_cholesky();
  declare_ldl();
}

} // namespace ts
