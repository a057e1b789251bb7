// Distances between all pairs of rows, without the differences of all pairs at once.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/linalg/vector_norm.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"
#include <algorithm>
#include <cstring>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kCdistCode = "steps through rows so that the differences fit memory";

const Op by_products("cdist_by_products"), by_differences("cdist_by_differences"),
    pairs_by_differences("pdist_by_differences"), distance_gradient("distance_gradient"),
    from_products("distances_of_products"), from_products_into("distances_of_products.out");
const Op cdist_vector_norm("linalg_vector_norm"), combinations("combinations");
constexpr char kIfNecessary[] = "use_mm_for_euclid_dist_if_necessary";
constexpr int64_t kProductsFrom = 25;              // rows; as PyTorch
constexpr int64_t kDifferences = int64_t{1} << 18; // elements at a time: they stay in a cache

void check_norm(const Tensor& x, double p, const char* op) {
  TS_CHECK(is_floating(x.dtype()), op, ": only supports floating-point dtypes, got ", x.dtype());
  TS_CHECK(p >= 0, op, ": only supports non-negative p values, got ", p);
}

// The result's sizes, (..., P, R) for (..., P, M) and (..., R, M).
Dims check_pair(const Tensor& x1, const Tensor& x2, double p) {
  const char* op = "cdist";
  IntSpan a = x1.sizes(), b = x2.sizes();
  TS_CHECK(a.size() >= 2 && b.size() >= 2, op, ": only supports at least 2D tensors, got ", a, " and ", b);
  TS_CHECK(a.back() == b.back(), op, ": X1 and X2 must have the same number of columns. X1: ", a, " X2: ", b);
  check_norm(x1, p, op), check_norm(x2, p, op);
  Dims sizes = broadcast_sizes(a.first(a.size() - 2), b.first(b.size() - 2), op);
  sizes.push_back(a[a.size() - 2]);
  sizes.push_back(b[b.size() - 2]);
  return sizes;
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, const char* compute_mode) {
  const char* op = "cdist";
  check_pair(x1, x2, p);
  bool always = !std::strcmp(compute_mode, "use_mm_for_euclid_dist"),
       never = !std::strcmp(compute_mode, "donot_use_mm_for_euclid_dist");
  TS_CHECK_VALUE(always || never || !std::strcmp(compute_mode, kIfNecessary), op, ": expected compute_mode to be '",
                 kIfNecessary, "', 'use_mm_for_euclid_dist' or 'donot_use_mm_for_euclid_dist', got '", compute_mode,
                 "'");
  DType dtype = promote_types(x1.dtype(), x2.dtype());
  Tensor a = as_dtype(x1, dtype), b = as_dtype(x2, dtype);
  bool many = a.size(-2) > kProductsFrom || b.size(-2) > kProductsFrom;
  if (p == 2 && (always || (!never && many))) return by_products(a, b);
  return by_differences(a, b, p);
}

// --- |a - b|^2 = |a|^2 + |b|^2 - 2 a.b

Tensor cdist_turned(const Tensor& x) { return ops::transpose(x, int64_t{-2}, int64_t{-1}); }
Tensor row_sums(const Tensor& x, int64_t dim) {
  int64_t dims[] = {dim};
  return ops::sum_dim(x, IntSpan(dims), true);
}

Tensor by_products_rule(const Tensor& x1, const Tensor& x2) {
  check_same_dtype(x1, x2, "cdist");
  return outline(check_pair(x1, x2, 2), x1.dtype(), x1.device());
}
void cdist_by_products(const Tensor& out, const Tensor& x1, const Tensor& x2) {
  DType wide = accumulate_type(x1);
  Tensor a = raw_cast(x1, wide), b = raw_cast(x2, wide);
  Tensor products = ops::matmul(a, cdist_turned(b)), squares = cdist_turned(row_sums(ops::square(b), -1));
  if (wide == out.dtype())
    from_products_into(products, row_sums(ops::square(a), -1), squares, out);
  else
    raw_copy(out, from_products(products, row_sums(ops::square(a), -1), squares));
}
// Where rows coincide the gradient is zero, a subgradient.
void products_gradient(GradContext& c) {
  Tensor distance = c.result();
  Tensor share = ops::masked_fill(ops::div(c.grad(), distance), ops::eq(distance, 0), 0.0);
  if (c.needs(0)) {
    Tensor grad = ops::sub(ops::mul(c.arg(0), row_sums(share, -1)), ops::matmul(share, c.arg(1)));
    c.set(0, ops::sum_to_size(grad, c.sizes(0)));
  }
  if (c.needs(1)) {
    Tensor back = cdist_turned(share);
    Tensor grad = ops::sub(ops::mul(c.arg(1), row_sums(back, -1)), ops::matmul(back, c.arg(0)));
    c.set(1, ops::sum_to_size(grad, c.sizes(1)));
  }
}

