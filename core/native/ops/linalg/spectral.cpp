// Singular values and vectors, eigenvalues and eigenvectors.
#include "autograd/meta.h"
#include "dispatch/launch.h"
#include "ops/common/declare.h"
#include "ops/linalg/lapack.h"
#include "tensor/geometry.h"
#include <cmath>
#include <cstring>

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kSpectralCode = "a factorisation in place, with workspace and status";

using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

const KernelId kSvd("lapack_svd"), kEigh("lapack_eigh"), kEig("lapack_eig");
const Op svd_op("_linalg_svd"), eigh_op("_linalg_eigh"), eig_op("_linalg_eig"),
    spectral_solve_matrices("_linalg_solve");

std::string not_converged(int32_t info, const char* values) {
  if (info < 0) return "The algorithm failed to converge because the input matrix contained non-finite values.";
  return concat(
      "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated ", values,
      " (error code: ", info, ").");
}

// --- singular values

// U and Vh are empty where vectors are not asked for.
Triple svd_rule(const Tensor& a, bool full, bool vectors) {
  const char* op = "linalg.svd";
  check_floating(a, op);
  check_matrix(a, op);
  IntSpan batch = batch_of(a);
  int64_t m = rows(a), n = cols(a), k = std::min(m, n);
  Tensor none = outline(Dims{0}, a.dtype(), a.device());
  return {vectors ? outline_columns(batch, m, full ? m : k, a.dtype(), a.device()) : none,
          outline(with_batch(batch, {k}), real_dtype(a.dtype()), a.device()),
          vectors ? outline_columns(batch, full ? n : k, n, a.dtype(), a.device()) : none};
}
void svd(const Tensor& u, const Tensor& s, const Tensor& vh, const Tensor& a, bool full, bool vectors) {
  if (a.numel() == 0) { // without a singular value every basis will do
    for (const Tensor* basis : {&u, &vh})
      if (basis->numel()) copy_broadcast(*basis, identity(rows(*basis), a));
    return;
  }
  Tensor info = zeros_int32(batch_of(a), a.device());
  Launch(kSvd, a.device())
      .out(columns_of(a))
      .out(s)
      .out(vectors ? memory_of(u) : Tensor())
      .out(vectors ? memory_of(vh) : Tensor())
      .out(info)
      .param(int64_t{!vectors ? 'N'
                     : full   ? 'A'
                              : 'S'})
      .work(a.numel() * s.size(-1))
      .run_required();
  check_info(info, "linalg.svd", [](int32_t code) { return not_converged(code, "singular values"); });
}

Tensor skew(const Tensor& x) { return ops::sub(x, adjoint(x)); }

// Complex vectors are any of a circle e^{i phi}: a loss that differs along it has no gradient, and `turned`, which is
// how it changes with the phase of each vector, is then far from zero beside the numbers `among` that it was summed
// from.
void check_phase(const Tensor& turned, const Tensor& among, const char* op) {
  if (turned.numel() == 0) return;
  Tensor scale = ops::amax(ops::abs(ops::detach(among)), Dims{-2, -1}, false);
  Tensor bound = ops::add(ops::mul(column(scale), 100 * epsilon(scale.dtype())), 1e-2); // PyTorch's, and what rounds
  Tensor far = ops::any(ops::gt(ops::abs(ops::detach(turned)), bound));
  if (!far->storage) return; // shapes alone
  TS_CHECK(!raw_truth(far), op,
           ": the vectors in the complex case are specified up to multiplication by e^{i phi}. The specified loss "
           "function depends on this phase, which makes it ill-defined; try a loss of absolute values or of products "
           "of the vectors with their adjoints");
}

