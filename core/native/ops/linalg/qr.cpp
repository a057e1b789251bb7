// Orthogonal factors: QR, and the reflectors it is made of.
#include "autograd/meta.h"
#include "dispatch/launch.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/no_gradient.h"
#include "ops/linalg/lapack.h"
#include "runtime/warn_once.h"
#include "tensor/geometry.h"
#include <cstring>

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kQrCode = "a factorisation in place, with workspace and status";

using Pair = std::tuple<Tensor, Tensor>;

const KernelId kQr("lapack_qr"), kReflectors("lapack_reflectors"), kApply("lapack_apply_reflectors");
const Op qr_op("linalg_qr"), qr_triangular("_linalg_solve_triangular"), reflectors_op("_householder_product"),
    ormqr_op("_ormqr");

// --- QR

// R with the reflectors below it, and their scales.
void reflect_into(const Tensor& out, const Tensor& tau, const Tensor& a) {
  raw_copy(out, a);
  if (a.numel()) Launch(kQr, a.device()).out(memory_of(out)).out(tau).work(a.numel() * tau.size(-1)).run_required();
}

// Overwrites `memory` by the product's columns; in and out by columns.
Tensor multiply_out(const Tensor& memory, const Tensor& tau) {
  if (memory.numel() && tau.numel())
    Launch(kReflectors, memory.device()).out(memory).in(tau).work(memory.numel() * tau.size(-1)).run_required();
  return memory;
}

enum class Mode { Reduced, Complete, R };
Mode qr_mode(const char* mode) {
  if (mode && !std::strcmp(mode, "reduced")) return Mode::Reduced;
  if (mode && !std::strcmp(mode, "complete")) return Mode::Complete;
  TS_CHECK(mode && !std::strcmp(mode, "r"), "linalg.qr: mode must be one of 'reduced', 'complete' or 'r', got '", mode,
           "'");
  return Mode::R;
}

Pair qr_rule(const Tensor& a, const char* mode_name) {
  const char* op = "linalg.qr";
  check_floating(a, op);
  check_matrix(a, op);
  Mode mode = qr_mode(mode_name);
  int64_t m = rows(a), n = cols(a), height = mode == Mode::Complete ? m : std::min(m, n);
  IntSpan batch = batch_of(a);
  Tensor q = mode == Mode::R ? outline(Dims{0}, a.dtype(), a.device())
                             : outline_columns(batch, m, height, a.dtype(), a.device());
  return {q, outline(with_batch(batch, {height, n}), a.dtype(), a.device())};
}
void qr(const Tensor& q, const Tensor& r, const Tensor& a, const char* mode) {
  static const Op upper_into("triu.out");
  int64_t m = rows(a), n = cols(a), k = std::min(m, n);
  Tensor whole = as_matrix(columns(batch_of(a), m, n, a.dtype(), a.device())),
         tau = empty_tensor(with_batch(batch_of(a), {k}), a.dtype(), a.device());
  reflect_into(whole, tau, a);
  if (r.numel()) upper_into(raw_narrow(whole, a.ndim() - 2, 0, rows(r)), int64_t{0}, r);
  if (qr_mode(mode) == Mode::R || q.numel() == 0) return;
  if (k == 0) return copy_broadcast(q, identity(m, a));
  int64_t known = std::min(cols(q), n), last = q.ndim() - 1;
  raw_copy(raw_narrow(q, last, 0, known), raw_narrow(whole, last, 0, known));
  if (cols(q) > n) raw_fill(raw_narrow(q, last, n, cols(q) - n), Scalar(0));
  multiply_out(memory_of(q), tau);
}