// --- norms of differences

// body(first, count) for rows of x1 whose differences from all of x2 fit.
template <class Body> void each_block(const Tensor& x1, const Tensor& x2, IntSpan result, const Body& body) {
  int64_t rows = x1.size(-2), others = 1;
  for (size_t d = 0; d + 2 < result.size(); ++d) others *= result[d];
  others *= std::max<int64_t>(1, x2.size(-2) * x2.size(-1));
  int64_t step = std::max<int64_t>(1, kDifferences / std::max<int64_t>(1, others));
  for (int64_t i = 0; i == 0 || i < rows; i += step) body(i, std::min(step, rows - i));
}
Tensor differences(const Tensor& x1, const Tensor& x2, int64_t first, int64_t count) {
  Tensor rows = count == x1.size(-2) ? x1 : ops::narrow(x1, int64_t{-2}, first, count);
  return ops::sub(ops::unsqueeze(rows, int64_t{-2}), ops::unsqueeze(x2, int64_t{-3}));
}
Tensor joined(std::vector<Tensor>& parts) { return parts.size() == 1 ? parts[0] : ops::cat(parts, int64_t{-2}); }

Tensor by_differences_rule(const Tensor& x1, const Tensor& x2, double p) {
  check_same_dtype(x1, x2, "cdist");
  return outline(check_pair(x1, x2, p), x1.dtype(), x1.device());
}
void cdist_by_differences(const Tensor& out, const Tensor& x1, const Tensor& x2, double p) {
  if (x1.size(-1) == 0) p = 1; // zeros, where a greatest difference would have no meaning
  int64_t last[] = {-1};
  each_block(x1, x2, out.sizes(), [&](int64_t first, int64_t count) {
    raw_copy(raw_narrow(out, out.ndim() - 2, first, count),
             cdist_vector_norm(differences(x1, x2, first, count), p, IntSpan(last)));
  });
}
using Two = std::tuple<Tensor, Tensor>;
// Those by x1 and x2, with the leading dims of the distances, or without elements where they are not wanted.
Two gradient_rule(const Tensor& grad, const Tensor& x1, const Tensor& x2, const Tensor& distance, double p, bool first,
                  bool second) {
  const char* op = "cdist";
  check_same_dtype(x1, x2, op), check_same_dtype(x1, grad, op), check_same_dtype(x1, distance, op);
  Dims sizes = check_pair(x1, x2, p);
  TS_CHECK(same(grad.sizes(), sizes) && same(distance.sizes(), sizes), op, ": expected gradients and distances of ",
           sizes.span(), ", got ", grad.sizes(), " and ", distance.sizes());
  auto like = [&](const Tensor& x, bool wanted) {
    Dims wide = sizes;
    std::copy(x.sizes().end() - 2, x.sizes().end(), wide.end() - 2);
    return outline(wanted ? wide : Dims{0}, x.dtype(), x.device());
  };
  return {like(x1, first), like(x2, second)};
}
Two gradient_parts(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor& distance, double p, bool first,
                   bool second) {
  std::vector<Tensor> rows;
  Tensor columns;
  each_block(a, b, distance.sizes(), [&](int64_t begin, int64_t count) {
    auto part = [&](const Tensor& t) { return ops::unsqueeze(ops::narrow(t, int64_t{-2}, begin, count), int64_t{-1}); };
    Tensor x = differences(a, b, begin, count);
    Tensor g = vector_norm_gradient(x, part(grad), part(distance), p, dim_set(-1, x.ndim(), "cdist"));
    int64_t over_columns[] = {-2}, over_rows[] = {-3};
    if (first) rows.push_back(ops::sum_dim(g, IntSpan(over_columns)));
    if (!second) return;
    Tensor sums = ops::sum_dim(g, IntSpan(over_rows));
    columns = columns.defined() ? ops::add(columns, sums) : sums;
  });
  Tensor none = first && second ? Tensor() : empty_tensor(Dims{0}, a.dtype(), a.device());
  return {first ? joined(rows) : none, second ? ops::neg(columns) : none};
}
Two gradient_by_kernel(const Tensor& grad, const Tensor& x1, const Tensor& x2, const Tensor& distance, double p,
                       bool first, bool second) {
  static const Op kernel("_distance_gradient");
  auto [rows, columns] = kernel.multi<2>(grad, x1, x2, distance, p, first, second);
  return {rows, columns};
}
void differences_gradient(GradContext& c) {
  auto [rows, columns] =
      distance_gradient.multi<2>(c.grad(), c.arg(0), c.arg(1), c.result(), c.value<double>(2), c.needs(0), c.needs(1));
  if (c.needs(0)) c.set(0, ops::sum_to_size(rows, c.sizes(0)));
  if (c.needs(1)) c.set(1, ops::sum_to_size(columns, c.sizes(1)));
}

