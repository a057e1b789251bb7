// Least squares, pseudo-inverses, ranks and condition numbers.
#include "dispatch/launch.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/linalg/lapack.h"
#include "tensor/geometry.h"
#include <cmath>
#include <cstring>

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kLeastSquaresCode = "a factorisation in place, with workspace and status";

using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Number = std::optional<double>;

const KernelId kLeastSquares("lapack_least_squares");
const Op pinv_op("_linalg_pinv"), lstsq_op("_linalg_lstsq"), least_squares_svd_op("_linalg_svd"),
    least_squares_eigh_op("_linalg_eigh"), least_squares_svdvals("linalg_svdvals"),
    least_squares_eigvalsh("linalg_eigvalsh"), least_squares_norm_op("linalg_matrix_norm"),
    least_squares_inv_op("linalg_inv"), least_squares_norm_named("linalg_matrix_norm.str_ord");

// --- pseudo-inverses

// Along the last dim, the largest magnitude times rtol, or atol where that is more.
Tensor threshold(const Tensor& values, const Tensor& atol, const Tensor& rtol) {
  Tensor largest = ops::amax(ops::abs(values), Dims{-1}, true);
  return ops::maximum(column(atol), ops::mul(column(rtol), largest));
}

// rtol's default is the precision of the dtype, but 0 beside an atol.
struct Tolerances {
  Tensor atol, rtol;
};
Tensor number(double value, const Tensor& a) { return filled({}, Scalar(value), real_dtype(a.dtype()), a.device()); }
double default_rtol(const Tensor& a) { return epsilon(a.dtype()) * static_cast<double>(std::max(rows(a), cols(a))); }

Tolerances tolerances(const Tensor& a, Number atol, Number rtol) {
  double relative = rtol ? *rtol : atol && *atol > 0 ? 0.0 : default_rtol(a);
  return {number(atol.value_or(0), a), number(relative, a)};
}
Tolerances tolerances(const Tensor& a, const Tensor& atol, const Tensor& rtol, const char* op) {
  for (const Tensor* t : {&atol, &rtol})
    TS_CHECK(!t->defined() || !is_complex(t->dtype()), op, ": tolerances cannot be complex, got ", t->dtype());
  Tolerances t{atol.defined() ? ops::to_dtype(atol, real_dtype(a.dtype())) : number(0, a), {}};
  if (rtol.defined())
    t.rtol = ops::to_dtype(rtol, real_dtype(a.dtype()));
  else if (atol.defined())
    t.rtol = ops::where(ops::gt(t.atol, 0), number(0, a), number(default_rtol(a), a));
  else
    t.rtol = number(default_rtol(a), a);
  return t;
}

Tensor pinv_rule(const Tensor& a, const Tensor&, const Tensor&, bool hermitian) {
  const char* op = "linalg.pinv";
  check_floating(a, op);
  if (hermitian) check_square(a, op);
  check_matrix(a, op);
  return outline(with_batch(batch_of(a), {cols(a), rows(a)}), a.dtype(), a.device());
}
void pinv_raw(const Tensor& out, const Tensor& a, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  static const Op multiply_into("matmul.out");
  auto inverted = [&](const Tensor& values) {
    Tensor kept = ops::gt(ops::abs(values), threshold(values, atol, rtol));
    return ops::where(kept, ops::reciprocal(values), ops::zeros_like(values));
  };
  if (hermitian) {
    auto [w, v] = least_squares_eigh_op.multi<2>(a, "L", true);
    multiply_into(ops::mul(v, row(inverted(w))), adjoint(v), out);
    return;
  }
  auto [u, s, vh] = least_squares_svd_op.multi<3>(a, false, true);
  multiply_into(ops::mul(adjoint(vh), row(inverted(s))), adjoint(u), out);
}

// At constant rank (Golub and Pereyra, 1973).
Tensor pinv_backward(const Tensor& a, const Tensor& p, const Tensor& g) {
  Tensor gh = adjoint(g), ph = adjoint(p);
  Tensor first = ops::matmul(ops::matmul(ph, g), ph), ghp = ops::matmul(gh, p);
  Tensor left = ops::sub(gh, ops::matmul(a, ops::matmul(p, gh))), right = ops::sub(gh, ops::matmul(ghp, a));
  Tensor second = ops::matmul(ops::matmul(left, p), ph), third = ops::matmul(ph, ops::matmul(p, right));
  return ops::sub(ops::add(second, third), first);
}
void pinv_gradient(GradContext& c) { c.set(0, pinv_backward(c.arg(0), c.result(), c.grad())); }

