// Running sums, products and extremes along a dim.
#include "dispatch/launch.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/common/storage_dtypes.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kScanCode = "scans along the last dim of a geometry in which that is the dim asked for";

const KernelId kScan("scan"), kRunning("complex_running_product");
using Two = std::tuple<Tensor, Tensor>;

// The dim last, which is where the kernel scans.
Tensor scanned_last(const Tensor& t, int64_t dim) {
  return dim == t.ndim() - 1 ? t : raw_transpose(t, dim, t.ndim() - 1);
}

// Running products of complex numbers: by a kernel of pairs, or by doubling, where after step s each element holds its
// last 2s factors.
void complex_products(const Tensor& out, const Tensor& self, int64_t d) {
  Tensor x = raw_contiguous(raw_cast(self, out.dtype()));
  int64_t n = x.size(d), inner = 1;
  for (int64_t k = d + 1; k < x.ndim(); ++k) inner *= x.size(k);
  if (out.numel() > 0 && out.is_contiguous() &&
      Launch(kRunning, out.device()).out(raw_parts(out)).in(raw_parts(x)).param(n).param(inner).run())
    return;
  for (int64_t step = 1; step < n; step *= 2) {
    std::vector<Tensor> parts = {ops::narrow(x, d, int64_t{0}, step),
                                 ops::mul(ops::narrow(x, d, step, n - step), ops::narrow(x, d, int64_t{0}, n - step))};
    x = ops::cat(parts, d);
  }
  raw_copy(out, x);
}

template <int Opcode> Tensor cumulate_rule(const Tensor& self, int64_t dim, DType asked) {
  wrap_dim(dim, self.ndim(), Opcode == TS_R_SUM ? "cumsum" : "cumprod");
  DType dtype = asked != DType::Undefined ? asked : is_integral(self.dtype(), true) ? DType::Int64 : self.dtype();
  refuse_storage_dtype(dtype, Opcode == TS_R_SUM ? "cumsum" : "cumprod");
  return outline(self.sizes(), dtype, self.device());
}

template <int Opcode> void cumulate(const Tensor& out, const Tensor& self, int64_t dim, DType) {
  DType dtype = out.dtype();
  if (self.ndim() > 0 && (is_complex(dtype) || is_complex(self.dtype()))) {
    int64_t along = wrap_dim(dim, self.ndim(), "cumsum");
    if (is_complex(dtype) && Opcode == TS_R_PROD) return complex_products(out, self, along);
    Tensor x = raw_cast(self, dtype);
    if (is_complex(dtype)) return cumulate<Opcode>(raw_parts(out), raw_parts(x), along, DType::Undefined);
    return cumulate<Opcode>(out, x, along, DType::Undefined);
  }
  Tensor source = casts_addends(dtype, self.dtype()) ? raw_cast(self, dtype) : self;
  if (self.ndim() == 0) return raw_copy(out, source);
  int64_t d = wrap_dim(dim, self.ndim(), "cumsum");
  Tensor to = scanned_last(out, d);
  auto launch = [&](const Tensor& in, bool required) {
    Tensor from = scanned_last(in, d);
    Launch l(kScan, out.device());
    l.out(to).in(from).opcode(Opcode).compute(accumulate_type(dtype));
    if (!required) return l.run();
    l.run_required();
    return true;
  };
  // A backend may take only operands of the result's dtype.
  if (source.dtype() == dtype || !launch(source, false)) launch(raw_cast(source, dtype), true);
}

template <int Opcode> Two running_extreme_rule(const Tensor& self, int64_t dim) {
  const char* op = Opcode == TS_R_MAX ? "cummax" : "cummin";
  TS_CHECK(!is_complex(self.dtype()), op, ": not defined for complex tensors, got ", self.dtype());
  wrap_dim(dim, self.ndim(), op);
  return {outline(self.sizes(), self.dtype(), self.device()), outline(self.sizes(), DType::Int64, self.device())};
}
template <int Opcode>
void running_extreme(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim) {
  if (self.ndim() == 0) {
    raw_copy(values, self);
    return raw_fill(indices, 0);
  }
  int64_t d = wrap_dim(dim, self.ndim(), "cummax");
  Tensor to = scanned_last(values, d), at = scanned_last(indices, d), from = scanned_last(self, d);
  Launch(kScan, self.device())
      .out(to)
      .out(at)
      .in(from)
      .opcode(Opcode)
      .compute(accumulate_type(self.dtype()))
      .run_required();
}

