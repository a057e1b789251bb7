// Norms of vectors and matrices, and log-sum-exp.
#include "ops/linalg/vector_norm.h"
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "ops/pointwise/fused_programs.h"
#include "ops/pointwise/kernel_call.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/backend.h"
#include "runtime/computed_dtypes.h"
#include "tensor/geometry.h"
#include <cmath>
#include <cstring>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kVectorNormCode = "a reduction with a program before it, where the card takes one";

using OptionalDims = std::optional<IntSpan>;
const Op vector_norm_op("linalg_vector_norm");

// Sum over the dims; an empty set would mean all of them to the operator.
Tensor sum_over(const Tensor& x, DimSet dims, bool keepdim) {
  return x.ndim() == 0 ? x : ops::sum_dim(x, dim_list(dims), keepdim);
}

} // namespace

Tensor vector_norm_gradient(const Tensor& x, const Tensor& grad, const Tensor& norm, double p, DimSet dims) {
  if (p == 0) return ops::mul(ops::mul(x, 0), grad);
  if (p == 1) return ops::mul(ops::sgn(x), grad);
  Tensor zero = ops::eq(norm, 0);
  // A divisor of one where the norm is zero, so that derivatives of this are 0 there too, and not 0 / 0.
  if (p == 2) return ops::mul(x, ops::masked_fill(ops::div(grad, ops::masked_fill(norm, zero, 1.0)), zero, 0.0));
  if (std::isinf(p)) {
    Tensor mask = ops::to_dtype(
        ops::logical_or(ops::eq(ops::abs(x), norm), ops::logical_and(ops::isnan(x), ops::isnan(norm))), norm.dtype());
    return ops::mul(ops::mul(ops::sgn(x), mask), ops::div(grad, sum_over(mask, dims, true)));
  }
  Tensor scale = ops::masked_fill(ops::div(grad, ops::pow(ops::masked_fill(norm, zero, 1.0), p - 1)), zero, 0.0);
  // |x|^(p-2) is not finite at zero for p < 2, but x |x|^(p-2) is zero there for p > 1 and taken so below.
  Tensor at_zero = ops::eq(x, 0);
  Tensor power = ops::pow(ops::masked_fill(ops::abs(x), at_zero, 1.0), p - 1);
  return ops::mul(ops::mul(ops::sgn(x), ops::masked_fill(power, at_zero, 0.0)), scale);
}