// For A = U S V^H: U ((skew(U^H gU) / E) S + S (skew(V^H gV) / E) + gS) V^H, with E_jk = S_k^2 - S_j^2, and what lies
// outside of the spaces of U and V (Wan and Zhang, arXiv:1909.02659).
void svd_gradient(GradContext& c) {
  bool full = c.value<bool>(1), vectors = c.value<bool>(2);
  TS_CHECK(vectors, "linalg.svd: the gradient needs the singular vectors");
  Tensor s = c.result(1), u = c.result(0), vh = c.result(2), gu = c.grad(0), gs = c.grad(1), gvh = c.grad(2);
  IntSpan sizes = c.sizes(0);
  int64_t m = sizes[sizes.size() - 2], n = sizes.back(), k = std::min(m, n);
  if (s.numel() == 0) return c.set(0, ops::zeros(sizes, c.dtype(0), c.device(0)));
  bool of_vectors = c.has_grad(0) || c.has_grad(2);
  // Those beyond the first k are any basis of the rest, and have no gradient; what comes of them is dropped, as PyTorch
  // does.
  if (full) u = slice(u, -1, 0, k), gu = slice(gu, -1, 0, k), vh = slice(vh, -2, 0, k), gvh = slice(gvh, -2, 0, k);
  if (!of_vectors) return c.set(0, ops::matmul(ops::mul(u, row(gs)), vh));
  Tensor v = adjoint(vh), gv = adjoint(gvh), squares = ops::square(s);
  Tensor e = ops::add(ops::sub(row(squares), column(squares)), identity(k, s));
  Tensor of_u = ops::matmul(adjoint(u), gu), of_v = ops::matmul(vh, gv);
  Tensor inner = ops::add(ops::mul(ops::div(skew(of_u), e), row(s)), ops::mul(column(s), ops::div(skew(of_v), e)));
  inner = ops::add(inner, diagonal_matrix(gs));
  if (is_complex(u.dtype())) {
    Tensor both = ops::add(of_u, of_v);
    check_phase(ops::imag(diagonal_of(both)), both, "linalg.svd backward");
    Tensor d = ops::div(diagonal_of(of_u), s); // the phase that U and V share
    inner = ops::add(inner, diagonal_matrix(ops::mul(ops::sub(d, conjugate(d)), 0.5)));
  }
  Tensor g = ops::matmul(ops::matmul(u, inner), vh);
  if (m > k) {
    Tensor outside = ops::sub(gu, ops::matmul(u, of_u));
    g = ops::add(g, ops::matmul(ops::div(outside, row(s)), vh));
  }
  if (n > k) {
    Tensor outside = adjoint(ops::sub(gv, ops::matmul(v, of_v)));
    g = ops::add(g, ops::matmul(u, ops::div(outside, column(s))));
  }
  c.set(0, g);
}

void check_driver(const char* driver, const char* op) {
  TS_CHECK(!driver, op, ": keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend, got '",
           driver, "'");
}
Triple svd_any(const Tensor& a, bool full, const char* driver) {
  check_driver(driver, "linalg.svd");
  auto found = svd_op.multi<3>(a, full, true);
  return {found[0], found[1], found[2]};
}
// The gradient needs the vectors.
template <bool vectors> Tensor svdvals(const Tensor& a, const char* driver) {
  check_driver(driver, "linalg.svdvals");
  return svd_op.multi<3>(a, false, vectors)[1];
}
Triple svd_old(const Tensor& a, bool some, bool vectors) {
  if (vectors) {
    auto found = svd_op.multi<3>(a, !some, true);
    return {found[0], found[1], adjoint(found[2])};
  }
  check_matrix(a, "svd");
  auto zeros = [&](int64_t n) { return ops::zeros(with_batch(batch_of(a), {n, n}), a.dtype(), a.device()); };
  static const Op values("linalg_svdvals");
  return {zeros(rows(a)), values(a), zeros(cols(a))};
}

// --- eigenvalues of symmetric matrices

bool reads_upper(const char* uplo, const char* op) {
  bool upper = uplo && (!std::strcmp(uplo, "U") || !std::strcmp(uplo, "u"));
  TS_CHECK(upper || (uplo && (!std::strcmp(uplo, "L") || !std::strcmp(uplo, "l"))), op,
           ": Expected UPLO argument to be 'L' or 'U', but got ", uplo);
  return upper;
}