Tensor reversed(const Tensor& t, int64_t dim) {
  int64_t dims[] = {dim};
  return ops::flip(t, IntSpan(dims));
}
Tensor cumsum_from_end(const Tensor& t, int64_t dim) { return reversed(ops::cumsum(reversed(t, dim), dim), dim); }

void cumsum_gradient(GradContext& c) {
  if (c.sizes(0).empty()) return c.set(0, as_dtype(c.grad(), c.dtype(0)));
  c.set(0, as_dtype(cumsum_from_end(c.grad(), c.value<int64_t>(1)), c.dtype(0)));
}

// Where no element is zero, dividing the running products undoes one factor. Else dx_k is the product of what comes
// before x_k times s_k = grad_k + x_(k+1) s_(k+1): the recurrence by doubling, of which each step joins s of twice as
// many elements.
Tensor cumprod_gradient_of(const Tensor& x, const Tensor& grad, const Tensor& result, int64_t dim) {
  if (!raw_truth(ops::any(ops::eq(x, 0)))) return ops::div(cumsum_from_end(ops::mul(grad, result), dim), x);
  int64_t n = x.size(dim);
  if (n == 1) return grad;
  const auto part = [dim](const Tensor& t, int64_t from, int64_t to) { return ops::narrow(t, dim, from, to - from); };
  Tensor sums = grad, factors = part(x, 1, n);
  for (int64_t step = 1; step < n; step *= 2) {
    Tensor joined = ops::add(part(sums, 0, n - step), ops::mul(factors, part(sums, step, n)));
    sums = ops::cat(std::vector<Tensor>{joined, part(sums, n - step, n)}, dim);
    if (2 * step < n) factors = ops::mul(part(factors, 0, n - 2 * step), part(factors, step, n - step));
  }
  Dims one(x.sizes());
  one[static_cast<size_t>(dim)] = 1;
  Tensor before =
      ops::cat(std::vector<Tensor>{filled(one, 1, x.dtype(), x.device()), ops::cumprod(part(x, 0, n - 1), dim)}, dim);
  return ops::mul(before, sums);
}
void cumprod_gradient(GradContext& c) {
  if (c.sizes(0).empty() || c.grad().numel() == 0) return c.set(0, as_dtype(c.grad(), c.dtype(0)));
  int64_t dim = wrap_dim(c.value<int64_t>(1), static_cast<int64_t>(c.sizes(0).size()), "cumprod");
  Tensor x = conjugate(as_dtype(c.arg(0), c.grad().dtype()));
  c.set(0, as_dtype(cumprod_gradient_of(x, c.grad(), conjugate(c.result()), dim), c.dtype(0)));
}

void running_extreme_gradient(GradContext& c) {
  if (c.sizes(0).empty() || c.grad().numel() == 0) return c.set(0, c.grad());
  Tensor zeros = filled(c.sizes(0), 0, c.grad().dtype(), c.grad().device());
  c.set(0, ops::scatter_add(zeros, c.value<int64_t>(1), c.result(1), c.grad()));
}

// log(exp(a) + exp(b)); equal operands, infinities among them, never meet inf - inf.
Tensor log_add(const Tensor& a, const Tensor& b) {
  static const Op of_complex("_logaddexp_complex"), of_real("_log_add");
  return (is_complex(a.dtype()) ? of_complex : of_real)(a, b);
}

// By doubling: after step s each element holds its last 2s terms. Stable, where one running maximum would not be.
Tensor running_by_doubling(Tensor x, int64_t d) {
  int64_t n = x.size(d);
  for (int64_t step = 1; step < n; step *= 2) {
    std::vector<Tensor> parts = {ops::narrow(x, d, int64_t{0}, step),
                                 log_add(ops::narrow(x, d, step, n - step), ops::narrow(x, d, int64_t{0}, n - step))};
    x = ops::cat(parts, d);
  }
  return x;
}