namespace {

// What is summed and what the result is summed in.
DType norm_dtype(const Tensor& self, DType asked) { return asked == DType::Undefined ? self.dtype() : asked; }

Tensor vector_norm_rule(const Tensor& self, Scalar ord, OptionalDims dim, bool keepdim, DType dtype) {
  const char* op = "linalg_vector_norm";
  bool complex = is_complex(self.dtype());
  TS_CHECK(is_differentiable(self.dtype()), op, ": Expected a floating point or complex tensor as input. Got ",
           self.dtype());
  TS_CHECK(dtype == DType::Undefined || is_complex(dtype) == complex, op, ": dtype should be ",
           complex ? "complex for complex inputs" : "floating point for real inputs", ", got ", dtype);
  TS_CHECK(dtype == DType::Undefined || is_differentiable(dtype), op, ": dtype should be floating point, got ", dtype);
  DimSet dims = dim_set(dim, self.ndim(), op);
  double p = ord.to_double();
  TS_CHECK(self.numel() > 0 || reduced_count(self.sizes(), dims) > 0 || (p >= 0 && !std::isinf(p)), op,
           ": cannot compute the ", p, " norm on an empty tensor because the operation does not have an identity");
  return reduce_outline(op, TS_R_SUM, self, dims, keepdim, real_type(norm_dtype(self, dtype)));
}

// The least norm whose powers have lost nothing to denormals, as far as one can tell from the norm.
double least_sure_norm(DType t, double p) {
  return std::pow(t == DType::Float64 ? 0x1p-1022 / 0x1p-52 : 0x1p-126 / 0x1p-23, 1 / p);
}

// Powers of magnitudes that over- or underflow, taken once more of the magnitudes over the greatest.
void rescale(const Tensor& norms, const Tensor& x, double p, DimSet dims) {
  Tensor size = ops::abs(x), most = x.ndim() ? ops::amax(size, dim_list(dims), true) : size;
  Tensor usable = ops::logical_and(ops::gt(most, 0), ops::lt(most, INFINITY));
  Tensor unit = ops::where(usable, most, filled({}, 1.0, x.dtype(), x.device()));
  Tensor sum = sum_over(ops::pow(ops::div(size, unit), p), dims, true);
  raw_copy(norms, ops::reshape(ops::mul(ops::pow(sum, 1 / p), unit), norms.sizes()));
}

// Where to look at results is to wait, squares of float32 are added up in float64, which holds them all, if the
// device has it.
bool wide_squares(const Tensor& out, const Tensor& x, DimSet dims) {
  if (x.dtype() != DType::Float32 || !backend_of(x.device()).is_async(x.device().index)) return false;
  Tensor wide = empty_tensor(out.sizes(), DType::Float64, x.device());
  if (!reduce_program_into(wide, TS_R_SUM, x, dims, program_of("x * x"))) return false;
  Launch root(kPointwise, x.device());
  root.out(out).in(wide).program(program_of("sqrt(x)")).compute(DType::Float64).run_required();
  return true;
}

bool widens(DType from, DType to) {
  return from != to && !is_complex(from) && !is_narrow(from) && item_size(from) < item_size(to);
}

void vector_norm(const Tensor& out, const Tensor& self, Scalar ord, OptionalDims dim, bool keepdim, DType dtype) {
  static const Op sqrt_("sqrt_"), pow_("pow_");
  DimSet dims = dim_set(dim, self.ndim(), "linalg_vector_norm");
  double p = ord.to_double();
  DType computed = norm_dtype(self, dtype);
  DType type = computed == DType::Complex32 ? DType::Complex64 : accumulate_type(computed, self.device());
  bool squares = p == 2 && !is_complex(type), summed = false,
       waits = !backend_of(out.device()).is_async(out.device().index);
  Tensor sums = real_type(type) == out.dtype() ? out : empty_tensor(out.sizes(), real_type(type), out.device());
  // Squares of a narrower type are added up as they are read, where what over- or underflows is seen below.
  if (squares && waits && widens(self.dtype(), type))
    summed = reduce_program_into(sums, TS_R_SUM, self, dims, program_of("x * x"));
  Tensor x = summed ? self : raw_cast(self, type);
  if (p != 2 || is_complex(type)) x = ops::abs(x);
  if (std::isinf(p) && x.ndim() == 0) return raw_copy(out, x);
  if (std::isinf(p)) return raw_copy(out, (p > 0 ? ops::amax : ops::amin)(x, dim_list(dims), keepdim));
  if (p == 2 && !summed && wide_squares(out, x, dims)) return;
  if (!summed && (!squares || !reduce_program_into(sums, TS_R_SUM, x, dims, program_of("x * x"))))
    reduce_into(sums, TS_R_SUM, p == 0 ? ops::ne(x, 0) : p == 1 ? x : p == 2 ? ops::square(x) : ops::pow(x, p), dims);
  if (p == 2)
    sqrt_(sums);
  else if (p != 0 && p != 1)
    pow_(sums, 1 / p);
  if (p > 1 && sums.numel() && self.numel() && waits) {
    Tensor unsure = ops::logical_or(ops::eq(sums, INFINITY), ops::lt(sums, least_sure_norm(sums.dtype(), p)));
    if (raw_truth(ops::any(unsure))) rescale(sums, raw_cast(x, sums.dtype()), p, dims);
  }
  if (!sums.is(out)) raw_copy(out, sums);
}

void norm_gradient(GradContext& c) {
  Tensor x = c.arg(0);
  x = as_dtype(x, is_complex(x.dtype()) ? complex_type(c.grad().dtype()) : c.grad().dtype());
  DimSet dims = dim_set(c.value<OptionalDims>(2), x.ndim(), "linalg_vector_norm");
  bool keepdim = c.value<bool>(3);
  Tensor grad = restore_dims(c.grad(), x.sizes(), dims, keepdim),
         norm = restore_dims(c.result(), x.sizes(), dims, keepdim);
  c.set(0, as_dtype(vector_norm_gradient(x, grad, norm, c.value<Scalar>(1).to_double(), dims), c.dtype(0)));
}

Tensor norm(const Tensor& self, std::optional<Scalar> p, OptionalDims dim, bool keepdim, DType dtype) {
  return vector_norm_op(self, p.value_or(Scalar(2)), dim, keepdim, dtype);
}
// 'fro' over any dims is the 2-norm of the elements, 'nuc' the sum of a matrix's singular values.
Tensor norm_named(const Tensor& self, const char* p, OptionalDims dim, bool keepdim, DType dtype) {
  if (!std::strcmp(p, "nuc")) {
    static const Op nuclear("linalg_matrix_norm.str_ord");
    TS_CHECK(dim ? dim->size() == 2 : self.ndim() == 2, "norm: expected two dims for the nuclear norm of sizes ",
             self.sizes());
    return nuclear(self, "nuc", IntSpan(dim ? Dims(*dim) : Dims{0, 1}), keepdim, dtype);
  }
  TS_CHECK_VALUE(std::strcmp(p, "fro") == 0, "norm: expected p to be a number, 'fro' or 'nuc', got '", p, "'");
  return vector_norm_op(self, 2, dim, keepdim, dtype);
}

// --- norms of matrices, seen along two dims
const Op matrix_norm_op("linalg_matrix_norm"), matrix_norm_named("linalg_matrix_norm.str_ord");

Dims two_dims(const Tensor& self, IntSpan dim, const char* op) {
  TS_CHECK(self.ndim() >= 2, op, ": The input tensor A must have at least 2 dimensions, got sizes ", self.sizes());
  TS_CHECK(dim.size() == 2, op, ": dim must be a 2-tuple. Got ", dim);
  Dims dims = wrap_dims(dim, self.ndim(), op);
  return dims;
}

// Singular values of the matrices in two dims, which stand last in the result (..., values).
Tensor singular_values(const Tensor& self, IntSpan dims, DType dtype) {
  static const Op svdvals("linalg_svdvals");
  Dims order;
  for (int64_t d = 0; d < self.ndim(); ++d)
    if (d != dims[0] && d != dims[1]) order.push_back(d);
  order.push_back(dims[0]), order.push_back(dims[1]);
  Tensor x = ops::permute(self, order);
  return svdvals(dtype == DType::Undefined ? x : ops::to_dtype(x, dtype));
}
// Dims of size 1 where the matrices were.
Tensor with_matrix_dims(Tensor x, IntSpan dims, bool keepdim) {
  if (!keepdim) return x;
  x = ops::unsqueeze(x, std::min(dims[0], dims[1]));
  return ops::unsqueeze(x, std::max(dims[0], dims[1]));
}

// The greatest of nothing is 0; there is no least.
Tensor extreme_or_zero(const Tensor& x, int64_t dim, bool greatest) {
  IntSpan dims(&dim, 1);
  if (greatest && x.ndim() && x.sizes()[wrap_dim(dim, x.ndim(), "linalg.matrix_norm")] == 0)
    return ops::sum_dim(x, dims, true);
  return (greatest ? ops::amax : ops::amin)(x, dims, true);
}

// The greatest or least singular value (2), or sum of magnitudes of a column (1) or a row (infinity).
Tensor matrix_norm(const Tensor& self, Scalar ord, IntSpan dim, bool keepdim, DType dtype) {
  const char* op = "linalg.matrix_norm";
  double p = ord.to_double(), size = std::abs(p);
  TS_CHECK(size == 1 || size == 2 || std::isinf(p), op, ": Order ", p,
           " not supported; expected 1, -1, 2, -2, inf, -inf, 'fro' or 'nuc'");
  TS_CHECK(is_differentiable(self.dtype()), op, ": Expected a floating point or complex tensor as input. Got ",
           self.dtype());
  Dims dims = two_dims(self, dim, op);
  if (size == 2) {
    Tensor s = singular_values(self, dims, dtype);
    return with_matrix_dims(ops::squeeze(extreme_or_zero(s, -1, p > 0), Dims{-1}), dims, keepdim);
  }
  if (std::isinf(p)) std::swap(dims[0], dims[1]);
  Tensor x = ops::abs(dtype == DType::Undefined ? self : ops::to_dtype(self, dtype));
  Tensor sums = ops::sum_dim(x, IntSpan(&dims[0], 1), true);
  Tensor out = extreme_or_zero(sums, dims[1], p > 0);
  return keepdim ? out : ops::squeeze(out, dims);
}
Tensor matrix_norm_of(const Tensor& self, const char* ord, IntSpan dim, bool keepdim, DType dtype) {
  const char* op = "linalg.matrix_norm";
  if (!std::strcmp(ord, "nuc")) {
    Dims dims = two_dims(self, dim, op);
    return with_matrix_dims(ops::sum_dim(singular_values(self, dims, dtype), Dims{-1}), dims, keepdim);
  }
  TS_CHECK(!std::strcmp(ord, "fro"), op, ": Order ", ord, " not supported; expected 'fro', 'nuc' or a number");
  return vector_norm_op(self, 2, two_dims(self, dim, op), keepdim, dtype);
}

// The two last dims, or those given, if they are to be taken as matrices.
Dims matrix_dims(const Tensor& self, OptionalDims dim) {
  TS_CHECK(dim || self.ndim() == 2, "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got ",
           self.ndim(), "D.");
  TS_CHECK(!dim || dim->size() == 2, "linalg.norm: If dim is specified, it must be of length 1 or 2. Got ", *dim);
  return dim ? Dims(*dim) : Dims{0, 1};
}
Tensor linalg_norm(const Tensor& self, std::optional<Scalar> ord, OptionalDims dim, bool keepdim, DType dtype) {
  if (!ord) return vector_norm_op(self, 2, dim, keepdim, dtype);
  if (dim ? dim->size() == 1 : self.ndim() == 1) return vector_norm_op(self, *ord, dim, keepdim, dtype);
  return matrix_norm_op(self, *ord, matrix_dims(self, dim), keepdim, dtype);
}
Tensor linalg_norm_named(const Tensor& self, const char* ord, OptionalDims dim, bool keepdim, DType dtype) {
  return matrix_norm_named(self, ord, matrix_dims(self, dim), keepdim, dtype);
}

Tensor logsumexp_rule(const Tensor& self, IntSpan dim, bool keepdim) {
  DimSet dims = dim_set(OptionalDims(dim), self.ndim(), "logsumexp");
  return reduce_outline("logsumexp", TS_R_SUM, self, dims, keepdim, to_floating(self.dtype()));
}
void logsumexp(const Tensor& out, const Tensor& self, IntSpan dim, bool) {
  if (self.ndim() == 0 && !is_complex(self.dtype())) return raw_copy(out, self);
  if (self.numel() == 0) return raw_fill(out, Scalar(-INFINITY));
  if (self.ndim() == 0) { // the principal branch
    Tensor shift = ops::real(self);
    return raw_copy(out, ops::add(ops::log(ops::exp(ops::sub(self, shift))), shift));
  }
  DimSet dims = dim_set(OptionalDims(dim), self.ndim(), "logsumexp");
  Tensor wide = raw_cast(self, accumulate_type(out));
  Tensor top = ops::amax(is_complex(wide.dtype()) ? ops::real(wide) : wide, dim_list(dims), true);
  // An infinite maximum is the result itself; subtracting it would give NaN.
  Tensor shift = ops::masked_fill(top, ops::eq(ops::abs(top), INFINITY), 0.0);
  Tensor sums = ops::sum_dim(ops::exp(ops::sub(wide, shift)), dim_list(dims), true);
  Tensor whole = ops::add(ops::log(sums), shift);
  raw_copy(out, alias(whole, out.sizes(), contiguous_strides(out.sizes()), whole->byte_offset));
}
void logsumexp_gradient(GradContext& c) {
  Tensor x = c.arg(0);
  if (x.ndim() == 0) return c.set(0, c.grad());
  DimSet dims = dim_set(c.value<OptionalDims>(1), x.ndim(), "logsumexp");
  bool keepdim = c.value<bool>(2);
  Tensor grad = restore_dims(c.grad(), x.sizes(), dims, keepdim),
         result = restore_dims(c.result(), x.sizes(), dims, keepdim);
  // Rows of -inf alone have no share to give; beside +inf everything else has none, and its own is not defined.
  Tensor share = ops::exp(ops::sub(x, ops::masked_fill(result, ops::eq(result, -INFINITY), 0.0)));
  c.set(0, ops::mul(grad, conjugate(share)));
}

} // namespace

