// Distances and angles between vectors, norms limited, traces and cross products.
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "runtime/warn_once.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

const Op distance_vector_norm("linalg_vector_norm");

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  int64_t last[] = {-1};
  return distance_vector_norm(ops::add(ops::sub(x1, x2), eps), p, IntSpan(last), keepdim);
}

// x1 . x2 / (max(|x1|, eps) max(|x2|, eps)). As in PyTorch, the gradient of a norm is not cut where eps takes its
// place.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  const Tensor both[] = {x1, x2};
  DType common = result_type(TensorList(both));
  TS_CHECK(is_floating(common), "cosine_similarity: expected common dtype to be floating point, yet got ", x1.dtype(),
           " and ", x2.dtype());
  Dims sizes = broadcast_sizes(x1.sizes(), x2.sizes(), "cosine_similarity");
  int64_t dims[] = {wrap_dim(dim, static_cast<int64_t>(sizes.size()), "cosine_similarity")};
  auto floating = [&](const Tensor& x) { return is_floating(x.dtype()) ? x : ops::to_dtype(x, common); };
  Tensor a = ops::expand(floating(x1), sizes), b = ops::expand(floating(x2), sizes);
  auto unit = [&](const Tensor& x) {
    Tensor norm = distance_vector_norm(x, 2, IntSpan(dims), true);
    Tensor missing = ops::clamp(ops::sub(eps, ops::detach(norm)), 0.0);
    return ops::div(x, ops::add(norm, missing));
  };
  Tensor products = ops::mul(unit(a), unit(b));
  return sizes.empty() ? products : ops::sum_dim(products, IntSpan(dims));
}

Tensor dist(const Tensor& self, const Tensor& other, Scalar p) {
  return distance_vector_norm(ops::sub(self, other), p);
}

// Slices along dim with a greater norm are scaled down to it.
Tensor renorm(const Tensor& self, Scalar p, int64_t dim, Scalar maxnorm) {
  TS_CHECK(p.to_double() > 0, "renorm: non-positive-norm not supported, got p = ", p.to_double());
  TS_CHECK(maxnorm.to_double() >= 0, "renorm: expected maxnorm to be >= 0 but got ", maxnorm.to_double());
  TS_CHECK(self.ndim() >= 2, "renorm: input needs at least 2 dimensions, got ", self.ndim(), " dimensions");
  int64_t d = wrap_dim(dim, self.ndim(), "renorm");
  Dims others;
  for (int64_t k = 0; k < self.ndim(); ++k)
    if (k != d) others.push_back(k);
  Tensor norm = distance_vector_norm(self, p, others, true);
  Tensor scale = ops::mul(ops::reciprocal(ops::add(norm, 1e-7)), maxnorm); // 1e-7 as PyTorch, against a division by 0
  return ops::mul(self, ops::where(ops::gt(norm, maxnorm), scale, ops::ones_like(scale)));
}

Tensor cross_along(const Tensor& a, const Tensor& b, int64_t dim) {
  TS_CHECK(a.ndim() == b.ndim(), "linalg.cross: inputs must have the same number of dimensions, got shapes ", a.sizes(),
           " and ", b.sizes());
  Dims sizes = broadcast_sizes(a.sizes(), b.sizes(), "cross");
  int64_t d = wrap_dim(dim, static_cast<int64_t>(sizes.size()), "cross");
  auto three = [&](const Tensor& t) { return t.size(d) == 3; };
  TS_CHECK(!sizes.empty() && three(a) && three(b), "linalg.cross: inputs dimension ", dim,
           " must have length 3. Got shapes ", a.sizes(), " and ", b.sizes());
  Tensor x = ops::expand(a, sizes), y = ops::expand(b, sizes);
  std::vector<Tensor> xs, ys, parts;
  for (int64_t k = 0; k < 3; ++k) {
    xs.push_back(ops::narrow(x, d, k, int64_t{1}));
    ys.push_back(ops::narrow(y, d, k, int64_t{1}));
  }
  TS_CHECK(!is_bool(x.dtype()) || !is_bool(y.dtype()),
           "linalg.cross: expected a numeric dtype, got bool; try .to() another");
  static const Op minor("_minor");
  bool half = is_half(x.dtype()) || is_half(y.dtype()); // each product is rounded to it, as PyTorch's are
  for (size_t k = 0; k < 3; ++k) {
    size_t i = (k + 1) % 3, j = (k + 2) % 3;
    parts.push_back(half ? ops::sub(ops::mul(xs[i], ys[j]), ops::mul(xs[j], ys[i]))
                         : minor(xs[i], ys[j], xs[j], ys[i]));
  }
  return ops::cat(parts, d);
}
// Without dim: the first one of size three.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim) {
  if (dim) return cross_along(a, b, *dim);
  static std::atomic<bool> warned{false};
  warn_once(warned, "Using torch.cross without specifying the dim arg is deprecated; the default will change to -1, "
                    "that of linalg.cross.");
  for (int64_t d = 0; d < a.ndim(); ++d)
    if (a.size(d) == 3) return cross_along(a, b, d);
  fail(ErrorKind::Runtime, "cross: no dimension of size 3 in input of shape ", a.sizes());
}

Tensor trace(const Tensor& self) {
  TS_CHECK(self.ndim() == 2, "trace: expected a matrix, but got tensor with dim ", self.ndim());
  return ops::sum(ops::diagonal(self));
}

} // namespace

TS_OPERATORS(distance) {
  def("pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor")
      .body<pairwise_distance>()
      .in("nn.functional")
      .function_only()
      .doc("p-norm of x1 - x2 + eps over the last dim.");
  def("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor")
      .facts("autocast:-/float32")
      .body<cosine_similarity>()
      .in("nn.functional")
      .function_only()
      .doc("Cosine of the angle between vectors along dim; norms count as eps at least.");
  def("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor")
      .facts("leaf autocast:-/float32")
      .body<dist>()
      .doc("p-norm of self - other.");
  def("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor")
      .facts("leaf stored:none autocast:-/float32")
      .body<renorm>()
      .inplace()
      .out(kSameDtype)
      .doc("self with each slice along `dim` whose p-norm is greater than maxnorm scaled down to it.");
  def("_minor(Tensor a, Tensor b, Tensor c, Tensor d) -> Tensor")
      .pointwise("a * b - c * d")
      .hidden()
      .function_only()
      .doc("A determinant of two rows and columns.");
  def("cross(Tensor self, Tensor other, int? dim=None) -> Tensor")
      .facts("stored:none autocast:-/widest")
      .body<cross>()
      .out(kSameDtype)
      .doc("Cross products of vectors of three along dim.");
  def("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor")
      .facts("leaf stored:none")
      .body<cross_along>()
      .hidden()
      .in("linalg")
      .out(kSameDtype)
      .doc("Cross products of vectors of three along dim.");
  def("trace(Tensor self) -> Tensor")
      .facts("leaf autocast:float32/-")
      .body<trace>()
      .doc("Sum of the diagonal of a matrix.");
}

} // namespace ts