// (gQ + Q (X + X^H of halved diagonal)) R^-H of X = triu(gR R^H - Q^H gQ), for as many columns as Q has.
Tensor square_qr_gradient(const Tensor& q, const Tensor& r, const Tensor& gq, const Tensor& gr) {
  Tensor x = upper(ops::sub(ops::matmul(gr, adjoint(r)), ops::matmul(adjoint(q), gq)));
  Tensor both = ops::sub(ops::add(x, adjoint(x)), diagonal_matrix(real_part(diagonal_of(x))));
  Tensor right = ops::add(gq, ops::matmul(q, both));
  return transposed(qr_triangular(conjugate(r), transposed(right), true, false)); // Y R^H = right
}
// A wide matrix is [X Y] = Q [U V], where V = Q^H Y.
void qr_gradient(GradContext& c) {
  Mode mode = qr_mode(c.value<const char*>(1));
  Tensor q = c.result(0), r = c.result(1), gq = c.grad(0), gr = c.grad(1);
  int64_t m = c.sizes(0)[c.sizes(0).size() - 2], n = cols(r);
  TS_CHECK(mode != Mode::R, "linalg.qr: The derivative of linalg.qr depends on Q, which is not computed when "
                            "mode='r'. Please use linalg.qr(A, mode='reduced') if you are going to require gradients");
  TS_CHECK(mode == Mode::Reduced || m <= n,
           "linalg.qr: The QR decomposition is not differentiable when mode='complete' and nrows > ncols.");
  if (q.numel() == 0 || r.numel() == 0) return c.set(0, ops::zeros(c.sizes(0), c.dtype(0), c.device(0)));
  if (m >= n) return c.set(0, square_qr_gradient(q, r, gq, gr));
  Tensor gv = slice(gr, -1, m, n), v = slice(r, -1, m, n);
  gq = ops::add(gq, ops::matmul(ops::matmul(q, v), adjoint(gv)));
  Tensor gx = square_qr_gradient(q, slice(r, -1, 0, m), gq, slice(gr, -1, 0, m));
  c.set(0, ops::cat(std::vector<Tensor>{gx, ops::matmul(q, gv)}, int64_t{-1}));
}
Pair qr_old(const Tensor& a, bool some) {
  static std::atomic<bool> warned{false};
  warn_once(warned, "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch "
                    "release; some=False is mode='complete' there.");
  auto found = qr_op.multi<2>(a, some ? "reduced" : "complete");
  return {found[0], found[1]};
}

Pair geqrf_rule(const Tensor& a) {
  check_floating(a, "geqrf");
  check_matrix(a, "geqrf");
  return {outline_columns(batch_of(a), rows(a), cols(a), a.dtype(), a.device()),
          outline(with_batch(batch_of(a), {std::min(rows(a), cols(a))}), a.dtype(), a.device())};
}
void geqrf(const Tensor& out, const Tensor& tau, const Tensor& a) { reflect_into(out, tau, a); }

// --- products of reflectors: H_1 H_2 ... of H_i = 1 - tau_i v_i v_i^H, where v_i stands below a 1 in column i

void check_reflectors(const Tensor& a, const Tensor& tau, const char* op) {
  check_floating(a, op);
  check_matrix(a, op, "input");
  check_same(a, tau, op);
  TS_CHECK(rows(a) >= cols(a), op, ": input.shape[-2] must be greater than or equal to input.shape[-1], got ",
           a.sizes());
  TS_CHECK(
      tau.ndim() == a.ndim() - 1 && tau.size(-1) <= cols(a), op,
      ": input.shape[-1] must be greater than or equal to tau.shape[-1], and tau must have one dimension less, got ",
      a.sizes(), " and ", tau.sizes());
  IntSpan batch = batch_of(a), others = batch_of(tau, 1);
  TS_CHECK(std::equal(batch.begin(), batch.end(), others.begin(), others.end()), op,
           ": Expected batch dimensions of tau to be equal to input.shape[:-2], but got ", others);
}
Tensor householder_rule(const Tensor& a, const Tensor& tau) {
  check_reflectors(a, tau, "linalg.householder_product");
  return outline_columns(batch_of(a), rows(a), cols(a), a.dtype(), a.device());
}
void householder_raw(const Tensor& out, const Tensor& a, const Tensor& tau) {
  if (tau.numel() == 0) return copy_broadcast(out, eye(rows(a), cols(a), a));
  raw_copy(out, a);
  multiply_out(memory_of(out), raw_contiguous(tau));
}

// One reflector after another onto `x`, by operators: for gradients.
Tensor reflect_all(const Tensor& a, const Tensor& tau, Tensor x, bool left, bool adjoint_of) {
  int64_t k = tau.size(-1), m = rows(a);
  for (int64_t step = 0; step < k; ++step) {
    int64_t i = left != adjoint_of ? k - 1 - step : step;
    Tensor below = lower(slice(a, -1, i, i + 1), -i - 1); // the column beyond the diagonal
    Tensor one = slice(identity(m, a), -1, i, i + 1), v = ops::add(below, one);
    Tensor t = slice(row(tau), -1, i, i + 1);
    if (adjoint_of) t = conjugate(t);
    if (left)
      x = ops::sub(x, ops::mul(t, ops::matmul(v, ops::matmul(adjoint(v), x))));
    else
      x = ops::sub(x, ops::mul(t, ops::matmul(ops::matmul(x, v), adjoint(v))));
  }
  return x;
}