TS_OPERATORS(vector_norm) {
  constexpr const char* kDoc = "p-norm of the elements over the dims (all for None): (sum |x|^p)^(1/p); the count of "
                               "nonzeros for 0, extremes for infinities.";
  def("linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) "
      "-> Tensor")
      .facts("stored:complex32 autocast:-/float32")
      .rule<vector_norm_rule>()
      .computation<vector_norm>(kVectorNormCode)
      .reads_host()
      .saves("self result")
      .gradient(norm_gradient)
      .hidden()
      .in("linalg")
      .out(kSameDtype)
      .doc(kDoc);
  constexpr const char* kMatrixDoc = "Norm of the matrices along two dims: 'fro', 'nuc' (the sum of singular values), "
                                     "or for 2, 1 and infinity the greatest singular value, sum of magnitudes of a "
                                     "column or row; for -2, -1 and -infinity the least.";
  def("linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) "
      "-> Tensor")
      .facts("autocast:-/float32")
      .body<matrix_norm>()
      .hidden()
      .in("linalg")
      .out()
      .doc(kMatrixDoc);
  def("linalg_matrix_norm.str_ord(Tensor self, str ord='fro', int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? "
      "dtype=None) -> Tensor")
      .body<matrix_norm_of>()
      .hidden()
      .in("linalg")
      .out()
      .doc(kMatrixDoc);
  def("linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> "
      "Tensor")
      .body<linalg_norm>()
      .hidden()
      .in("linalg")
      .out()
      .doc("2-norm of all elements; with ord or dim, the norm of vectors along one dim or of matrices along two.");
  def("linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> "
      "Tensor")
      .body<linalg_norm_named>()
      .hidden()
      .in("linalg")
      .out()
      .doc("Norm of matrices, named as for matrix_norm.");
  def("norm(Tensor self, Scalar? p=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .facts("stored:complex32 autocast:-/float32")
      .body<norm>()
      .out()
      .doc(kDoc);
  def("norm.name(Tensor self, str p, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")
      .body<norm_named>()
      .out()
      .doc(kDoc);
  def("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor")
      .facts("autocast:-/float32")
      .rule<logsumexp_rule>()
      .computation<logsumexp>(kVectorNormCode)
      .saves("self result")
      .gradient(logsumexp_gradient)
      .out()
      .doc("log(sum(exp(x))) over the dims, without overflow.");
}

} // namespace ts