// --- pairs of the rows of one matrix

// Where pairs (0, 1), (0, 2), ... stand in a square: the upper triangle of cdist.
Tensor places(const Tensor& self) {
  Tensor pairs = combinations(counting(self.size(0), self.device()));
  return ops::add(ops::mul(ops::select(pairs, int64_t{1}, int64_t{0}), self.size(0)),
                  ops::select(pairs, int64_t{1}, int64_t{1}));
}
Tensor pairs_rule(const Tensor& self, double p) {
  TS_CHECK(self.ndim() == 2, "pdist: only supports 2D tensors, got sizes ", self.sizes());
  check_norm(self, p, "pdist");
  int64_t rows = self.size(0);
  return outline(Dims{std::max<int64_t>(0, rows * (rows - 1) / 2)}, self.dtype(), self.device());
}
Tensor pairs_of_square(const Tensor& self, double p) {
  int64_t all[] = {self.size(0) * self.size(0)};
  return ops::index_select(ops::view(by_differences(self, self, p), IntSpan(all)), int64_t{0}, places(self));
}
Tensor pairs_gradient_rule(const Tensor& grad, const Tensor& self, const Tensor& distance, double p) {
  const char* op = "pdist";
  check_same_dtype(self, grad, op), check_same_dtype(self, distance, op);
  Tensor pairs = pairs_rule(self, p);
  TS_CHECK(same(grad.sizes(), pairs.sizes()) && same(distance.sizes(), pairs.sizes()), op,
           ": expected gradients and distances of ", pairs.sizes(), ", got ", grad.sizes(), " and ", distance.sizes());
  return outline(self.sizes(), self.dtype(), self.device());
}
Tensor pairs_gradient_of_square(const Tensor& grad, const Tensor& x, const Tensor& distance, double p) {
  static const Op index_copy("index_copy");
  Tensor at = places(x);
  int64_t rows = x.size(0), square[] = {rows, rows};
  auto symmetric = [&](const Tensor& t) {
    Tensor upper = ops::view(index_copy(filled(Dims{rows * rows}, 0.0, t.dtype(), t.device()), int64_t{0}, at, t),
                             IntSpan(square));
    return ops::add(upper, cdist_turned(upper));
  };
  return distance_gradient.multi<2>(symmetric(grad), x, x, symmetric(distance), p, true, false)[0];
}
Tensor pairs_gradient_by_kernel(const Tensor& grad, const Tensor& x, const Tensor& distance, double p) {
  static const Op kernel("_pdist_gradient");
  return kernel(grad, x, distance, p);
}
void pairs_gradient(GradContext& c) {
  static const Op gradient("pdist_gradient");
  c.set(0, gradient(c.grad(), c.arg(0), c.result(), c.value<double>(1)));
}