Pair eigh_rule(const Tensor& a, const char* uplo, bool vectors) {
  const char* op = "linalg.eigh";
  check_floating(a, op);
  check_square(a, op);
  reads_upper(uplo, op);
  IntSpan batch = batch_of(a);
  return {outline(with_batch(batch, {rows(a)}), real_dtype(a.dtype()), a.device()),
          vectors ? outline_columns(batch, rows(a), rows(a), a.dtype(), a.device())
                  : outline(Dims{0}, a.dtype(), a.device())};
}
void eigh(const Tensor& w, const Tensor& v, const Tensor& a, const char* uplo, bool vectors) {
  const char* op = "linalg.eigh";
  Tensor info = zeros_int32(batch_of(a), a.device()), memory = vectors ? memory_of(v) : columns_of(a);
  if (vectors) raw_copy(v, a);
  Launch(kEigh, a.device())
      .out(memory)
      .out(w)
      .out(info)
      .param(vectors)
      .param(reads_upper(uplo, op))
      .work(a.numel() * rows(a))
      .run_required();
  check_info(info, op, [](int32_t code) { return not_converged(code, "eigenvalues"); });
}

// V (gL + skew(V^H gV) / 2E) V^H, with E_jk = L_k - L_j: symmetric, as what A may change by.
void eigh_gradient(GradContext& c) {
  TS_CHECK(c.value<bool>(2), "linalg.eigh: the gradient needs the eigenvectors");
  Tensor w = c.result(0), v = c.result(1), vh = adjoint(v);
  if (!c.has_grad(1)) return c.set(0, ops::matmul(ops::mul(v, row(c.grad(0))), vh));
  Tensor e = ops::add(ops::sub(row(w), column(w)), identity(rows(v), w));
  Tensor of_v = ops::matmul(vh, c.grad(1)), inner = ops::div(ops::mul(skew(of_v), 0.5), e);
  if (is_complex(v.dtype())) check_phase(ops::imag(diagonal_of(of_v)), of_v, "linalg.eigh backward");
  c.set(0, ops::matmul(ops::matmul(v, ops::add(inner, diagonal_matrix(c.grad(0)))), vh));
}

Pair eigh_any(const Tensor& a, const char* uplo) {
  auto found = eigh_op.multi<2>(a, uplo, true);
  return {found[0], found[1]};
}
// The gradient needs the vectors.
template <bool vectors> Tensor eigvalsh(const Tensor& a, const char* uplo) {
  return eigh_op.multi<2>(a, uplo, vectors)[0];
}

// --- eigenvalues of general matrices

Pair eig_rule(const Tensor& a, bool vectors) {
  const char* op = "linalg.eig";
  check_floating(a, op);
  check_square(a, op);
  DType t = complex_dtype(a.dtype());
  return {outline(with_batch(batch_of(a), {rows(a)}), t, a.device()),
          vectors ? outline_columns(batch_of(a), rows(a), rows(a), t, a.device()) : outline(Dims{0}, t, a.device())};
}
void eig(const Tensor& w, const Tensor& v, const Tensor& a, bool vectors) {
  Tensor info = zeros_int32(batch_of(a), a.device());
  Launch(kEig, a.device())
      .out(columns_of(a))
      .out(w)
      .out(vectors ? memory_of(v) : Tensor())
      .out(info)
      .work(a.numel() * rows(a))
      .run_required();
  check_info(info, "linalg.eig", [](int32_t code) {
    return code < 0 ? std::string("input tensor should not contain infs or NaNs.") : not_converged(code, "eigenvalues");
  });
}

// V^-H (gL + (V^H gV - V^H V Re(diag(V^H gV))) / conj(E)) V^H, with E_jk = L_k - L_j.
void eig_gradient(GradContext& c) {
  Tensor w = c.result(0), v = c.result(1), vh = adjoint(v), g;
  TS_CHECK(c.value<bool>(1), "linalg.eig: the gradient needs the eigenvectors");
  if (w.numel() == 0) return c.set(0, ops::zeros(c.sizes(0), c.dtype(0), c.device(0)));
  if (c.has_grad(1)) {
    Tensor inner = ops::matmul(vh, c.grad(1)), scale = real_part(diagonal_of(inner));
    check_phase(ops::imag(diagonal_of(inner)), inner, "linalg.eig backward");
    inner = ops::sub(inner, ops::matmul(vh, ops::mul(v, row(scale))));
    Tensor own = identity(rows(v), w), e = ops::add(conjugate(ops::sub(row(w), column(w))), own);
    g = ops::add(ops::mul(ops::div(inner, e), ops::sub(1, own)), diagonal_matrix(c.grad(0)));
    g = ops::matmul(g, vh);
  } else {
    g = ops::mul(column(c.grad(0)), vh);
  }
  Tensor found = spectral_solve_matrices.multi<4>(vh, g, true, false)[0];
  c.set(0, is_complex(c.dtype(0)) ? found : real_part(found));
}

