// Systems of linear equations by LU factors: solve, inv, and determinants.
#include "dispatch/launch.h"
#include "ops/copy.h"
#include "ops/declare.h"
#include "ops/lapack.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {

using namespace lapack;

namespace {
const KernelId kLu("lapack_lu"), kLuSolve("lapack_lu_solve");
const Op solve_matrices("_linalg_solve"), inv_ex_op("linalg_inv_ex"), lu_solve_op("linalg_lu_solve"),
    slogdet_op("_linalg_slogdet"), det_op("_linalg_det"), linalg_det_op("linalg_det"), svd_op("linalg_svd");
} // namespace

namespace lapack {

Factors factor(const Tensor& a) {
  IntSpan batch = batch_of(a);
  int64_t k = std::min(rows(a), cols(a));
  Factors f{columns_of(a), empty_tensor(with_batch(batch, {k}), DType::Int32, a.device()),
            zeros_int32(batch, a.device())};
  if (f.lu.numel()) Launch(kLu, a.device()).out(f.lu).out(f.pivots).out(f.info).work(a.numel() * k).run_required();
  return f;
}

Tensor solve_factored(const Factors& f, const Tensor& x, int64_t op) {
  if (x.numel())
    Launch(kLuSolve, x.device()).out(x).in(f.lu).in(f.pivots).param(op).work(x.numel() * x.size(-1)).run_required();
  return x;
}

Factors broadcast_factors(const Tensor& lu, const Tensor& pivots, IntSpan batch) {
  return {columns_of(lu, batch), contiguous_rows(pivots, with_batch(batch, {pivots.size(-1)})), {}};
}

void check_sides(const Tensor& a, const Tensor& b, bool left, const char* op) {
  TS_CHECK((left ? rows(b) : cols(b)) == rows(a), op, ": Incompatible shapes of A and B for the equation ",
           left ? "AX = B" : "XA = B", " (", rows(a), "x", cols(a), " and ", rows(b), "x", cols(b), ")");
}

} // namespace lapack