Tensor pinv_within(const Tensor& a, const Tolerances& t, bool hermitian) {
  return pinv_op(a, t.atol, t.rtol, hermitian);
}
Tensor pinv(const Tensor& a, Number atol, Number rtol, bool hermitian) {
  check_matrix(a, "linalg.pinv");
  return pinv_within(a, tolerances(a, atol, rtol), hermitian);
}
Tensor pinv_tensors(const Tensor& a, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  check_matrix(a, "linalg.pinv");
  return pinv_within(a, tolerances(a, atol, rtol, "linalg.pinv"), hermitian);
}
Tensor pinv_rcond(const Tensor& a, double rcond, bool hermitian) { return pinv(a, 0.0, rcond, hermitian); }
Tensor pinv_rcond_tensor(const Tensor& a, const Tensor& rcond, bool hermitian) {
  return pinv_tensors(a, {}, rcond, hermitian);
}
Tensor pinverse(const Tensor& a, double rcond) { return pinv(a, 0.0, rcond, false); }

// --- ranks and condition numbers

Tensor rank_within(const Tensor& a, const Tolerances& t, bool hermitian) {
  Dims batch(batch_of(a));
  if (a.numel() == 0) return ops::zeros(batch, DType::Int64, a.device());
  Tensor values = hermitian ? ops::abs(least_squares_eigvalsh(ops::detach(a))) : least_squares_svdvals(ops::detach(a));
  int64_t last[] = {-1};
  return ops::sum_dim(ops::gt(values, threshold(values, t.atol, t.rtol)), IntSpan(last));
}
Tensor matrix_rank(const Tensor& a, Number atol, Number rtol, bool hermitian) {
  check_matrix(a, "linalg.matrix_rank");
  return rank_within(a, tolerances(a, atol, rtol), hermitian);
}
Tensor matrix_rank_tensors(const Tensor& a, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  check_matrix(a, "linalg.matrix_rank");
  return rank_within(a, tolerances(a, atol, rtol, "linalg.matrix_rank"), hermitian);
}
Tensor matrix_rank_tol(const Tensor& a, double tol, bool hermitian) { return matrix_rank(a, tol, 0.0, hermitian); }
Tensor matrix_rank_tol_tensor(const Tensor& a, const Tensor& tol, bool hermitian) {
  check_matrix(a, "linalg.matrix_rank");
  return matrix_rank_tensors(a, tol, number(0, a), hermitian);
}

// Norms of A and of its inverse; singular matrices have infinite ones.
template <class Norm> Tensor cond_by_norms(const Tensor& a, const Norm& norm) {
  static const Op inv_ex("linalg_inv_ex");
  check_square(a, "linalg.cond");
  auto inverse = inv_ex.multi<2>(a, false);
  // What has no inverse is left out before its norm, which takes no infinities where it is that of singular values.
  Tensor regular = ops::eq(inverse[1], 0);
  Tensor there = ops::unsqueeze(ops::unsqueeze(regular, -1), -1);
  Tensor found = ops::mul(norm(a), norm(ops::where(there, inverse[0], ops::zeros_like(inverse[0]))));
  return ops::where(regular, found, ops::full_like(found, INFINITY));
}
Tensor cond(const Tensor& a, std::optional<Scalar> p) {
  check_matrix(a, "linalg.cond");
  check_floating(a, "linalg.cond");
  double order = p ? p->to_double() : 2;
  TS_CHECK(std::abs(order) == 1 || std::abs(order) == 2 || std::isinf(order),
           "linalg.cond: got an invalid norm type: ", order, "; expected 1, -1, 2, -2, inf, -inf, 'fro' or 'nuc'");
  Dims batch(batch_of(a));
  if (a.numel() == 0) return ops::zeros(batch, real_dtype(a.dtype()), a.device());
  if (std::abs(order) != 2) return cond_by_norms(a, [&](const Tensor& x) { return least_squares_norm_op(x, order); });
  Tensor s = least_squares_svdvals(a), largest = ops::select(s, int64_t{-1}, int64_t{0}),
         least = ops::select(s, int64_t{-1}, s.size(-1) - 1);
  return order > 0 ? ops::div(largest, least) : ops::div(least, largest);
}
Tensor cond_named(const Tensor& a, const char* p) {
  check_floating(a, "linalg.cond");
  check_square(a, "linalg.cond");
  TS_CHECK(!std::strcmp(p, "fro") || !std::strcmp(p, "nuc"), "linalg.cond: got an invalid norm type: ", p);
  Dims batch(batch_of(a));
  if (a.numel() == 0) return ops::zeros(batch, real_dtype(a.dtype()), a.device());
  return cond_by_norms(a, [&](const Tensor& x) { return least_squares_norm_named(x, p); });
}

