// Factors of any matrix and solving with them: LU and triangular systems.
#include "dispatch/launch.h"
#include "ops/common/arguments.h"
#include "ops/common/declare.h"
#include "ops/linalg/lapack.h"
#include "runtime/warn_once.h"
#include "tensor/geometry.h"

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kLuCode = "a factorisation in place, with workspace and status";

using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

const KernelId kTriangular("lapack_triangular_solve"), kPermutation("lapack_permutation");
const Op lu_triangular("_linalg_solve_triangular"), lu_factor_ex_op("linalg_lu_factor_ex"), lu_left("_linalg_lu_solve"),
    lu_unpack_op("lu_unpack"), permutation_op("_lu_permutation");

// --- triangular systems

// X of A X = B. A's other triangle is not read.
Tensor solve_triangular_rule(const Tensor& a, const Tensor& b, bool, bool) {
  const char* op = "linalg.solve_triangular";
  check_floating(a, op);
  check_square(a, op);
  check_matrix(b, op, "B");
  check_same(a, b, op);
  check_sides(a, b, true, op);
  return outline_columns(broadcast_sizes(batch_of(a), batch_of(b), op), rows(b), cols(b), b.dtype(), b.device());
}
void solve_triangular(const Tensor& out, const Tensor& a, const Tensor& b, bool upper, bool unit) {
  copy_broadcast(out, b);
  // Rows that lie one after another are the columns of the transposed.
  Tensor wide = raw_expand(a, with_batch(batch_of(out), {rows(a), rows(a)}), "linalg.solve_triangular");
  bool by_rows = wide.is_contiguous();
  Launch(kTriangular, a.device())
      .out(memory_of(out))
      .in(by_rows ? wide : raw_contiguous(memory_of(wide)))
      .param(by_rows != upper)
      .param(int64_t{by_rows})
      .param(unit)
      .work(out.numel() * rows(a))
      .run_required();
}

void triangular_gradient(GradContext& c) {
  bool up = c.value<bool>(2), unit = c.value<bool>(3);
  Tensor gb = lu_triangular(adjoint(c.arg(0)), c.grad(), !up, unit);
  c.set(1, gb);
  if (!c.needs(0)) return;
  Tensor ga = ops::neg(ops::matmul(gb, adjoint(c.result())));
  c.set(0, up ? upper(ga, unit ? 1 : 0) : lower(ga, unit ? -1 : 0));
}

// X A = B is A^T X^T = B^T.
Tensor solve_triangular_any(const Tensor& a, const Tensor& b, bool upper, bool left, bool unit) {
  if (left) return lu_triangular(a, b, upper, unit);
  check_matrix(a, "linalg.solve_triangular"), check_matrix(b, "linalg.solve_triangular", "B");
  check_square(a, "linalg.solve_triangular"), check_sides(a, b, false, "linalg.solve_triangular");
  return transposed(lu_triangular(transposed(a), transposed(b), !upper, unit));
}

Pair triangular_solve(const Tensor& b, const Tensor& a, bool upper, bool transpose, bool unit) {
  static std::atomic<bool> warned{false};
  warn_once(warned,
            "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular and will be removed "
            "in a future PyTorch release.");
  check_matrix(a, "triangular_solve"), check_matrix(b, "triangular_solve", "b");
  Tensor x = lu_triangular(transpose ? transposed(a) : a, b, upper != transpose, unit);
  return {x, ops::clone(a)};
}

// --- LU

Triple lu_factor_ex_rule(const Tensor& a, bool pivot, bool) {
  const char* op = "linalg.lu_factor";
  check_floating(a, op);
  check_matrix(a, op);
  TS_CHECK(pivot, op, ": expected pivot=True; LU without pivoting is not implemented");
  IntSpan batch = batch_of(a);
  return {outline_columns(batch, rows(a), cols(a), a.dtype(), a.device()),
          outline(with_batch(batch, {std::min(rows(a), cols(a))}), DType::Int32, a.device()),
          outline(batch, DType::Int32, a.device())};
}
void lu_factor_ex(const Tensor& lu, const Tensor& pivots, const Tensor& info, const Tensor& a, bool,
                  bool check_errors) {
  factor_into({memory_of(lu), pivots, info}, a);
  if (check_errors)
    check_info(info, "linalg.lu_factor_ex", [](int32_t k) { return concat("U[", k, ",", k, "] is zero."); });
}

