// Products of matrices and vectors.
#include "autograd/traced.h"
#include "ops/common/declare.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "ops/linalg/matmul_launch.h"
#include "ops/pointwise/fused_programs.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kMatmulCode = "folds broadcast batches into the matrices that the entry point matmul takes";

const Op turned_product("_matmul_turned"), blended_inplace("_blended_");

Tensor matmul_rule(const Tensor& a, const Tensor& b) { return product_outline(a, b, "matmul"); }
void matmul(const Tensor& out, const Tensor& a, const Tensor& b) { multiply_into(out, a, b); }
Tensor mm_rule(const Tensor& a, const Tensor& b) {
  TS_CHECK(a.ndim() == 2 && b.ndim() == 2, "mm: expected two matrices, got shapes ", a.sizes(), " and ", b.sizes());
  return product_outline(a, b, "mm");
}

// Products of matrices turned on their sides, which costs no view: what gradients of products are.
Tensor turned_rule(const Tensor& a, const Tensor& b, bool turn_a, bool turn_b) {
  const char* op = "_matmul_turned";
  TS_CHECK(a.ndim() == 2 && b.ndim() == 2, op, ": expected two matrices, got shapes ", a.sizes(), " and ", b.sizes());
  check_same_dtype(a, b, op);
  TS_CHECK(a.sizes()[!turn_a] == b.sizes()[turn_b], op, ": the inner sizes of shapes ", a.sizes(), " and ", b.sizes(),
           " differ");
  int64_t sizes[] = {a.sizes()[turn_a], b.sizes()[!turn_b]};
  return outline(sizes, a.dtype(), a.device());
}
void multiply_turned(const Tensor& out, const Tensor& a, const Tensor& b, bool turn_a, bool turn_b) {
  launch_product(out, Matrix(a, turn_a), Matrix(b, turn_b));
}
void turned_gradient(GradContext& c) {
  bool turn_a = c.value<bool>(2), turn_b = c.value<bool>(3);
  if (c.needs(0))
    c.set(0, turn_a ? turned_product(conjugate(c.arg(1)), c.grad(), turn_b, true)
                    : turned_product(c.grad(), conjugate(c.arg(1)), false, !turn_b));
  if (c.needs(1))
    c.set(1, turn_b ? turned_product(c.grad(), conjugate(c.arg(0)), true, turn_a)
                    : turned_product(conjugate(c.arg(0)), c.grad(), !turn_a, false));
}

void mm_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, turned_product(c.grad(), conjugate(c.arg(1)), false, true));
  if (c.needs(1)) c.set(1, turned_product(conjugate(c.arg(0)), c.grad(), true, false));
}

Tensor matmul_turned(const Tensor& t) { return ops::transpose(t, int64_t{-2}, int64_t{-1}); }
Tensor rows_of(const Tensor& t) {
  int64_t sizes[] = {checked_numel(t.sizes().first(t.sizes().size() - 1)), t.sizes().back()};
  return ops::reshape(t, IntSpan(sizes));
}
Tensor sum_as(const Tensor& t, IntSpan sizes) { return same(t.sizes(), sizes) ? t : ops::sum_to_size(t, sizes); }

void matmul_gradient(GradContext& c) {
  if (c.sizes(0).size() == 2 && c.sizes(1).size() == 2) return mm_gradient(c);
  Tensor a = conjugate(c.arg(0)), b = conjugate(c.arg(1)), grad = c.grad();
  if (b.ndim() == 1) {
    b = ops::unsqueeze(b, int64_t{-1});
    grad = ops::unsqueeze(grad, int64_t{-1});
  }
  if (a.ndim() == 1) {
    a = ops::unsqueeze(a, int64_t{0});
    grad = ops::unsqueeze(grad, int64_t{-2});
  }
  if (c.needs(0)) c.set(0, ops::reshape(sum_as(ops::matmul(grad, matmul_turned(b)), a.sizes()), c.sizes(0)));
  if (!c.needs(1)) return;
  // One matrix shared by a stack: its gradient is one product over all rows.
  Tensor db = b.ndim() == 2 && a.ndim() > 2 ? turned_product(rows_of(a), rows_of(grad), true, false)
                                            : sum_as(ops::matmul(matmul_turned(a), grad), b.sizes());
  c.set(1, ops::reshape(db, c.sizes(1)));
}