// Four neighbours after each other, their totals by the same again, which then join the next four: two passes over the
// elements instead of one for each doubling.
Tensor running_log_sum(const Tensor& x, int64_t d) {
  constexpr int64_t kFew = 64, kTogether = 4, kWorthIt = 1 << 15;
  int64_t n = x.size(d), groups = (n + kTogether - 1) / kTogether;
  if (n <= kFew || x.numel() < kWorthIt) return running_by_doubling(x, d);
  Tensor whole = x;
  if (groups * kTogether > n) {
    Dims rest(x.sizes());
    rest[static_cast<size_t>(d)] = groups * kTogether - n;
    whole = ops::cat(std::vector<Tensor>{x, filled(rest, 0, x.dtype(), x.device())}, d);
  }
  Dims split(x.sizes());
  split[static_cast<size_t>(d)] = groups;
  split.insert(split.begin() + d + 1, kTogether);
  Tensor grouped = ops::reshape(whole, split);
  std::vector<Tensor> sums = {ops::select(grouped, d + 1, int64_t{0})};
  for (int64_t k = 1; k < kTogether; ++k) sums.push_back(log_add(sums.back(), ops::select(grouped, d + 1, k)));
  Tensor before = ops::unsqueeze(running_log_sum(ops::narrow(sums.back(), d, int64_t{0}, groups - 1), d), d);
  // (4, groups) until the end, so that the rows are long.
  Tensor rows = ops::stack(sums, d);
  Tensor later = log_add(ops::narrow(rows, d + 1, int64_t{1}, groups - 1), before);
  rows = ops::cat(std::vector<Tensor>{ops::narrow(rows, d + 1, int64_t{0}, int64_t{1}), later}, d + 1);
  Dims sizes(x.sizes());
  sizes[static_cast<size_t>(d)] = groups * kTogether;
  return ops::narrow(ops::reshape(ops::transpose(rows, d, d + 1), sizes), d, int64_t{0}, n);
}

Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_differentiable(self.dtype()), "logcumsumexp: not implemented for dtype ",
                self.dtype(), "; expected a floating or complex one");
  int64_t d = wrap_dim(dim, self.ndim(), "logcumsumexp");
  if (self.ndim() == 0 || self.numel() == 0) return ops::clone(self);
  if (self.size(d) == 1) return ops::clone(self);
  Tensor sums = running_log_sum(as_dtype(self, accumulate_type(self)), d);
  return as_dtype(ops::contiguous(sums), self.dtype());
}

} // namespace

TS_OPERATORS(scan) {
  def("cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .facts("autocast:-/float32")
      .rule<cumulate_rule<TS_R_SUM>>()
      .computation<cumulate<TS_R_SUM>>(kScanCode)
      .gradient(cumsum_gradient)
      .inplace()
      .out(kComputesInOut)
      .doc("Running sums along dim. Integers are summed as int64 unless dtype says otherwise.");
  def("cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
      .facts("kernel:complex_running_product")
      .facts("autocast:-/float32")
      .rule<cumulate_rule<TS_R_PROD>>()
      .computation<cumulate<TS_R_PROD>>(kScanCode)
      .saves("self result")
      .gradient(cumprod_gradient)
      .inplace()
      .out(kComputesInOut)
      .doc("Running products along dim.");
  def("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)")
      .rule<running_extreme_rule<TS_R_MAX>>()
      .computation<running_extreme<TS_R_MAX>, 2>(kScanCode)
      .saves("result1")
      .gradient(running_extreme_gradient)
      .out()
      .doc("Running maxima along dim and the last position of each (int64).");
  def("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)")
      .rule<running_extreme_rule<TS_R_MIN>>()
      .computation<running_extreme<TS_R_MIN>, 2>(kScanCode)
      .saves("result1")
      .gradient(running_extreme_gradient)
      .out()
      .doc("Running minima along dim and the last position of each (int64).");
  // Derivatives by the gap, which is zero at ties: of their absolute value there is none there.
  def("_log_add(Tensor self, Tensor other) -> Tensor")
      .pointwise("max(self, other) + log1p(exp(-abs(select((self == other) * (abs(self) == inf), 0, self - other))))")
      .promote(Promote::Float)
      .no_complex()
      .derivative("self", "grad * sigmoid(select((self == other) * (abs(self) == inf), 0, self - other))")
      .derivative("other", "grad * sigmoid(select((self == other) * (abs(self) == inf), 0, other - self))")
      .hidden()
      .doc("log(exp(self) + exp(other)).");
  def("logcumsumexp(Tensor self, int dim) -> Tensor")
      .facts("leaf stored:none")
      .body<logcumsumexp>()
      .out(kSameDtype)
      .doc("Running log(sum(exp(x))) along dim, without overflow.");
}

} // namespace ts