// X of X U^H = B, which is conj(U) X^T = B^T.
Tensor over_adjoint(const Tensor& u, const Tensor& b) {
  return transposed(lu_triangular(conjugate(u), transposed(b), true, false));
}

// With A = P L U square, P^T gA = L^-H (tril(L^H gL, -1) + triu(gU U^H)) U^-H.
// A wide matrix is P L [U1 U2], where U2 = L^-1 P^T A2; a tall one is P [L1; L2] U, where L2 = (P^T A)2 U^-1.
Tensor lu_gradient(const Tensor& lu, const Tensor& g) {
  int64_t m = rows(lu), n = cols(lu), k = std::min(m, n);
  Tensor first = slice(slice(lu, -2, 0, k), -1, 0, k);
  Tensor l = ops::add(lower(first, -1), identity(k, lu)), u = upper(first);
  Tensor inner = slice(slice(g, -2, 0, k), -1, 0, k), gl = lower(inner, -1), gu = upper(inner);
  auto square = [&](const Tensor& gl, const Tensor& gu) {
    Tensor middle = ops::add(lower(ops::matmul(adjoint(l), gl), -1), upper(ops::matmul(gu, adjoint(u))));
    return lu_triangular(adjoint(l), over_adjoint(u, middle), true, true);
  };
  if (m == n) return square(gl, gu);
  if (m < n) {
    Tensor u2 = slice(lu, -1, k, n), g2 = lu_triangular(adjoint(l), slice(g, -1, k, n), true, true);
    Tensor g1 = square(ops::sub(gl, ops::matmul(g2, adjoint(u2))), gu);
    return ops::cat(std::vector<Tensor>{g1, g2}, int64_t{-1});
  }
  Tensor l2 = slice(lu, -2, k, m), g2 = over_adjoint(u, slice(g, -2, k, m));
  Tensor g1 = square(gl, ops::sub(gu, ops::matmul(adjoint(l2), g2)));
  return ops::cat(std::vector<Tensor>{g1, g2}, int64_t{-2});
}

// Rows of P^T A back where they were in A.
Tensor unpermuted(const Tensor& pivots, const Tensor& a) {
  Tensor order = permutation_op(pivots, rows(a));
  return ops::scatter(ops::zeros_like(a), int64_t{-2}, ops::expand(column(order), a.sizes()), a);
}

void lu_factor_gradient(GradContext& c) {
  Tensor lu = c.result(0);
  if (lu.numel() == 0) return c.set(0, ops::zeros_like(lu));
  c.set(0, unpermuted(c.result(1), lu_gradient(lu, c.grad(0))));
}

Pair lu_factor(const Tensor& a, bool pivot) {
  auto found = lu_factor_ex_op.multi<3>(a, pivot, false);
  check_info(found[2], "linalg.lu_factor", [](int32_t k) {
    return concat("U[", k, ",", k,
                  "] is zero and using it on lu_solve would result in a division by zero. If you "
                  "still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
                  "linalg.lu_factor_ex(A, pivot)");
  });
  return {found[0], found[1]};
}

// (..., m): row i of the permuted matrix is row [i] of the other.
Tensor permutation_rule(const Tensor& pivots, int64_t m) {
  const char* op = "lu_unpack";
  TS_CHECK(pivots.dtype() == DType::Int32, op, ": LU_pivots is expected to be a contiguous tensor of dtype int32, got ",
           pivots.dtype());
  TS_CHECK(pivots.ndim() >= 1 && m >= 0 && pivots.size(-1) <= m, op, ": expected no more pivots than rows, got sizes ",
           pivots.sizes(), " for ", m, " rows");
  return outline(with_batch(batch_of(pivots, 1), {m}), DType::Int64, pivots.device());
}
void permutation(const Tensor& order, const Tensor& pivots, int64_t) {
  Launch(kPermutation, pivots.device()).out(order).in(raw_contiguous(pivots)).run_required();
}

