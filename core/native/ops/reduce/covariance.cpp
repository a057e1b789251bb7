// Covariance and correlation of variables, one in each row.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "runtime/interpreter.h"

namespace ts {
namespace {

void check_weights(const Tensor& w, const char* name, int64_t n, bool integer) {
  TS_CHECK(w.ndim() <= 1, "cov: expected ", name, " to have one or fewer dimensions but got ", w.ndim());
  TS_CHECK(integer ? is_integral(w.dtype(), false) : is_floating(w.dtype()), "cov: expected ", name, " to have ",
           integer ? "integral" : "floating point", " dtype but got ", w.dtype());
  TS_CHECK(w.numel() == n, "cov: expected ", name, " to have the same numel as there are observations in the input (",
           n, ") but got ", w.numel());
  TS_CHECK(w.device().is_meta() || raw_truth(ops::all(ops::ge(w, 0))), "cov: ", name, " cannot be negative");
}

// Weighted sums of squares over their degrees of freedom.
Tensor cov(const Tensor& self, int64_t correction, const Tensor& fweights, const Tensor& aweights) {
  TS_CHECK(self.ndim() <= 2, "cov: expected input to have two or fewer dimensions but got an input with ", self.ndim(),
           " dimensions");
  TS_CHECK(!is_bool(self.dtype()), "cov: bool dtype is not supported for input");
  Tensor x = self.ndim() == 2 ? self : ops::reshape(self, Dims{1, self.numel()});
  int64_t n = x.sizes()[1], observations[] = {1};
  Tensor w;
  if (fweights.defined()) {
    check_weights(fweights, "fweights", n, true);
    w = fweights;
  }
  if (aweights.defined()) {
    check_weights(aweights, "aweights", n, false);
    w = w.defined() ? ops::mul(w, aweights) : aweights;
  }
  DType floating = is_floating(x.dtype()) ? x.dtype() : is_complex(x.dtype()) ? real_type(x.dtype()) : default_dtype();
  Tensor total = w.defined() ? ops::sum(w) : ops::full(IntSpan(), Scalar(n), floating, x.device());
  Tensor sums = ops::sum_dim(w.defined() ? ops::mul(x, w) : x, IntSpan(observations), true);
  if (!w.defined() && n <= correction)
    warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.");
  Tensor freedom = total;
  if (correction != 0 && aweights.defined())
    freedom = ops::sub(total, ops::div(ops::mul(ops::sum(ops::mul(w, aweights)), Scalar(correction)), total));
  else if (correction != 0)
    freedom = ops::sub(total, Scalar(correction));
  Tensor centred = ops::sub(x, ops::div(sums, total));
  Tensor weighted = w.defined() ? ops::mul(centred, w) : centred;
  Tensor products = ops::matmul(centred, conjugate(ops::transpose(weighted, int64_t{0}, int64_t{1})));
  return ops::squeeze(ops::div(products, ops::clamp(freedom, Scalar(0))), IntSpan(Dims{0, 1}));
}

Tensor corrcoef(const Tensor& self) {
  TS_CHECK(self.ndim() <= 2, "corrcoef: expected input to have two or fewer dimensions but got an input with ",
           self.ndim(), " dimensions");
  Tensor c = cov(self, 1, {}, {});
  if (c.ndim() == 0) return ops::div(c, c);
  bool complex = is_complex(c.dtype());
  Tensor variance = ops::diagonal(c), deviation = ops::sqrt(complex ? ops::real(variance) : variance);
  Tensor scaled = ops::div(ops::div(c, ops::unsqueeze(deviation, int64_t{-1})), ops::unsqueeze(deviation, int64_t{0}));
  auto bounded = [](const Tensor& t) { return ops::clamp(t, Scalar(-1), Scalar(1)); };
  if (!complex) return bounded(scaled);
  static const Op join("complex");
  return join(bounded(ops::real(scaled)), bounded(ops::imag(scaled)));
}

} // namespace

TS_OPERATORS(covariance) {
  def("cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor")
      .body<cov>()
      .doc("Covariance matrix of the rows: fweights counts each column's repetitions, aweights its importance.");
  def("corrcoef(Tensor self) -> Tensor").body<corrcoef>().doc("Correlation coefficients of the rows.");
}

} // namespace ts