Tensor householder_product(const Tensor& a, const Tensor& tau) { return reflectors_op(a, tau); }
// By products that have gradients.
Tensor householder_products(const Tensor& a, const Tensor& tau) {
  check_reflectors(a, tau, "linalg.householder_product");
  // Without reflections nothing is differentiated, yet the result belongs to the graph.
  if (tau.size(-1) == 0) return ops::add(reflectors_op(a, tau), ops::mul(ops::sum(a), 0));
  return reflect_all(a, tau, contiguous_rows(eye(rows(a), cols(a), a), a.sizes()), true, false);
}

Tensor apply_rule(const Tensor& a, const Tensor& tau, const Tensor& other, bool left, bool) {
  const char* op = "ormqr";
  check_floating(a, op);
  check_matrix(a, op, "input"), check_matrix(other, op, "other");
  check_same(a, tau, op), check_same(a, other, op);
  int64_t side = left ? rows(other) : cols(other);
  TS_CHECK(tau.ndim() == a.ndim() - 1 && tau.size(-1) <= std::min(rows(a), cols(a)) && rows(a) == side, op,
           ": expected reflectors as long as the side of `other` they are applied to and a scale for each, got sizes ",
           a.sizes(), ", ", tau.sizes(), " and ", other.sizes());
  TS_CHECK(same(batch_of(a), batch_of(tau, 1)) && same(batch_of(a), batch_of(other)), op,
           ": batch dimensions of input, tau and other should be equal, got sizes ", a.sizes(), ", ", tau.sizes(),
           " and ", other.sizes());
  return outline_columns(batch_of(other), rows(other), cols(other), other.dtype(), other.device());
}
void apply_raw(const Tensor& out, const Tensor& a, const Tensor& tau, const Tensor& other, bool left, bool adjoint_of) {
  raw_copy(out, other);
  if (tau.numel())
    Launch(kApply, a.device())
        .out(memory_of(out))
        .in(columns_of(a))
        .in(raw_contiguous(tau))
        .param(left)
        .param(adjoint_of)
        .work(out.numel() * tau.size(-1))
        .run_required();
}
Tensor ormqr(const Tensor& a, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  return ormqr_op(a, tau, other, left, transpose);
}
Tensor ormqr_products(const Tensor& a, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  apply_rule(a, tau, other, left, transpose); // for its checks
  return reflect_all(a, tau, other, left, transpose);
}

void declare_qr() {
  def("linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)")
      .facts("stored:none autocast:float32/-")
      .rule<qr_rule>()
      .computation<qr, 2>(kQrCode)
      .saves("result result1")
      .gradient(qr_gradient)
      .out()
      .hidden()
      .in("linalg")
      .doc("A (..., m, n) = Q R, orthogonal and upper triangular. 'reduced': Q has min(m, n) columns; 'complete': m; "
           "'r': only R.");
  def("qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)")
      .facts("stored:none")
      .body<qr_old>()
      .out()
      .doc("self = Q R, orthogonal and upper triangular; Q is square unless some.");
  def("geqrf(Tensor self) -> (Tensor a, Tensor tau)")
      .facts("autocast:float32/-")
      .rule<geqrf_rule>()
      .computation<geqrf, 2>(kQrCode)
      .gradient(no_gradient)
      .out()
      .doc("R of the QR decomposition with Q's reflectors below the diagonal, and their scales.");
}

void declare_reflectors() {
  constexpr const char* kDoc = "The first columns of the product of reflectors 1 - tau v v^H, v below the diagonal of "
                               "the columns: Q from geqrf's results.";
  def("_householder_product(Tensor input, Tensor tau) -> Tensor")
      .rule<householder_rule>()
      .computation<householder_raw>(kQrCode)
      .not_differentiable()
      .hidden()
      .doc(kDoc);
  def("linalg_householder_product(Tensor input, Tensor tau) -> Tensor")
      .facts("leaf autocast:float32/-")
      .body<householder_product>()
      .when_recorded<householder_products>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("orgqr(Tensor self, Tensor input2) -> Tensor")
      .facts("autocast:float32/-")
      .body<householder_product>()
      .when_recorded<householder_products>()
      .out()
      .doc(kDoc);
  def("_ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor")
      .rule<apply_rule>()
      .computation<apply_raw>(kQrCode)
      .not_differentiable()
      .hidden()
      .doc("The product of all of Q and input3.");
  def("ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor")
      .facts("leaf autocast:float32/-")
      .body<ormqr>()
      .when_recorded<ormqr_products>()
      .out()
      .doc(
          "The product of Q (its adjoint with transpose), from geqrf's results self and input2, and input3 beside it.");
}

} // namespace

TS_OPERATORS(linalg_orthogonal) {
  declare_qr();
  declare_reflectors();
}

} // namespace ts