Triple lu_unpack(const Tensor& lu, const Tensor& pivots, bool unpack_data, bool unpack_pivots) {
  const char* op = "lu_unpack";
  check_matrix(lu, op, "LU_data");
  Tensor none = ops::zeros(Dims{0}, lu.dtype(), lu.device()), p = none, l = none, u = none;
  int64_t m = rows(lu), n = cols(lu), k = std::min(m, n);
  if (unpack_pivots) {
    TS_CHECK(pivots.dtype() == DType::Int32, op,
             ": LU_pivots is expected to be a contiguous tensor of int32 dtype. "
             "Note: this function is intended to be used with the output produced by linalg.lu_factor; got ",
             pivots.dtype());
    Tensor order = permutation_op(pivots, m), index = row(order);
    Dims sizes = with_batch(batch_of(pivots, 1), {m, m});
    p = ops::scatter(ops::zeros(sizes, lu.dtype(), lu.device()), int64_t{-2}, index,
                     ops::full(index.sizes(), Scalar(1), lu.dtype(), lu.device()));
  }
  if (unpack_data) {
    l = ops::add(lower(slice(lu, -1, 0, k), -1), eye(m, k, lu));
    u = upper(slice(lu, -2, 0, k));
  }
  return {p, l, u};
}

Triple lu(const Tensor& a, bool pivot) {
  auto found = lu_factor_ex_op.multi<3>(a, pivot, false);
  auto parts = lu_unpack_op.multi<3>(found[0], found[1], true, true);
  return {parts[0], parts[1], parts[2]};
}

// X of A X = B, or of A^H X = B.
Tensor lu_solve_rule(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool) {
  const char* op = "linalg.lu_solve";
  check_floating(lu, op);
  check_square(lu, op, "LU");
  check_matrix(b, op, "B");
  check_same(lu, b, op);
  check_sides(lu, b, true, op);
  TS_CHECK(pivots.dtype() == DType::Int32, op, ": pivots should be a Tensor of scalar type torch.int32, got ",
           pivots.dtype());
  TS_CHECK(same(lu.sizes().first(lu.sizes().size() - 1), pivots.sizes()), op,
           ": Number of pivots per batch should be same as the dimension of the matrix, got sizes ", pivots.sizes(),
           " for factors of sizes ", lu.sizes());
  check_same_device(lu, pivots, op);
  return outline_columns(broadcast_sizes(batch_of(lu), batch_of(b), op), rows(b), cols(b), b.dtype(), b.device());
}
void lu_solve_left(const Tensor& out, const Tensor& lu, const Tensor& pivots, const Tensor& b, bool adjoint_of) {
  copy_broadcast(out, b);
  solve_factored(broadcast_factors(lu, pivots, batch_of(out)), memory_of(out), adjoint_of ? 2 : 0);
}

// With A = P L U: X = U^-1 Y and Y = L^-1 P^T B; the adjoint: X = P Z, Z = L^-H W and W = U^-H B.
void lu_solve_gradient(GradContext& c) {
  bool adjoint_of = c.value<bool>(3);
  Tensor lu = c.arg(0), pivots = c.arg(1), x = c.result(), g = c.grad();
  c.set(2, lu_left(lu, pivots, g, !adjoint_of));
  if (!c.needs(0)) return;
  int64_t n = rows(lu);
  Tensor l = ops::add(lower(lu, -1), identity(n, lu)), u = upper(lu);
  if (!adjoint_of) {
    Tensor y = ops::matmul(u, x), gy = lu_triangular(adjoint(u), g, false, false);
    Tensor gl = ops::matmul(lu_triangular(adjoint(l), gy, true, true), adjoint(y));
    return c.set(0, ops::neg(ops::add(lower(gl, -1), upper(ops::matmul(gy, adjoint(x))))));
  }
  Tensor order = column(permutation_op(pivots, n));
  auto permuted = [&](const Tensor& t) { return ops::gather(t, int64_t{-2}, ops::expand(order, t.sizes())); };
  Tensor z = permuted(x), w = ops::matmul(adjoint(l), z), gw = lu_triangular(l, permuted(g), false, true);
  Tensor gu = ops::matmul(w, adjoint(lu_triangular(u, gw, true, false)));
  c.set(0, ops::neg(ops::add(lower(ops::matmul(z, adjoint(gw)), -1), upper(gu))));
}