// --- least squares

enum Driver : int64_t { kGels, kGelsy, kGelsd, kGelss };
int64_t driver_of(const char* name) {
  constexpr const char* names[] = {"gels", "gelsy", "gelsd", "gelss"};
  if (!name) return kGelsy;
  for (int64_t k = 0; k < 4; ++k)
    if (!std::strcmp(name, names[k])) return k;
  fail(ErrorKind::Runtime, "linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got '", name,
       "'");
}

// (X, sums of squares of what is left over, rank, singular values); what a driver does not know is empty.
Four lstsq_rule(const Tensor& a, const Tensor& b, double, int64_t driver) {
  const char* op = "linalg.lstsq";
  check_floating(a, op);
  check_matrix(a, op, "input"), check_matrix(b, op, "other");
  check_same(a, b, op);
  TS_CHECK(driver >= kGels && driver <= kGelss, op, ": expected a driver from 0 to 3, got ", driver);
  TS_CHECK(rows(a) == rows(b), op, ": input.size(-2) should match other.size(-2), got ", rows(a), " and ", rows(b));
  int64_t m = rows(a), n = cols(a);
  Dims batch = broadcast_sizes(batch_of(a), batch_of(b), op), none{0};
  DType real = real_dtype(a.dtype());
  bool left_over = m > n && driver != kGelsy, by_values = driver == kGelsd || driver == kGelss;
  return {outline_columns(batch, n, cols(b), a.dtype(), a.device()),
          outline(left_over ? with_batch(batch, {cols(b)}) : none, real, a.device()),
          outline(driver == kGels ? none : batch, DType::Int64, a.device()),
          outline(by_values ? with_batch(batch, {std::min(m, n)}) : none, real, a.device())};
}
void lstsq_matrices(const Tensor& solution, const Tensor& residuals, const Tensor& rank, const Tensor& values,
                    const Tensor& a, const Tensor& b, double rcond, int64_t driver) {
  int64_t m = rows(a), n = cols(a), k = std::min(m, n);
  IntSpan batch = batch_of(solution);
  Tensor spent = columns_of(a, batch), x = columns(batch, std::max(m, n), cols(b), a.dtype(), a.device());
  if (x.numel()) raw_fill(x, Scalar(0));
  if (m && x.numel()) copy_broadcast(as_matrix(raw_narrow(x, x.ndim() - 1, 0, m)), b);
  Tensor found = zeros_int32(batch, a.device()), info = zeros_int32(batch, a.device()),
         s = empty_tensor(with_batch(batch, {k}), real_dtype(a.dtype()), a.device());
  if (spent.numel() && x.numel()) {
    Launch(kLeastSquares, a.device())
        .out(spent)
        .out(x)
        .out(found)
        .out(s)
        .out(info)
        .param(driver)
        .param(rcond)
        .work(spent.numel() * k)
        .run_required();
    check_info(info, "linalg.lstsq", [](int32_t code) {
      return concat("The least squares solution could not be computed because the input matrix does not have full rank "
                    "(error code: ",
                    code, ").");
    });
  }
  int64_t last[] = {-1};
  raw_copy(solution, as_matrix(raw_narrow(x, x.ndim() - 1, 0, n)));
  if (residuals.numel())
    raw_copy(residuals, ops::sum_dim(ops::square(ops::abs(raw_narrow(x, x.ndim() - 1, n, m - n))), IntSpan(last)));
  if (driver != kGels) raw_copy(rank, found);
  if (values.numel()) raw_copy(values, s);
}

// X = A^+ B; of the residuals, which X minimises, only A and B count.
void lstsq_gradient(GradContext& c) {
  Tensor a = c.arg(0), b = c.arg(1);
  if (c.has_grad(0)) {
    Tensor p = pinv_within(a, tolerances(a, Number(), Number()), false);
    c.set(1, ops::matmul(adjoint(p), c.grad(0)));
    if (c.needs(0)) c.set(0, pinv_backward(a, p, ops::matmul(c.grad(0), adjoint(b))));
  }
  if (c.has_grad(1) && c.grad(1).numel()) {
    Tensor x = c.result(0), left = ops::mul(ops::sub(ops::matmul(a, x), b), row(ops::mul(c.grad(1), 2)));
    c.set(1, ops::neg(left));
    if (c.needs(0)) c.set(0, ops::matmul(left, adjoint(x)));
  }
}