Pair eig_any(const Tensor& a) {
  auto found = eig_op.multi<2>(a, true);
  return {found[0], found[1]};
}
template <bool vectors> Tensor eigvals(const Tensor& a) { return eig_op.multi<2>(a, vectors)[0]; }

void declare_singular() {
  def("_linalg_svd(Tensor A, bool full_matrices, bool compute_uv) -> (Tensor U, Tensor S, Tensor Vh)")
      .rule<svd_rule>()
      .computation<svd, 3>(kSpectralCode)
      .reads_host()
      .saves("result result1 result2")
      .gradient(svd_gradient)
      .hidden()
      .doc("Singular values, and vectors if asked for.");
  def("linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)")
      .facts("stored:none autocast:float32/-")
      .body<svd_any>()
      .out()
      .hidden()
      .in("linalg")
      .doc(
          "A (..., m, n) = U diag(S) Vh, singular values in descending order; with full_matrices U and Vh are square. "
          "LinAlgError for matrices with infinities or NaN. Gradients through U and Vh want distinct singular values.");
  def("linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor")
      .facts("stored:none autocast:float32/-")
      .body<svdvals<false>>()
      .when_recorded<svdvals<true>>()
      .out(kSameDtype)
      .hidden()
      .in("linalg")
      .doc("Singular values of A (..., m, n), in descending order.");
  def("svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)")
      .facts("stored:none autocast:float32/-")
      .body<svd_old>()
      .out()
      .doc("self = U diag(S) V^H; linalg.svd, which gives Vh, is to be preferred.");
}

void declare_eigen() {
  def("_linalg_eigh(Tensor A, str UPLO, bool compute_v) -> (Tensor eigenvalues, Tensor eigenvectors)")
      .rule<eigh_rule>()
      .computation<eigh, 2>(kSpectralCode)
      .reads_host()
      .saves("result result1")
      .gradient(eigh_gradient)
      .hidden()
      .doc("Eigenvalues of symmetric matrices, and vectors if asked for.");
  def("linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)")
      .facts("stored:none autocast:float32/-")
      .body<eigh_any>()
      .out()
      .hidden()
      .in("linalg")
      .doc(
          "Eigenvalues, ascending, and eigenvectors (columns) of symmetric or Hermitian matrices (..., n, n), of which "
          "the triangle UPLO is read.");
  def("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor")
      .facts("stored:none autocast:float32/-")
      .body<eigvalsh<false>>()
      .when_recorded<eigvalsh<true>>()
      .out(kSameDtype)
      .hidden()
      .in("linalg")
      .doc("Eigenvalues, ascending, of symmetric or Hermitian matrices, of which the triangle UPLO is read.");
  def("_linalg_eig(Tensor A, bool compute_v) -> (Tensor eigenvalues, Tensor eigenvectors)")
      .rule<eig_rule>()
      .computation<eig, 2>(kSpectralCode)
      .reads_host()
      .saves("result result1")
      .gradient(eig_gradient)
      .hidden()
      .doc("Eigenvalues of square matrices, and vectors if asked for.");
  def("linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)")
      .facts("leaf stored:none autocast:float32/-")
      .body<eig_any>()
      .out(kCasts)
      .hidden()
      .in("linalg")
      .doc("Complex eigenvalues, in no order, and eigenvectors (columns of length 1) of square matrices (..., n, n).");
  def("linalg_eigvals(Tensor self) -> Tensor")
      .facts("stored:none autocast:float32/-")
      .body<eigvals<false>>()
      .when_recorded<eigvals<true>>()
      .out()
      .hidden()
      .in("linalg")
      .doc("Complex eigenvalues, in no order, of square matrices (..., n, n).");
}

} // namespace

TS_OPERATORS(linalg_spectral) {
  declare_singular();
  declare_eigen();
}

} // namespace ts