// X A = B is A^H X^H = B^H.
Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint_of) {
  if (left) return lu_left(lu, pivots, b, adjoint_of);
  check_square(lu, "linalg.lu_solve", "LU"), check_matrix(b, "linalg.lu_solve", "B");
  check_sides(lu, b, false, "linalg.lu_solve");
  return adjoint(lu_left(lu, pivots, adjoint(b), !adjoint_of));
}
Tensor lu_solve_old(const Tensor& b, const Tensor& lu, const Tensor& pivots) {
  static std::atomic<bool> warned{false};
  warn_once(warned, "torch.lu_solve is deprecated in favor of torch.linalg.lu_solve and will be removed in a future "
                    "PyTorch release.");
  return lu_left(lu, pivots, b, false);
}
void declare_triangular() {
  def("_linalg_solve_triangular(Tensor self, Tensor B, bool upper, bool unitriangular) -> Tensor")
      .rule<solve_triangular_rule>()
      .computation<solve_triangular>(kLuCode)
      .saves("self result")
      .gradient(triangular_gradient)
      .hidden()
      .doc("X of A X = B for triangular A.");
  def("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> "
      "Tensor")
      .facts("leaf")
      .body<solve_triangular_any>()
      .out()
      .hidden()
      .in("linalg")
      .doc("X of A X = B, or of X A = B, for triangular A (..., n, n), whose other triangle (and with unitriangular "
           "the diagonal, then of ones) is not read.");
  def("triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> "
      "(Tensor solution, Tensor cloned_coefficient)")
      .facts("leaf stored:none")
      .body<triangular_solve>()
      .out()
      .doc("X of A X = self for triangular A, and a copy of A; linalg.solve_triangular does the same.");
}

void declare_lu() {
  def("linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor "
      "info)")
      .rule<lu_factor_ex_rule>()
      .computation<lu_factor_ex, 3>(kLuCode)
      .reads_host()
      .saves("result result1")
      .gradient(lu_factor_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("As lu_factor, with info instead of an error: 0, or the first diagonal element of U that is zero, from 1.");
  def("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)")
      .body<lu_factor>()
      .out()
      .hidden()
      .in("linalg")
      .doc("L (below the diagonal) and U of A (..., m, n) = P L U, and which rows were exchanged, for lu_solve.");
  def("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)")
      .facts("leaf")
      .body<lu>()
      .out()
      .hidden()
      .in("linalg")
      .doc("A (..., m, n) = P L U: a permutation, a lower triangle of unit diagonal, and an upper triangle.");
  def("_lu_permutation(Tensor pivots, int m) -> Tensor")
      .rule<permutation_rule>()
      .computation<permutation>(kLuCode)
      .not_differentiable()
      .hidden()
      .doc("The order that rows have after the exchanges in pivots.");
  def("lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, "
      "Tensor "
      "L, Tensor U)")
      .facts("leaf")
      .body<lu_unpack>()
      .out()
      .function_only()
      .doc("P, L and U of lu_factor's results; those not asked for are empty.");
  def("_linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, bool adjoint=False) -> Tensor")
      .rule<lu_solve_rule>()
      .computation<lu_solve_left>(kLuCode)
      .saves("LU pivots result")
      .gradient(lu_solve_gradient)
      .hidden()
      .doc("X of A X = B, or of A^H X = B, from lu_factor's results of A.");
  def("linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor")
      .facts("leaf")
      .body<lu_solve>()
      .out()
      .hidden()
      .in("linalg")
      .doc("X of A X = B (X A = B unless left, with A^H for A if adjoint) from lu_factor's results of A.");
  def("lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor")
      .facts("autocast:float32/-")
      .body<lu_solve_old>()
      .out()
      .doc("X of A X = self from lu_factor's results of A.");
}
} // namespace

TS_OPERATORS(linalg_factor) {
  declare_triangular();
  declare_lu();
}

} // namespace ts