Tensor bmm_rule(const Tensor& a, const Tensor& b) {
  TS_CHECK(a.ndim() == 3 && b.ndim() == 3, "bmm: batch1 and batch2 must be 3D tensors, got shapes ", a.sizes(), " and ",
           b.sizes());
  TS_CHECK(a.size(0) == b.size(0) && a.size(2) == b.size(1),
           "bmm: Expected size for first two dimensions of batch2 tensor to be: [", a.size(0), ", ", a.size(2),
           "] but got: [", b.size(0), ", ", b.size(1), "].");
  return product_outline(a, b, "bmm");
}
void bmm_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, ops::bmm(c.grad(), matmul_turned(conjugate(c.arg(1)))));
  if (c.needs(1)) c.set(1, ops::bmm(matmul_turned(conjugate(c.arg(0))), c.grad()));
}

Tensor mv(const Tensor& m, const Tensor& v) {
  TS_CHECK(m.ndim() == 2 && v.ndim() == 1, "mv: vector + matrix @ vector expected, got ", m.ndim(), ", ", v.ndim());
  TS_CHECK(m.size(1) == v.size(0), "mv: size mismatch, got input (", m.size(0), "x", m.size(1), ") and vec (",
           v.size(0), ")");
  return ops::matmul(m, v);
}

void check_vectors(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK(a.ndim() == 1 && b.ndim() == 1, op, ": 1D tensors expected, but got ", a.ndim(), "D and ", b.ndim(),
           "D tensors");
  check_same_dtype(a, b, op);
  TS_CHECK(a.numel() == b.numel(), op, ": inconsistent tensor size, expected tensor [", a.numel(), "] and src [",
           b.numel(), "] to have the same number of elements");
}
Tensor dot(const Tensor& a, const Tensor& b) {
  check_vectors(a, b, "dot");
  return ops::matmul(a, b);
}
Tensor vdot(const Tensor& a, const Tensor& b) {
  check_vectors(a, b, "vdot");
  return ops::matmul(conjugate(a), b);
}
Tensor inner(const Tensor& a, const Tensor& b) {
  if (a.ndim() == 0 || b.ndim() == 0) return ops::mul(a, b);
  TS_CHECK(a.sizes().back() == b.sizes().back(),
           "inner: the last dimension must match on both input tensors but got shapes ", a.sizes(), " and ", b.sizes());
  if (b.ndim() == 1) return ops::matmul(a, b);
  Dims sizes(a.sizes().first(a.sizes().size() - 1));
  for (int64_t s : b.sizes().first(b.sizes().size() - 1)) sizes.push_back(s);
  if (a.numel() == 0 || b.numel() == 0) { // also keeps a link to both in the graph
    Tensor zero = ops::add(ops::sum(a), ops::sum(b));
    return ops::expand(ops::mul(zero, 0), sizes);
  }
  return ops::reshape(ops::mm(rows_of(a), matmul_turned(rows_of(b))), sizes);
}
Tensor outer(const Tensor& a, const Tensor& b) {
  TS_CHECK(a.ndim() == 1 && b.ndim() == 1, "outer: Expected 1-D arguments, but got shapes ", a.sizes(), " and ",
           b.sizes());
  return ops::mul(ops::unsqueeze(a, int64_t{1}), b);
}

// beta * self + alpha * product, as addmm and its kin do; beta 0 ignores NaN in self.
Tensor blend_outline(const char* op, const Tensor& self, const Tensor& a, const Tensor& b) {
  check_same_dtype(a, b, op);
  TS_CHECK(self.dtype() == a.dtype(), op, ": self and the matrices must have the same dtype, but got ", self.dtype(),
           " and ", a.dtype());
  Dims sizes(a.sizes());
  sizes.back() = b.sizes().back();
  expand_strides(self.sizes(), self.strides(), sizes, op);
  return outline(sizes, a.dtype(), a.device());
}
// A number beside integers loses its fraction, as in PyTorch.
Scalar whole_beside(const Tensor& t, Scalar by) {
  return is_integral(t.dtype(), false) && by.is_float() && std::isfinite(by.to_double())
             ? Scalar(static_cast<int64_t>(by.to_double()))
             : by;
}

void blend(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  beta = whole_beside(out, beta), alpha = whole_beside(out, alpha);
  bool fused = beta.is(1) && alpha.is(1);
  Tensor base = raw_expand(self, out.sizes(), "addmm");
  launch_matmul(out, a, b, fused ? base : Tensor());
  if (fused) return;
  if (!beta.is(0))
    blended_inplace(out, base, alpha, beta);
  else if (!alpha.is(1))
    ops::mul_(out, alpha);
}

Tensor addmm_rule(const Tensor& self, const Tensor& a, const Tensor& b, Scalar, Scalar) {
  TS_CHECK(a.ndim() == 2 && b.ndim() == 2, "addmm: mat1 and mat2 must be matrices, got shapes ", a.sizes(), " and ",
           b.sizes());
  TS_CHECK(a.size(1) == b.size(0), "addmm: mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1),
           " and ", b.size(0), "x", b.size(1), ")");
  return blend_outline("addmm", self, a, b);
}