Tensor pdist(const Tensor& self, double p) { return pairs_by_differences(self, p); }

} // namespace

TS_OPERATORS(cdist) {
  def("cdist(Tensor x1, Tensor x2, float p=2.0, str compute_mode='use_mm_for_euclid_dist_if_necessary') -> Tensor")
      .facts("autocast:float32")
      .body<cdist>()
      .function_only()
      .doc("p-norm distances between all rows of (..., P, M) and (..., R, M): (..., P, R). For p = 2 a matrix product "
           "gives them where there are more than 25 rows (or always: 'use_mm_for_euclid_dist', or never: "
           "'donot_use_mm_for_euclid_dist'), which loses digits of small distances far from the origin.");
  def("cdist_by_products(Tensor x1, Tensor x2) -> Tensor")
      .node_name("CdistBackward0")
      .rule<by_products_rule>()
      .computation<cdist_by_products>(kCdistCode)
      .saves("x1 x2 result")
      .gradient(products_gradient)
      .hidden()
      .doc("cdist for p = 2 by a matrix product.");
  def("cdist_by_differences(Tensor x1, Tensor x2, float p) -> Tensor")
      .node_name("CdistBackward0")
      .rule<by_differences_rule>()
      .kernel("cdist", "x1 x2: contiguous", "p")
      .decompose<cdist_by_differences>()
      .saves("x1 x2 result")
      .gradient(differences_gradient)
      .hidden()
      .doc("cdist by norms of differences, of so many rows at a time as fit a cache.");
  def("pdist_by_differences(Tensor self, float p) -> Tensor")
      .node_name("PdistBackward0")
      .rule<pairs_rule>()
      .kernel("pdist", "self: contiguous", "p")
      .decompose<pairs_of_square>()
      .saves("self result")
      .gradient(pairs_gradient)
      .hidden()
      .doc("Norms of the differences of all pairs of rows.");
  def("_pdist_gradient(Tensor grad, Tensor self, Tensor distance, float p) -> Tensor")
      .rule<pairs_gradient_rule>()
      .kernel("pdist_backward", "grad self distance: contiguous", "p")
      .decompose<pairs_gradient_of_square>()
      .not_differentiable()
      .hidden()
      .doc("pdist_gradient without a gradient of its own.");
  def("pdist_gradient(Tensor grad, Tensor self, Tensor distance, float p) -> Tensor")
      .body<pairs_gradient_by_kernel>()
      .when_recorded<pairs_gradient_of_square>()
      .hidden()
      .doc("The gradient of pdist.");
  def("_distance_gradient(Tensor grad, Tensor x1, Tensor x2, Tensor distance, float p, bool first, bool second) -> "
      "(Tensor, Tensor)")
      .rule<gradient_rule>()
      .kernel("cdist_backward", "grad x1 x2 distance: contiguous", "p")
      .decompose<gradient_parts>()
      .not_differentiable()
      .hidden()
      .doc("distance_gradient without a gradient of its own.");
  def("distance_gradient(Tensor grad, Tensor x1, Tensor x2, Tensor distance, float p, bool first, bool second) -> "
      "(Tensor, Tensor)")
      .body<gradient_by_kernel>()
      .when_recorded<gradient_parts>()
      .hidden()
      .doc("The gradients of cdist by differences, by x1 and by x2, of which those not asked for have no elements.");
  def("distances_of_products(Tensor products, Tensor squares, Tensor other_squares) -> Tensor")
      .pointwise("sqrt(max(squares + other_squares - 2 * products, 0))")
      .not_differentiable()
      .out()
      .hidden()
      .doc("|a - b| from a.b, |a|^2 and |b|^2.");
  def("pdist(Tensor self, float p=2.0) -> Tensor")
      .facts("autocast:-/float32")
      .body<pdist>()
      .function_only()
      .in("nn.functional")
      .doc("p-norm distances between all pairs of rows of a matrix, in the order of the upper triangle of cdist.");
}

} // namespace ts