// What is left over counts only where every matrix has full rank.
bool is_full(const Tensor& rank, int64_t n) {
  static const Op item("_local_scalar_dense");
  if (rank.device().is_meta()) return false;
  Results truth;
  item.invoke(truth, ops::all(ops::eq(rank, n)));
  return truth[0].i != 0;
}

Four lstsq(const Tensor& a, const Tensor& b, Number rcond, const char* driver) {
  check_matrix(a, "linalg.lstsq", "input");
  TS_CHECK(b.ndim() >= 1, "linalg.lstsq: other must have at least 1 dimension.");
  IntSpan heights = a.sizes().first(static_cast<size_t>(a.ndim() - 1));
  bool vector =
      b.ndim() == 1 || (b.ndim() == a.ndim() - 1 && std::equal(heights.begin(), heights.end(), b.sizes().begin()));
  int64_t way = driver_of(driver), last[] = {-1};
  auto found = lstsq_op.multi<4>(a, vector ? column(b) : b, rcond.value_or(default_rtol(a)), way);
  bool by_values = way == kGelsd || way == kGelss;
  if (by_values && found[1].numel() && !is_full(found[2], cols(a)))
    found[1] = ops::zeros(Dims{0}, found[1].dtype(), a.device());
  return {vector ? ops::squeeze(found[0], IntSpan(last)) : found[0], found[1], found[2], ops::detach(found[3])};
}

void declare_pinv() {
  constexpr const char* kDoc = "Moore-Penrose inverse of A (..., m, n); singular values up to max(atol, rtol * the "
                               "largest) count as 0.";
  def("_linalg_pinv(Tensor self, Tensor atol, Tensor rtol, bool hermitian) -> Tensor")
      .rule<pinv_rule>()
      .computation<pinv_raw>(kLeastSquaresCode)
      .reads_host()
      .saves("self result")
      .gradient(pinv_gradient)
      .hidden()
      .doc(kDoc);
  // Those of tensors first: a tensor without dims is a number, too.
  def("linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> "
      "Tensor")
      .body<pinv_tensors>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor")
      .facts("stored:none")
      .body<pinv>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor")
      .body<pinv_rcond_tensor>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor")
      .body<pinv_rcond>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("pinverse(Tensor self, float rcond=1e-15) -> Tensor")
      .facts("stored:none autocast:float32/-")
      .body<pinverse>()
      .doc(kDoc);
}

void declare_rank() {
  constexpr const char* kDoc =
      "How many singular values of A (..., m, n) are greater than max(atol, rtol * the largest).";
  def("linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool "
      "hermitian=False) -> Tensor")
      .body<matrix_rank_tensors>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> "
      "Tensor")
      .facts("stored:none autocast:float32/-")
      .body<matrix_rank>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor")
      .body<matrix_rank_tol_tensor>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
  constexpr const char* kCond = "Condition number: the norm of A times that of its inverse; for 2 (None) and -2 the "
                                "quotient of the extreme singular values.";
  def("linalg_cond(Tensor self, Scalar? p=None) -> Tensor")
      .facts("autocast:float32/-")
      .body<cond>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kCond);
  def("linalg_cond.p_str(Tensor self, str p) -> Tensor").body<cond_named>().out().hidden().in("linalg").doc(kCond);
  def("linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor")
      .body<matrix_rank_tol>()
      .out()
      .hidden()
      .in("linalg")
      .doc(kDoc);
}

} // namespace

TS_OPERATORS(linalg_pinv) {
  declare_pinv();
  declare_rank();
  def("_linalg_lstsq(Tensor self, Tensor b, float rcond, int driver) -> (Tensor solution, Tensor residuals, Tensor "
      "rank, "
      "Tensor singular_values)")
      .rule<lstsq_rule>()
      .computation<lstsq_matrices, 4>(kLeastSquaresCode)
      .reads_host()
      .saves("self b result")
      .gradient(lstsq_gradient)
      .hidden()
      .doc("Least squares for matrices, by one of LAPACK's drivers gels, gelsy, gelsd and gelss (0 to 3).");
  def("linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor "
      "residuals, Tensor rank, Tensor singular_values)")
      .facts("leaf autocast:float32/-")
      .body<lstsq>()
      .data_dependent()
      .out()
      .hidden()
      .in("linalg")
      .doc("X that minimises |A X - B| for A (..., m, n) and B (..., m, k) or (..., m), the squared residuals (empty "
           "unless m > n and A of full rank, or with driver gelsy), the rank of A (not with gels) and its singular "
           "values (with gelsd and gelss). `driver`: gels, gelsy (the default), gelsd or gelss.");
}

} // namespace ts