// addmm and its activation at once.
Tensor activated(const Tensor& x, bool use_gelu) {
  static const Op gelu("gelu");
  return use_gelu ? gelu(x) : ops::relu(x);
}
Tensor addmm_activation_rule(const Tensor& self, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, bool) {
  return addmm_rule(self, a, b, beta, alpha);
}
void addmm_activation(const Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, Scalar beta,
                      Scalar alpha, bool use_gelu) {
  const char* text = use_gelu ? "0.5 * x * (1 + erf(x * 0.7071067811865476))" : "max(x, 0)";
  if (beta.is(1) && alpha.is(1) && multiply_program_into(out, a, b, self, program_of(text))) return;
  blend(out, self, a, b, beta, alpha);
  raw_copy(out, activated(out, use_gelu));
}
Tensor addmm_activation_parts(const Tensor& self, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha,
                              bool use_gelu) {
  return activated(ops::addmm(self, a, b, beta, alpha), use_gelu);
}
Tensor baddbmm_rule(const Tensor& self, const Tensor& a, const Tensor& b, Scalar, Scalar) {
  TS_CHECK(a.ndim() == 3 && b.ndim() == 3, "baddbmm: batch1 and batch2 must be 3D tensors, got shapes ", a.sizes(),
           " and ", b.sizes());
  TS_CHECK(a.size(0) == b.size(0) && a.size(2) == b.size(1), "baddbmm: shapes ", a.sizes(), " and ", b.sizes(),
           " cannot be multiplied");
  return blend_outline("baddbmm", self, a, b);
}

std::string product_name(const GradContext& c) {
  size_t a = c.sizes(0).size(), b = c.sizes(1).size();
  if (a > 2 || b > 2) return "BmmBackward0";
  if (a == 2 && b == 2) return "MmBackward0";
  return a == 1 && b == 1 ? "DotBackward0" : "MvBackward0";
}

Tensor scaled(const Tensor& t, Scalar by) { return by.is(1) ? t : ops::mul(t, by); }

// self, first, second, beta, alpha: shared by addmm and baddbmm.
void blend_gradient(GradContext& c) {
  Scalar beta = c.value<Scalar>(3).conj(), alpha = c.value<Scalar>(4).conj();
  const Op& product = c.sizes(1).size() == 2 ? ops::mm : ops::bmm;
  if (c.needs(0)) c.set(0, sum_as(scaled(c.grad(), beta), c.sizes(0)));
  if (c.needs(1)) c.set(1, scaled(product(c.grad(), matmul_turned(conjugate(c.arg(2)))), alpha));
  if (c.needs(2)) c.set(2, scaled(product(matmul_turned(conjugate(c.arg(1))), c.grad()), alpha));
}

Tensor add_scaled(const Tensor& self, const Tensor& product, Scalar beta, Scalar alpha) {
  beta = whole_beside(self, beta), alpha = whole_beside(product, alpha);
  Tensor right = scaled(product, alpha);
  return beta.is(0) ? ops::expand(right, broadcast_sizes(self.sizes(), right.sizes(), "addmv"))
                    : ops::add(scaled(self, beta), right);
}
Tensor addmv(const Tensor& self, const Tensor& m, const Tensor& v, Scalar beta, Scalar alpha) {
  return add_scaled(self, mv(m, v), beta, alpha);
}
// addr refuses what addmm truncates.
void check_factor(Scalar by, DType t, const char* name) {
  TS_CHECK(by.dtype() != DType::Bool, "addr: Boolean ", name, " only supported for Boolean results, got dtype ", t);
  TS_CHECK(!by.is_float() || !is_integral(t, true), "addr: For integral input tensors, argument ", name,
           " must not be a floating point number.");
}
Tensor addr(const Tensor& self, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  // Beside bools the numbers are truth values, and the result stays bool.
  if (is_bool(self.dtype()) && is_bool(a.dtype()) && is_bool(b.dtype()))
    return add_scaled(self, outer(a, b), Scalar(!beta.is(0)), Scalar(!alpha.is(0)));
  const Tensor operands[] = {self, a, b};
  DType t = result_type(operands);
  check_factor(beta, t, "beta"), check_factor(alpha, t, "alpha");
  return add_scaled(self, ops::to_dtype(outer(a, b), t), beta, alpha);
}
Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  TS_CHECK(a.ndim() == 3 && b.ndim() == 3, "addbmm: batch1 and batch2 must be 3D tensors, got shapes ", a.sizes(),
           " and ", b.sizes());
  int64_t first[] = {0};
  return add_scaled(self, ops::sum_dim(ops::bmm(a, b), IntSpan(first), false, a.dtype()), beta, alpha);
}

} // namespace

