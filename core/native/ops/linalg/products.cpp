// Products and arrangements: matrix_power, matrix_exp, multi_dot, tensorsolve, tensorinv, vander, vecdot.
#include "autograd/declared.h"
#include "ops/common/declare.h"
#include "ops/linalg/lapack.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {

using namespace lapack;

namespace {

// Why what is declared here is computed by code.
const char* const kProductsCode = "squares as often as the largest norm asks for";

const Op matrix_exp_op("linalg_matrix_exp"), products_inv_op("linalg_inv"), solve_op("linalg_solve"),
    products_norm_op("linalg_matrix_norm"), products_solve_matrices("_linalg_solve"), diagonal_op("diagonal");

// --- powers

Tensor matrix_power(const Tensor& self, int64_t n) {
  const char* op = "linalg.matrix_power";
  check_square(self, op);
  // Added to zeros of self: the gradient is zero, not absent.
  if (n == 0) {
    Tensor everywhere = filled({}, Scalar(true), DType::Bool, self.device());
    return ops::add(constants_saved(ops::masked_fill(self, everywhere, Scalar(0))),
                    identities(batch_of(self), rows(self), self));
  }
  TS_CHECK(n > 0 || is_differentiable(self.dtype()), op,
           ": Expected a floating point or complex tensor for a negative power, got ", self.dtype());
  Tensor square = n < 0 ? products_inv_op(self) : self, power;
  uint64_t left = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  for (; left; left >>= 1) {
    if (left & 1) power = power.defined() ? ops::matmul(power, square) : square;
    if (left > 1) square = ops::matmul(square, square);
  }
  return n == 1 ? ops::clone(power) : power;
}

// --- the exponential, by scaling, Pade's approximant and squaring (Higham, 2005)

struct Approximant {
  std::span<const double> coefficients;
  double reach; // greatest norm for the precision of the dtype
};
constexpr double kDegree7[] = {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1};
constexpr double kDegree13[] = {64764752532480000.0,
                                32382376266240000.0,
                                7771770303897600.0,
                                1187353796428800.0,
                                129060195264000.0,
                                10559470521600.0,
                                670442572800.0,
                                33522128640.0,
                                1323241920,
                                40840800,
                                960960,
                                16380,
                                182,
                                1};
Approximant approximant(DType t) {
  if (real_dtype(t) == DType::Float64) return {kDegree13, 5.371920351148152};
  return {kDegree7, 3.925724783138660};
}

// exp(a) for norms within reach: U = a (sum of odd terms), V = sum of even ones, (V - U) X = V + U.
Tensor pade(const Tensor& a, std::span<const double> c) {
  Tensor one = identity(rows(a), a), square = ops::matmul(a, a), power = one;
  Tensor odd = ops::mul(one, c[1]), even = ops::mul(one, c[0]);
  for (size_t k = 2; k < c.size(); k += 2) {
    power = k == 2 ? square : ops::matmul(power, square);
    even = ops::add(even, ops::mul(power, c[k]));
    odd = ops::add(odd, ops::mul(power, c[k + 1]));
  }
  Tensor u = ops::matmul(a, odd);
  return products_solve_matrices.multi<4>(ops::sub(even, u), ops::add(even, u), true, false)[0];
}

Tensor matrix_exp_rule(const Tensor& self) {
  const char* op = "linalg.matrix_exp";
  TS_CHECK(is_differentiable(self.dtype()), op, ": Expected a floating point or complex tensor as input. Got ",
           self.dtype());
  check_square(self, op);
  return outline(self.sizes(), self.dtype(), self.device());
}
void matrix_exp(const Tensor& out, const Tensor& self) {
  if (rows(self) == 1) return raw_copy(out, ops::exp(self));
  Tensor a = is_half(self.dtype()) ? raw_cast(self, DType::Float32) : self;
  Approximant best = approximant(a.dtype());
  // Each matrix is halved as often as it needs.
  static const Op log2("log2"), ceil("ceil"), exp2("exp2"), isfinite("isfinite");
  Tensor norms = products_norm_op(a, 1);
  Tensor halvings = ops::clamp(ceil(log2(ops::div(norms, best.reach))), 0.0);
  halvings = ops::where(isfinite(halvings), halvings, 0.0);
  Tensor x = pade(ops::mul(a, column(column(exp2(ops::neg(halvings))))), best.coefficients);
  for (int64_t k = 0;; ++k) {
    Tensor more = ops::gt(halvings, k);
    if (!raw_truth(ops::any(more))) return raw_copy(out, x);
    x = ops::where(column(column(more)), ops::matmul(x, x), x);
  }
}
// The upper right block of exp([[A^H, g], [0, A^H]]) (Mathias, 1996).
void matrix_exp_gradient(GradContext& c) {
  Tensor ah = adjoint(c.arg(0)), g = c.grad(), none = ops::zeros_like(ah);
  int64_t n = rows(ah);
  auto beside = [](const Tensor& a, const Tensor& b, int64_t dim) { return ops::cat(std::vector<Tensor>{a, b}, dim); };
  Tensor whole = beside(beside(ah, g, -1), beside(none, ah, -1), -2);
  c.set(0, slice(slice(matrix_exp_op(whole), -2, 0, n), -1, n, 2 * n));
}

Tensor matrix_exp_old(const Tensor& a) { return matrix_exp_op(a); }

// --- products of many

// In the order of the fewest multiplications (Cormen et al., Introduction to Algorithms, 15.2).
class Chain {
public:
  explicit Chain(const std::vector<Tensor>& matrices) : matrices_(matrices) {
    size_t n = matrices.size();
    std::vector<double> sizes;
    for (const Tensor& m : matrices) sizes.push_back(static_cast<double>(rows(m)));
    sizes.push_back(static_cast<double>(cols(matrices.back())));
    std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
    splits_.assign(n, std::vector<size_t>(n, 0));
    for (size_t length = 1; length < n; ++length) {
      for (size_t i = 0; i + length < n; ++i) {
        size_t j = i + length;
        cost[i][j] = INFINITY;
        for (size_t k = i; k < j; ++k) {
          double c = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
          if (c < cost[i][j]) cost[i][j] = c, splits_[i][j] = k;
        }
      }
    }
  }
  Tensor product(size_t i, size_t j) const {
    if (i == j) return matrices_[i];
    return ops::matmul(product(i, splits_[i][j]), product(splits_[i][j] + 1, j));
  }

private:
  const std::vector<Tensor>& matrices_;
  std::vector<std::vector<size_t>> splits_;
};

Tensor multi_dot(TensorList tensors) {
  const char* op = "linalg.multi_dot";
  TS_CHECK(tensors.size() >= 2, op, ": expected at least 2 tensors but got ", tensors.size());
  std::vector<Tensor> matrices(tensors.begin(), tensors.end());
  bool row_first = matrices.front().ndim() == 1, column_last = matrices.back().ndim() == 1;
  for (size_t k = 0; k < matrices.size(); ++k) {
    bool end = k == 0 || k + 1 == matrices.size();
    TS_CHECK(matrices[k].ndim() == 2 || (end && matrices[k].ndim() == 1), op, ": tensor ", k, " must be ",
             end ? "1D or 2D" : "2D", " but got ", matrices[k].ndim(), "D");
    TS_CHECK(matrices[k].dtype() == matrices[0].dtype(), op, ": all tensors must have be the same dtype but got ",
             matrices[0].dtype(), " and ", matrices[k].dtype());
  }
  if (row_first) matrices.front() = row(matrices.front());
  if (column_last) matrices.back() = column(matrices.back());
  for (size_t k = 0; k + 1 < matrices.size(); ++k)
    TS_CHECK(cols(matrices[k]) == rows(matrices[k + 1]), op, ": tensors ", k, " and ", k + 1, " with shapes ",
             matrices[k].sizes(), " and ", matrices[k + 1].sizes(), " cannot be multiplied");
  Tensor out = Chain(matrices).product(0, matrices.size() - 1);
  Dims gone;
  if (row_first) gone.push_back(0);
  if (column_last) gone.push_back(1);
  return gone.empty() ? out : ops::squeeze(out, gone);
}

// --- tensors as matrices

int64_t product_of(IntSpan sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

Tensor tensorinv(const Tensor& self, int64_t ind) {
  const char* op = "linalg.tensorinv";
  TS_CHECK(ind > 0, op, ": Expected a strictly positive integer for 'ind', got ", ind);
  TS_CHECK(ind <= self.ndim(), op, ": expected ind up to the number of dimensions, ", self.ndim(), ", got ", ind);
  IntSpan sizes = self.sizes(), first = sizes.first(static_cast<size_t>(ind)),
          rest = sizes.subspan(static_cast<size_t>(ind));
  TS_CHECK(product_of(first) == product_of(rest), op,
           ": Expected self to satisfy the requirement prod(self.shape[ind:]) "
           "== prod(self.shape[:ind]), but got ",
           product_of(rest), " != ", product_of(first));
  Dims turned(rest);
  for (int64_t s : first) turned.push_back(s);
  return ops::reshape(products_inv_op(ops::reshape(self, Dims{product_of(rest), product_of(first)})), turned);
}

Tensor tensorsolve(const Tensor& self, const Tensor& other, std::optional<IntSpan> dims) {
  const char* op = "linalg.tensorsolve";
  Tensor a = self;
  if (dims) { // these go last
    Dims moved = wrap_dims(*dims, self.ndim(), op), order;
    for (int64_t d = 0; d < self.ndim(); ++d)
      if (std::find(moved.begin(), moved.end(), d) == moved.end()) order.push_back(d);
    for (int64_t d : moved) order.push_back(d);
    TS_CHECK(order.size() == static_cast<size_t>(self.ndim()), op, ": a dim appears twice in ", *dims);
    a = ops::permute(self, order);
  }
  TS_CHECK(other.ndim() <= a.ndim(), op, ": expected other to have at most as many dimensions as self, got ",
           other.sizes(), " and ", a.sizes());
  IntSpan x = a.sizes().subspan(static_cast<size_t>(other.ndim()));
  int64_t n = product_of(x);
  TS_CHECK(n == other.numel() && a.numel() == n * n, op,
           ": Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
           "but got ",
           n, " != ", other.numel());
  return ops::reshape(solve_op(ops::reshape(a, Dims{n, n}), ops::reshape(other, Dims{n})), x);
}

// Powers from 0 to N - 1 of each element, in a last dim.
Tensor vander(const Tensor& x, std::optional<int64_t> n) {
  const char* op = "linalg.vander";
  TS_CHECK(!is_bool(x.dtype()), op, ": Expected a numeric tensor, got ", x.dtype());
  if (x.ndim() == 0) return vander(ops::reshape(x, Dims{1}), n);
  int64_t count = n.value_or(x.size(-1));
  TS_CHECK(count > 1 || !n, op, ": N must be greater than 1, got ", count);
  TS_CHECK(count >= 1, op, ": expected at least one element, or N");
  DType t = is_integral(x.dtype(), false) ? DType::Int64 : x.dtype();
  Tensor base = column(ops::to_dtype(x, t)), ones = ops::ones_like(base);
  if (count == 1) return ones;
  Tensor many = ops::expand(base, with_batch(x.sizes(), {count - 1}));
  return ops::cat(std::vector<Tensor>{ones, ops::cumprod(many, int64_t{-1})}, int64_t{-1});
}

Tensor vander_old(const Tensor& x, std::optional<int64_t> n, bool increasing) {
  TS_CHECK(x.ndim() == 1, "vander: x must be a one-dimensional tensor, got sizes ", x.sizes());
  int64_t count = n.value_or(x.numel());
  TS_CHECK(count >= 0, "vander: N must be non-negative, got ", count);
  DType t = is_integral(x.dtype(), true) ? DType::Int64 : x.dtype();
  Tensor base = column(ops::to_dtype(x, t));
  if (count == 0) return ops::slice(base, int64_t{1}, int64_t{0}, int64_t{0}, int64_t{1});
  Tensor out = ops::ones_like(base);
  if (count > 1) {
    Tensor many = ops::expand(base, Dims{x.numel(), count - 1});
    out = ops::cat(std::vector<Tensor>{out, ops::cumprod(many, int64_t{-1})}, int64_t{-1});
  }
  int64_t last[] = {-1};
  return increasing ? out : ops::flip(out, IntSpan(last));
}

// The sum of conj(x) y along dim.
Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  const char* op = "linalg.vecdot";
  check_same(x, y, op);
  Dims sizes = broadcast_sizes(x.sizes(), y.sizes(), op);
  int64_t d = wrap_dim(dim, static_cast<int64_t>(sizes.size()), op);
  TS_CHECK(!sizes.empty(), op, ": expected tensors of at least one dimension");
  int64_t dims[] = {d};
  return ops::sum_dim(ops::mul(conjugate(x), y), IntSpan(dims), false, x.dtype());
}

Tensor diagonal(const Tensor& a, int64_t offset, int64_t dim1, int64_t dim2) {
  return diagonal_op(a, offset, dim1, dim2);
}
Tensor products_matmul(const Tensor& a, const Tensor& b) { return ops::matmul(a, b); }

void declare_powers() {
  for (const char* schema :
       {"linalg_matrix_power(Tensor self, int n) -> Tensor", "matrix_power(Tensor self, int n) -> Tensor"}) {
    Def d = def(schema);
    d.body<matrix_power>()
        .facts("stored:none")
        .out(schema[0] == 'l' ? kSameDtype : 0)
        .doc("Square matrices (..., n, n) to the power n; of the inverse if n is negative.");
    if (schema[0] == 'l') d.hidden().in("linalg");
  }
  constexpr const char* kDoc =
      "The exponential of square matrices (..., n, n), by scaling and squaring (Higham, 2005).";
  def("linalg_matrix_exp(Tensor self) -> Tensor")
      .facts("stored:none")
      .rule<matrix_exp_rule>()
      .computation<matrix_exp>(kProductsCode)
      .reads_host()
      .saves("self")
      .gradient(matrix_exp_gradient)
      .hidden()
      .in("linalg")
      .doc(kDoc);
  def("matrix_exp(Tensor self) -> Tensor").body<matrix_exp_old>().doc(kDoc);
  def("linalg_multi_dot(Tensor[] tensors) -> Tensor")
      .facts("stored:none autocast:-/lower")
      .body<multi_dot>()
      .out(kSameDtype)
      .hidden()
      .in("linalg")
      .doc("The product of two or more matrices, multiplied in the cheapest order; the first and last may be vectors.");
}

void declare_arrangements() {
  def("linalg_tensorinv(Tensor self, int ind=2) -> Tensor")
      .facts("autocast:float32/-")
      .body<tensorinv>()
      .out()
      .hidden()
      .in("linalg")
      .doc("The inverse of the map from the dims from `ind` on to those before, as tensordot applies it.");
  def("linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor")
      .facts("autocast:float32/-")
      .body<tensorsolve>()
      .out()
      .hidden()
      .in("linalg")
      .doc("X of tensordot(self, X, X.ndim) = other; self's `dims` are moved to the end first.");
  def("linalg_vander(Tensor x, *, int? N=None) -> Tensor")
      .body<vander>()
      .hidden()
      .in("linalg")
      .doc("Powers 0 to N - 1 (N: the number of elements) of the elements of x (..., n): (..., n, N).");
  def("vander(Tensor x, int? N=None, bool increasing=False) -> Tensor")
      .body<vander_old>()
      .function_only()
      .doc("Powers N - 1 to 0 (0 to N - 1 if increasing) of the elements of a vector.");
  def("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor")
      .facts("autocast:lower")
      .body<vecdot>()
      .out()
      .hidden()
      .in("linalg")
      .doc("Sums of conj(x) y along dim; x and y are broadcast.");
  def("linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)")
      .body<diagonal>()
      .hidden()
      .in("linalg")
      .doc("A view of the diagonals of the matrices in two dims.");
  def("linalg_matmul(Tensor self, Tensor other) -> Tensor")
      .body<products_matmul>()
      .out()
      .hidden()
      .in("linalg")
      .doc("The product of matrices, as tesserack.matmul.");
}

} // namespace

TS_OPERATORS(linalg_products) {
  declare_powers();
  declare_arrangements();
}

} // namespace ts
