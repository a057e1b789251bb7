// Differences of neighbours and integrals by the trapezoidal rule: diff, trapezoid, cumulative_trapezoid.
#include "autograd/declared.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

Tensor all_but_last(const Tensor& t, int64_t d) { return ops::narrow(t, d, int64_t{0}, t.sizes()[d] - 1); }
Tensor all_but_first(const Tensor& t, int64_t d) { return ops::narrow(t, d, int64_t{1}, t.sizes()[d] - 1); }

Tensor extended(const Tensor& self, int64_t d, const Tensor& before, const Tensor& after) {
  std::vector<Tensor> parts{self};
  if (before.defined()) parts.insert(parts.begin(), before);
  if (after.defined()) parts.push_back(after);
  for (const Tensor& t : parts)
    TS_CHECK(t.ndim() == self.ndim(), "diff: expects prepend or append to be the same dimension as input, got sizes ",
             t.sizes(), " beside ", self.sizes());
  return parts.size() == 1 ? self : ops::cat(parts, d);
}

Tensor diff(const Tensor& self, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  TS_CHECK(self.ndim() >= 1, "diff: expects input to be at least one-dimensional");
  TS_CHECK(n >= 0, "diff: order must be non-negative but got ", n);
  int64_t d = wrap_dim(dim, self.ndim(), "diff");
  if (n == 0) return ops::clone(self); // as it is, whatever stands beside it: as in NumPy and PyTorch
  Tensor x = extended(self, d, prepend, append);
  if (n >= x.sizes()[d]) return ops::clone(ops::narrow(x, d, int64_t{0}, int64_t{0}));
  static const Op logical_xor("logical_xor");
  const Op& minus = is_bool(x.dtype()) ? logical_xor : ops::sub;
  for (int64_t k = 0; k < n; ++k) x = minus(all_but_first(x, d), all_but_last(x, d));
  return x;
}

// Scaled by a number, which another pass backward finds still there.
Tensor times(const Tensor& t, double factor) { return constants_saved(ops::mul(t, factor)); }

// Twice the mean of each two neighbours.
Tensor pairs(const Tensor& y, int64_t d) { return ops::add(all_but_last(y, d), all_but_first(y, d)); }

// Distances of the positions x, which broadcast with y's pairs along d.
Tensor gaps(const Tensor& y, const Tensor& x, int64_t d, const char* op) {
  if (x.ndim() == 0) return ops::zeros(IntSpan(), x.dtype(), x.device());
  Dims shape(static_cast<size_t>(std::max(y.ndim(), x.ndim())), 1);
  if (x.ndim() == 1 && y.ndim() > 0) {
    TS_CHECK(x.numel() == y.sizes()[d], op, ": There must be one `x` value for each sample point, got ", x.numel(),
             " for ", y.sizes()[d]);
    shape[static_cast<size_t>(d)] = x.numel();
  } else {
    std::copy(x.sizes().begin(), x.sizes().end(), shape.end() - static_cast<ptrdiff_t>(x.ndim()));
  }
  Tensor at = ops::reshape(x, shape);
  int64_t along = d + at.ndim() - y.ndim();
  TS_CHECK(at.sizes()[along] > 1 || y.sizes()[d] <= 1, op, ": expected positions of the size of y along dim ", d,
           ", got ", x.sizes(), " for ", y.sizes());
  return ops::sub(all_but_first(at, along), all_but_last(at, along));
}

// Twice the areas over the gaps.
Tensor areas(const Tensor& y, int64_t d, const Tensor& x, const char* op) {
  TS_CHECK(!is_bool(y.dtype()) && !is_bool(x.dtype()), op, ": received a bool input for `x` or `y`");
  return ops::mul(pairs(y, d), gaps(y, x, d, op));
}

int64_t checked_dim(const Tensor& y, int64_t dim, const char* op) {
  TS_CHECK(!is_bool(y.dtype()), op, ": received a bool input for `y`, but bool is not supported");
  TS_CHECK_INDEX(y.ndim() > 0, op, ": expected y to have at least one dimension");
  return wrap_dim(dim, y.ndim(), op);
}
Tensor nothing(const Tensor& y, int64_t d) {
  return times(ops::sum_dim(ops::narrow(y, d, int64_t{0}, int64_t{0}), IntSpan(&d, 1)), 1.0);
}

// Sums of two small integers may not fit their dtype.
Tensor roomy(const Tensor& t) { return is_integral(t.dtype(), false) ? ops::to_dtype(t, DType::Int64) : t; }

Tensor trapezoid_x(const Tensor& samples, const Tensor& x, int64_t dim) {
  int64_t d = checked_dim(samples, dim, "trapezoid");
  Tensor y = roomy(samples);
  if (y.sizes()[d] == 0) return nothing(y, d);
  return constants_saved(ops::div(ops::sum_dim(areas(y, d, roomy(x), "trapezoid"), IntSpan(&d, 1)), 2));
}
Tensor trapezoid_dx(const Tensor& samples, Scalar dx, int64_t dim) {
  int64_t d = checked_dim(samples, dim, "trapezoid");
  Tensor y = roomy(samples);
  if (y.sizes()[d] == 0) return nothing(y, d);
  const int64_t n = y.sizes()[d];
  if (n == 1) return nothing(y, d);
  // Both ends count once, all between them twice: no pass but that of the sum.
  Tensor ends = ops::add(ops::select(y, d, int64_t{0}), ops::select(y, d, n - 1));
  if (n > 2)
    ends = ops::add(ends,
                    constants_saved(ops::mul(ops::sum_dim(ops::narrow(y, d, int64_t{1}, n - 2), IntSpan(&d, 1)), 2)));
  return times(ends, dx.to_double() / 2);
}
Tensor cumulative_x(const Tensor& y, const Tensor& x, int64_t dim) {
  int64_t d = checked_dim(y, dim, "cumulative_trapezoid");
  if (y.sizes()[d] == 0) return times(y, 1.0);
  return ops::cumsum(constants_saved(ops::div(areas(roomy(y), d, roomy(x), "cumulative_trapezoid"), 2)), d);
}
Tensor cumulative_dx(const Tensor& y, Scalar dx, int64_t dim) {
  int64_t d = checked_dim(y, dim, "cumulative_trapezoid");
  if (y.sizes()[d] == 0) return times(y, 1.0);
  return ops::cumsum(times(pairs(roomy(y), d), dx.to_double() / 2), d);
}

} // namespace

TS_OPERATORS(difference) {
  def("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor")
      .body<diff>()
      .out()
      .doc("n times the difference of each two neighbours along `dim`; of bool, whether they differ.");
  for (const char* name : {"trapezoid", "trapz"}) {
    def(concat(name, ".x(Tensor y, Tensor x, *, int dim=-1) -> Tensor").c_str())
        .body<trapezoid_x>()
        .function_only()
        .doc("The integral of y over the positions x along `dim`, by the trapezoidal rule.");
    def(concat(name, ".dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor").c_str())
        .body<trapezoid_dx>()
        .function_only()
        .doc("The integral of y along `dim`, by the trapezoidal rule, of samples dx apart.");
  }
  def("cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor")
      .body<cumulative_x>()
      .function_only()
      .doc("The integral of y over the positions x up to each of them but the first, by the trapezoidal rule.");
  def("cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor")
      .body<cumulative_dx>()
      .function_only()
      .doc("The integral of y up to each sample but the first, by the trapezoidal rule, of samples dx apart.");
}

} // namespace ts
