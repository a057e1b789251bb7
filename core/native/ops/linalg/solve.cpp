// Systems of linear equations by LU factors: solve, inv, and determinants.
#include "dispatch/launch.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/linalg/lapack.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kSolveCode = "a factorisation in place, with workspace and status";
const KernelId kLu("lapack_lu"), kLuSolve("lapack_lu_solve");
const Op solve_matrices("_linalg_solve"), inv_ex_op("linalg_inv_ex"), lu_solve_op("linalg_lu_solve"),
    slogdet_op("_linalg_slogdet"), det_op("_linalg_det"), linalg_det_op("linalg_det"), solve_svd_op("linalg_svd");
} // namespace

namespace lapack {

Factors factor(const Tensor& a) {
  Dims pivots = with_batch(batch_of(a), {std::min(rows(a), cols(a))});
  Factors f{columns(batch_of(a), rows(a), cols(a), a.dtype(), a.device()),
            empty_tensor(pivots, DType::Int32, a.device()), empty_tensor(batch_of(a), DType::Int32, a.device())};
  factor_into(f, a);
  return f;
}

void factor_into(const Factors& f, const Tensor& a) {
  if (f.info.numel()) raw_fill(f.info, Scalar(0));
  if (!a.numel()) return;
  raw_copy(as_matrix(f.lu), a);
  int64_t work = a.numel() * std::min(rows(a), cols(a));
  Launch(kLu, a.device()).out(f.lu).out(f.pivots).out(f.info).work(work).run_required();
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

// Outlines of A's factors.
struct FactorOutlines {
  Tensor lu, pivots, info;
  explicit FactorOutlines(const Tensor& a)
      : lu(outline_columns(batch_of(a), rows(a), cols(a), a.dtype(), a.device())),
        pivots(outline(with_batch(batch_of(a), {std::min(rows(a), cols(a))}), DType::Int32, a.device())),
        info(outline(batch_of(a), DType::Int32, a.device())) {}
};

// (X, LU, pivots, info) for matrices on both sides. X A = B is A^T X^T = B^T, and the columns of B^T lie one after
// another as they are.
Four solve_rule(const Tensor& a, const Tensor& b, bool left, bool) {
  const char* op = "linalg.solve";
  check_floating(a, op);
  check_square(a, op);
  check_matrix(b, op, "B");
  check_same(a, b, op);
  check_sides(a, b, left, op);
  Dims batch = broadcast_sizes(batch_of(a), batch_of(b), op);
  Tensor x = left ? outline_columns(batch, rows(b), cols(b), b.dtype(), b.device())
                  : outline(with_batch(batch, {rows(b), cols(b)}), b.dtype(), b.device());
  FactorOutlines f(a);
  return {x, f.lu, f.pivots, f.info};
}
void solve_factors(const Tensor& x, const Tensor& lu, const Tensor& pivots, const Tensor& info, const Tensor& a,
                   const Tensor& b, bool left, bool check_errors) {
  Factors f{memory_of(lu), pivots, info};
  factor_into(f, a);
  if (check_errors) check_info(info, "linalg.solve", solver_failed);
  if (x.numel() == 0) return;
  copy_broadcast(x, b);
  Factors wide = same(batch_of(x), batch_of(a)) ? f : broadcast_factors(lu, pivots, batch_of(x));
  solve_factored(wide, left ? memory_of(x) : x, left ? 0 : 1);
}

void solve_gradient(GradContext& c) {
  bool left = c.value<bool>(2);
  // Factors carry no gradient: where the gradient will be differentiated, A is factored again.
  Tensor gb = c.is_recorded() ? solve_matrices.multi<4>(adjoint(c.arg(0)), c.grad(0), left, false)[0]
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

Pair inv_ex_rule(const Tensor& a, bool) {
  check_floating(a, "linalg.inv");
  check_square(a, "linalg.inv");
  FactorOutlines f(a);
  return {f.lu, f.info};
}
void inv_ex(const Tensor& out, const Tensor& info, const Tensor& a, bool check_errors) {
  Factors f{columns(batch_of(a), rows(a), rows(a), a.dtype(), a.device()),
            empty_tensor(with_batch(batch_of(a), {rows(a)}), DType::Int32, a.device()), info};
  factor_into(f, a);
  if (check_errors) check_info(info, "linalg.inv", [](int32_t k) { return singular_matrix("the inversion", k); });
  if (out.numel() == 0) return;
  copy_broadcast(out, identity(rows(a), a));
  solve_factored(f, memory_of(out), 0);
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

Triple det_rule(const Tensor& a) {
  check_floating(a, "linalg.det");
  check_square(a, "linalg.det");
  FactorOutlines f(a);
  return {outline(batch_of(a), a.dtype(), a.device()), f.lu, f.pivots};
}
void det_factors(const Tensor& det, const Tensor& lu, const Tensor& pivots, const Tensor& a) {
  static const Op multiply_into("mul.out");
  factor_into({memory_of(lu), pivots, empty_tensor(batch_of(a), DType::Int32, a.device())}, a);
  multiply_into(ops::prod_dim(diagonal_of(lu), int64_t{-1}), parity(pivots, a.dtype()), det);
}

// For each element along the last dim the product of the others.
Tensor products_of_others(const Tensor& d) {
  Tensor own = ops::to_dtype(identity(d.size(-1), d), DType::Bool);
  Tensor all = ops::expand(row(d), with_batch(d.sizes(), {d.size(-1)}));
  return ops::prod_dim(ops::masked_fill(all, own, 1), int64_t{-1});
}

bool any_zero(const Tensor& t) { return !t.device().is_meta() && raw_truth(ops::any(ops::eq(ops::detach(t), 0))); }

// Of each element of (..., n, n) the matrix without its row and column: (..., n, n, n - 1, n - 1).
Tensor minors(const Tensor& a) {
  const int64_t n = rows(a), ndim = a.ndim();
  std::vector<int64_t> others;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      if (j != i) others.push_back(j);
  Tensor at = from_host(others, a.device());
  Dims sizes(a.sizes().first(static_cast<size_t>(ndim - 2))), order;
  for (int64_t d = 0; d < ndim - 2; ++d) order.push_back(d);
  for (int64_t size : {n, n - 1, n, n - 1}) sizes.push_back(size);
  for (int64_t d : {ndim - 2, ndim, ndim - 1, ndim + 1}) order.push_back(d);
  Tensor picked = ops::index_select(ops::index_select(a, int64_t{-2}, at), int64_t{-1}, at);
  return ops::contiguous(ops::permute(ops::reshape(picked, sizes), order));
}
Tensor cofactors(const Tensor& a) {
  const int64_t n = rows(a);
  std::vector<double> signs;
  for (int64_t k = 0; k < n * n; ++k) signs.push_back((k / n + k % n) % 2 ? -1 : 1);
  Tensor sign = ops::reshape(raw_vector(signs, real_type(a.dtype()), a.device()), Dims{n, n});
  return ops::mul(linalg_det_op(minors(a)), sign);
}
constexpr int64_t kMinors = 32; // of n^2 matrices the determinants are taken

// conj(det) A^-H; where det is 0 the same is found from singular values, as the adjugate.
void det_gradient(GradContext& c) {
  Tensor a = c.arg(0), g = c.grad(0);
  if (a.numel() == 0) return c.set(0, ops::zeros_like(a));
  if (any_zero(c.result(0))) {
    // Derivatives of singular values have none where these are equal: those of minors are there.
    if (c.is_recorded() && rows(a) <= kMinors) return c.set(0, ops::mul(column(column(g)), conjugate(cofactors(a))));
    auto [u, s, vh] = solve_svd_op.multi<3>(a, false);
    Tensor turn = ops::mul(g, conjugate(ops::mul(linalg_det_op(u), linalg_det_op(vh))));
    Tensor scale = ops::mul(column(turn), products_of_others(s));
    return c.set(0, ops::matmul(u, ops::mul(column(scale), vh)));
  }
  Tensor d = column(column(ops::mul(g, conjugate(c.result(0))))), scaled = ops::mul(identity(rows(a), a), d);
  c.set(0, c.is_recorded() ? solve_matrices.multi<4>(adjoint(a), scaled, true, false)[0]
                           : lu_solve_op(c.result(1), c.result(2), scaled, true, true));
}
Tensor det(const Tensor& a) { return det_op.multi<3>(a)[0]; }

Four slogdet_rule(const Tensor& a) {
  check_floating(a, "linalg.slogdet");
  check_square(a, "linalg.slogdet");
  FactorOutlines f(a);
  return {outline(batch_of(a), a.dtype(), a.device()), outline(batch_of(a), real_dtype(a.dtype()), a.device()), f.lu,
          f.pivots};
}
void slogdet_factors(const Tensor& sign, const Tensor& logabsdet, const Tensor& lu, const Tensor& pivots,
                     const Tensor& a) {
  static const Op multiply_into("mul.out");
  factor_into({memory_of(lu), pivots, empty_tensor(batch_of(a), DType::Int32, a.device())}, a);
  Tensor d = diagonal_of(lu);
  multiply_into(ops::prod_dim(directions(d), int64_t{-1}), parity(pivots, a.dtype()), sign);
  int64_t last[] = {-1};
  raw_copy(logabsdet, ops::sum_dim(ops::log(ops::abs(d)), IntSpan(last)));
}
void slogdet_gradient(GradContext& c) {
  Tensor a = c.arg(0), g = c.grad(1);
  if (is_complex(a.dtype())) {
    // The sign turns with the imaginary part of log(det).
    Tensor turn = ops::mul(conjugate(c.grad(0)), c.result(0));
    g = ops::sub(g, ops::mul(ops::sub(turn, conjugate(turn)), 0.5));
  }
  Tensor scaled = ops::mul(identity(rows(a), a), column(column(g)));
  c.set(0, c.is_recorded() ? solve_matrices.multi<4>(adjoint(a), scaled, true, false)[0]
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
      .rule<solve_rule>()
      .computation<solve_factors, 4>(kSolveCode)
      .reads_host()
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
      .facts("autocast:float32/-")
      .body<solve>()
      .out(kSameDtype)
      .hidden()
      .in("linalg")
      .doc("X of A X = B, or of X A = B, for square A (..., n, n); B is (..., n, k), or vectors (..., n). LinAlgError "
           "if A is singular.");
  def("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)")
      .facts("stored:none autocast:float32/-")
      .rule<inv_ex_rule>()
      .computation<inv_ex, 2>(kSolveCode)
      .reads_host()
      .saves("result")
      .gradient(inv_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("As inv, with info instead of an error: 0, or the first diagonal element of U that is zero, from 1.");
  for (const char* schema : {"linalg_inv(Tensor A) -> Tensor", "inverse(Tensor self) -> Tensor"}) {
    Def d = def(schema);
    d.body<inv>()
        .facts("stored:none autocast:float32/-")
        .out(schema[0] == 'l' ? kSameDtype : 0)
        .doc("The inverse of square matrices (..., n, n). LinAlgError if one is singular.");
    if (schema[0] == 'l') d.hidden().in("linalg");
  }
  def("_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)")
      .rule<det_rule>()
      .computation<det_factors, 3>(kSolveCode)
      .saves("A result result1 result2")
      .gradient(det_gradient)
      .hidden()
      .doc("Determinants, and the factors of A.");
  for (const char* schema : {"linalg_det(Tensor A) -> Tensor", "det(Tensor self) -> Tensor"}) {
    Def d = def(schema);
    d.body<det>().doc("Determinants of square matrices (..., n, n).");
    if (schema[0] == 'l') d.out(kSameDtype).hidden().in("linalg");
  }
  def("_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)")
      .rule<slogdet_rule>()
      .computation<slogdet_factors, 4>(kSolveCode)
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