namespace {

using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

bool same_sizes(IntSpan a, IntSpan b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// --- solve

std::string solver_failed(int32_t) { return "The solver failed because the input matrix is singular."; }

// (X, LU, pivots, info) for matrices on both sides.
Four solve_factors(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
  const char* op = "linalg.solve";
  check_floating(a, op);
  check_square(a, op);
  check_matrix(b, op, "B");
  check_same(a, b, op);
  check_sides(a, b, left, op);
  Dims batch = broadcast_sizes(batch_of(a), batch_of(b), op);
  Factors f = factor(a);
  if (check_errors) check_info(f.info, op, solver_failed);
  Factors wide = same_sizes(batch, batch_of(a)) ? f : broadcast_factors(as_matrix(f.lu), f.pivots, batch);
  // X A = B is A^T X^T = B^T, and the columns of B^T lie one after another as they are.
  Tensor x = left ? as_matrix(solve_factored(wide, columns_of(b, batch), 0))
                  : solve_factored(wide, contiguous_rows(b, with_batch(batch, {rows(b), cols(b)})), 1);
  return {x, as_matrix(f.lu), f.pivots, f.info};
}

void solve_gradient(GradContext& c) {
  bool left = c.value<bool>(2);
  // Factors carry no gradient: where the gradient will be differentiated, A is factored again.
  Tensor gb = grad_enabled() ? solve_matrices.multi<4>(adjoint(c.arg(0)), c.grad(0), left, false)[0]
                             : lu_solve_op(c.result(1), c.result(2), c.grad(0), left, true);
  c.set(1, gb);
  if (!c.needs(0)) return;
  Tensor xh = adjoint(c.result(0));
  c.set(0, ops::neg(left ? ops::matmul(gb, xh) : ops::matmul(xh, gb)));
}

// B is a vector, or a batch of vectors that is no matrix beside A.
bool is_vector(const Tensor& a, const Tensor& b) {
  return b.ndim() == 1 || (a.ndim() == b.ndim() + 1 && same_sizes(a.sizes().first(b.sizes().size()), b.sizes()));
}

Pair solve_any(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
  check_matrix(a, "linalg.solve");
  bool vector = is_vector(a, b);
  TS_CHECK(left || !vector,
           "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
           "linalg.solve is equivalent to B / A.squeeze(-1)");
  auto found = solve_matrices.multi<4>(a, vector ? column(b) : b, left, check_errors);
  int64_t last[] = {-1};
  return {vector ? ops::squeeze(found[0], IntSpan(last)) : found[0], found[3]};
}
Pair solve_ex(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
  return solve_any(a, b, left, check_errors);
}
Tensor solve(const Tensor& a, const Tensor& b, bool left) { return std::get<0>(solve_any(a, b, left, true)); }

// --- inv

Pair inv_ex(const Tensor& a, bool check_errors) {
  const char* op = "linalg.inv";
  check_floating(a, op);
  check_square(a, op);
  Factors f = factor(a);
  if (check_errors) check_info(f.info, op, [](int32_t info) { return singular_matrix("the inversion", info); });
  return {as_matrix(solve_factored(f, identities(batch_of(a), rows(a), a), 0)), f.info};
}
void inv_gradient(GradContext& c) {
  Tensor xh = adjoint(c.result(0));
  c.set(0, ops::neg(ops::matmul(xh, ops::matmul(c.grad(0), xh))));
}
Tensor inv(const Tensor& a) { return inv_ex_op.multi<2>(a, true)[0]; }

// --- determinants

// 1, or -1 after an odd number of exchanges of rows.
Tensor parity(const Tensor& pivots, DType dtype) {
  Tensor own = ops::add(counting(pivots.size(-1), pivots.device()), 1);
  int64_t last[] = {-1};
  Tensor moved = ops::sum_dim(ops::ne(pivots, own), IntSpan(last));
  return raw_cast(ops::sub(1, ops::mul(ops::bitwise_and(moved, 1), 2)), dtype);
}

// Signs of numbers, directions of complex ones.
Tensor directions(const Tensor& x) {
  static const Op sgn("sgn");
  return is_complex(x.dtype()) ? sgn(x) : ops::sign(x);
}

Triple det_factors(const Tensor& a) {
  const char* op = "linalg.det";
  check_floating(a, op);
  check_square(a, op);
  Factors f = factor(a);
  Tensor lu = as_matrix(f.lu);
  return {ops::mul(ops::prod_dim(diagonal_of(lu), int64_t{-1}), parity(f.pivots, a.dtype())), lu, f.pivots};
}

// For each element along the last dim the product of the others.
Tensor products_of_others(const Tensor& d) {
  Tensor own = ops::to_dtype(identity(d.size(-1), d), DType::Bool);
  Tensor all = ops::expand(row(d), with_batch(d.sizes(), {d.size(-1)}));
  return ops::prod_dim(ops::masked_fill(all, own, 1), int64_t{-1});
}

bool any_zero(const Tensor& t) { return !t.device().is_meta() && raw_truth(ops::any(ops::eq(ops::detach(t), 0))); }

// conj(det) A^-H; where det is 0 the same is found from singular values, as the adjugate.
void det_gradient(GradContext& c) {
  Tensor a = c.arg(0), g = c.grad(0);
  if (a.numel() == 0) return c.set(0, ops::zeros_like(a));
  if (any_zero(c.result(0))) {
    auto [u, s, vh] = svd_op.multi<3>(a, false);
    Tensor turn = ops::mul(g, conjugate(ops::mul(linalg_det_op(u), linalg_det_op(vh))));
    Tensor scale = ops::mul(column(turn), products_of_others(s));
    return c.set(0, ops::matmul(u, ops::mul(column(scale), vh)));
  }
  Tensor d = column(column(ops::mul(g, conjugate(c.result(0))))), scaled = ops::mul(identity(rows(a), a), d);
  c.set(0, grad_enabled() ? solve_matrices.multi<4>(adjoint(a), scaled, true, false)[0]
                          : lu_solve_op(c.result(1), c.result(2), scaled, true, true));
}
Tensor det(const Tensor& a) { return det_op.multi<3>(a)[0]; }

Four slogdet_factors(const Tensor& a) {
  const char* op = "linalg.slogdet";
  check_floating(a, op);
  check_square(a, op);
  Factors f = factor(a);
  Tensor lu = as_matrix(f.lu), d = diagonal_of(lu);
  int64_t last[] = {-1};
  Tensor sign = ops::mul(ops::prod_dim(directions(d), int64_t{-1}), parity(f.pivots, a.dtype()));
  return {sign, ops::sum_dim(ops::log(ops::abs(d)), IntSpan(last)), lu, f.pivots};
}
void slogdet_gradient(GradContext& c) {
  Tensor a = c.arg(0), g = c.grad(1);
  if (is_complex(a.dtype())) {
    // The sign turns with the imaginary part of log(det).
    Tensor turn = ops::mul(conjugate(c.grad(0)), c.result(0));
    g = ops::sub(g, ops::mul(ops::sub(turn, conjugate(turn)), 0.5));
  }
  Tensor scaled = ops::mul(identity(rows(a), a), column(column(g)));
  c.set(0, grad_enabled() ? solve_matrices.multi<4>(adjoint(a), scaled, true, false)[0]
                          : lu_solve_op(c.result(2), c.result(3), scaled, true, true));
}
Pair slogdet(const Tensor& a) {
  auto found = slogdet_op.multi<4>(a);
  return {found[0], found[1]};
}
// NaN for a negative determinant.
Tensor logdet(const Tensor& a) {
  auto found = slogdet_op.multi<4>(a);
  if (is_complex(a.dtype())) return ops::add(found[1], ops::log(found[0]));
  return ops::where(ops::eq(found[0], -1), NAN, found[1]);
}

} // namespace

TS_OPERATORS(linalg_solve) {
  def("_linalg_solve(Tensor A, Tensor B, bool left=True, bool check_errors=False) -> (Tensor result, Tensor LU, Tensor "
      "pivots, Tensor info)")
      .body<solve_factors>()
      .saves("A result result1 result2")
      .gradient(solve_gradient)
      .hidden()
      .doc("X of A X = B (or X A = B) for matrices, and the factors of A.");
  def("linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)")
      .body<solve_ex>()
      .out()
      .hidden()
      .in("linalg")
      .doc("As solve, with info instead of an error: 0, or the first diagonal element of U that is zero, from 1.");
  def("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor")
      .body<solve>()
      .out()
      .hidden()
      .in("linalg")
      .doc("X of A X = B, or of X A = B, for square A (..., n, n); B is (..., n, k), or vectors (..., n). LinAlgError "
           "if A is singular.");
  def("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)")
      .body<inv_ex>()
      .saves("result")
      .gradient(inv_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("As inv, with info instead of an error: 0, or the first diagonal element of U that is zero, from 1.");
  for (const char* schema : {"linalg_inv(Tensor A) -> Tensor", "inverse(Tensor self) -> Tensor"}) {
    Def d = def(schema);
    d.body<inv>().out().doc("The inverse of square matrices (..., n, n). LinAlgError if one is singular.");
    if (schema[0] == 'l') d.hidden().in("linalg");
  }
  def("_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)")
      .body<det_factors>()
      .saves("A result result1 result2")
      .gradient(det_gradient)
      .hidden()
      .doc("Determinants, and the factors of A.");
  for (const char* schema : {"linalg_det(Tensor A) -> Tensor", "det(Tensor self) -> Tensor"}) {
    Def d = def(schema);
    d.body<det>().doc("Determinants of square matrices (..., n, n).");
    if (schema[0] == 'l') d.out().hidden().in("linalg");
  }
  def("_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)")
      .body<slogdet_factors>()
      .saves("A result result2 result3")
      .gradient(slogdet_gradient)
      .hidden()
      .doc("Signs and logarithms of determinants, and the factors of A.");
  for (const char* schema : {"linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
                             "slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)"}) {
    Def d = def(schema);
    d.body<slogdet>().out().doc(
        "Sign and logarithm of the magnitude of determinants; 0 and -inf of singular matrices.");
    if (schema[0] == 'l') d.hidden().in("linalg");
  }
  def("logdet(Tensor self) -> Tensor").body<logdet>().doc("Logarithm of determinants; NaN of negative ones.");
}

} // namespace ts