TS_OPERATORS(matmul) {
  def("matmul(Tensor self, Tensor other) -> Tensor")
      .facts("autocast:lower")
      .rule<matmul_rule>()
      .computation<matmul>(kMatmulCode)
      .saves("self other")
      .gradient(matmul_gradient)
      .node_name(product_name)
      .out(kSameDtype)
      .doc("Matrix product of the last two dims; leading dims broadcast, 1-d operands are a row (left) or a column "
           "(right).");
  def("mm(Tensor self, Tensor mat2) -> Tensor")
      .facts("autocast:lower")
      .rule<mm_rule>()
      .computation<matmul>(kMatmulCode)
      .saves("self mat2")
      .gradient(mm_gradient)
      .out(kSameDtype)
      .doc("Product of two matrices (M, K) and (K, N).");
  def("bmm(Tensor self, Tensor mat2) -> Tensor")
      .facts("autocast:lower")
      .rule<bmm_rule>()
      .computation<matmul>(kMatmulCode)
      .saves("self mat2")
      .gradient(bmm_gradient)
      .out(kSameDtype)
      .doc("Products of two stacks of matrices (B, M, K) and (B, K, N).");
  def("_matmul_turned(Tensor self, Tensor mat2, bool turn_self, bool turn_mat2) -> Tensor")
      .rule<turned_rule>()
      .computation<multiply_turned>(kMatmulCode)
      .saves("self mat2")
      .gradient(turned_gradient)
      .hidden()
      .doc("Product of two matrices, either one transposed first.");
  def("mv(Tensor self, Tensor vec) -> Tensor")
      .facts("leaf autocast:exempt/lower")
      .body<mv>()
      .out(kSameDtype)
      .doc("Product of a matrix (M, K) and a vector (K).");
  def("dot(Tensor self, Tensor tensor) -> Tensor")
      .facts("leaf autocast:exempt/widest")
      .body<dot>()
      .out(kSameDtype)
      .doc("Sum of the products of two vectors of one length, 0-d.");
  def("vdot(Tensor self, Tensor other) -> Tensor")
      .facts("leaf autocast:exempt/widest")
      .body<vdot>()
      .out(kSameDtype)
      .doc("dot, the first vector conjugated.");
  def("inner(Tensor self, Tensor other) -> Tensor")
      .body<inner>()
      .out(kSameDtype)
      .doc("Sums of products over the last dims of both.");
  def("outer(Tensor self, Tensor vec2) -> Tensor")
      .body<outer>()
      .out()
      .doc("All products of two vectors: (N), (M) to (N, M).");
  def("ger(Tensor self, Tensor vec2) -> Tensor")
      .facts("alias:outer")
      .body<outer>()
      .out()
      .doc("outer, under its BLAS name.");
  def("_blended(Tensor self, Tensor base, Scalar alpha, Scalar beta) -> Tensor")
      .pointwise("alpha * self + beta * base")
      .inplace()
      .hidden()
      .doc("What addmm makes of a product and what is added to it, in one pass.");
  def("addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .facts("autocast:lower")
      .rule<addmm_rule>()
      .computation<blend>(kMatmulCode)
      .saves("mat1 mat2")
      .gradient(blend_gradient)
      .inplace()
      .out(kSameDtype)
      .doc("beta * self + alpha * (mat1 @ mat2); self broadcasts. With beta 0 self is not read.");
  def("_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, "
      "bool use_gelu=False) -> Tensor")
      .facts("leaf")
      .rule<addmm_activation_rule>()
      .computation<addmm_activation>(kMatmulCode)
      .saves("self mat1 mat2")
      .gradient(traced_gradient<addmm_activation_parts>)
      .out()
      .doc("relu, or gelu, of addmm: one kernel where the card's product takes an epilogue.");
  def("baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .facts("autocast:lower")
      .rule<baddbmm_rule>()
      .computation<blend>(kMatmulCode)
      .saves("batch1 batch2")
      .gradient(blend_gradient)
      .inplace()
      .out(kSameDtype)
      .doc("beta * self + alpha * (batch1 @ batch2) for stacks of matrices.");
  def("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .facts("leaf autocast:-/lower")
      .body<addmv>()
      .inplace()
      .out(kSameDtype)
      .doc("beta * self + alpha * (mat @ vec).");
  def("addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .facts("leaf stored:none autocast:-/lower")
      .body<addr>()
      .inplace()
      .out()
      .doc("beta * self + alpha * outer(vec1, vec2).");
  def("addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .facts("leaf autocast:lower")
      .body<addbmm>()
      .inplace()
      .out()
      .doc("beta * self + alpha * (batch1 @ batch2).sum(0).");
}

} // namespace ts
