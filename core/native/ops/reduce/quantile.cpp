// What stands where in an ordered list: quantile, nanquantile.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "tensor/geometry.h"
#include <cstring>

namespace ts {
namespace {

using OptionalDim = std::optional<int64_t>;
using Pair = std::tuple<Tensor, Tensor>;

enum class Between { Linear, Lower, Higher, Midpoint, Nearest };

Between between(const char* name, const char* op) {
  constexpr std::pair<const char*, Between> kNames[] = {{"linear", Between::Linear},
                                                        {"lower", Between::Lower},
                                                        {"higher", Between::Higher},
                                                        {"midpoint", Between::Midpoint},
                                                        {"nearest", Between::Nearest}};
  for (auto [known, value] : kNames)
    if (!std::strcmp(name, known)) return value;
  fail(ErrorKind::Runtime, op, ": interpolation must be one of linear, lower, higher, midpoint or nearest, but got ",
       name);
}

// Where the quantiles q lie in each row of `sorted`, whose NaNs are last: a row with NaN is asked for one of them.
Tensor ranks_of(const Tensor& sorted, const Tensor& q, bool ignore_nan) {
  static const Op any_op("any.dims");
  int64_t last = sorted.size(-1) - 1, minus_one = -1;
  Tensor nan = ops::isnan(sorted);
  if (ignore_nan) {
    Tensor good = ops::sum_dim(ops::logical_not(nan), IntSpan(&minus_one, 1), true);
    return ops::mul(ops::to_dtype(ops::clamp(ops::sub(good, 1), 0), sorted.dtype()), q);
  }
  Tensor ranks = ops::mul(q, Scalar(last));
  return ops::masked_fill(ranks, any_op(nan, IntSpan(&minus_one, 1), true), Scalar(last));
}

Tensor at_ranks(const Tensor& sorted, const Tensor& ranks, Between how) {
  static const Op round_op("round"), ceil_op("ceil"), lerp("lerp");
  Dims sizes(sorted.sizes());
  sizes.end()[-1] = ranks.size(-1);
  auto take = [&](const Tensor& at) {
    return ops::gather(sorted, int64_t{-1}, ops::expand(ops::to_dtype(at, DType::Int64), sizes));
  };
  switch (how) {
  case Between::Lower: return take(ops::floor(ranks));
  case Between::Higher: return take(ceil_op(ranks));
  case Between::Nearest: return take(round_op(ranks));
  default: break;
  }
  Tensor low = ops::floor(ranks);
  Tensor weight = how == Between::Midpoint ? ops::full_like(ranks, 0.5) : ops::sub(ranks, low);
  return lerp(take(low), take(ceil_op(ranks)), weight);
}

void check_quantile(const Tensor& self, const Tensor& q, const char* op) {
  TS_CHECK(self.numel() > 0, op, ": input tensor must be non-empty");
  TS_CHECK(q.ndim() <= 1, op, ": q must be a scalar or 1D tensor, got sizes ", q.sizes());
  TS_CHECK(self.dtype() == DType::Float32 || self.dtype() == DType::Float64, op,
           ": input tensor must be either float or double dtype, got ", self.dtype());
  TS_CHECK(q.dtype() == self.dtype(), op, ": q tensor must be same dtype as the input tensor, got ", q.dtype(), " and ",
           self.dtype());
  check_same_device(self, q, op);
}

template <bool ignore_nan>
Tensor within_range(const Tensor& self, const Tensor& q, OptionalDim dim, bool keepdim, const char* interpolation) {
  const char* op = ignore_nan ? "nanquantile" : "quantile";
  check_quantile(self, q, op);
  Between how = between(interpolation, op);
  static const Op movedim("movedim.int");
  bool along = dim && self.ndim() > 0;
  int64_t d = wrap_dim(dim.value_or(0), self.ndim(), op), last = -1, front = 0;
  Tensor x = along ? movedim(self, d, last) : ops::reshape(self, Dims{-1});
  Tensor sorted = ops::sort.multi<2>(x, last)[0];
  Tensor out = movedim(at_ranks(sorted, ranks_of(sorted, ops::reshape(q, Dims{-1}), ignore_nan), how), last, front);
  if (keepdim && along) out = ops::unsqueeze(out, d + 1);
  while (keepdim && !along && out.ndim() <= self.ndim()) out = ops::unsqueeze(out, last);
  return q.ndim() ? out : ops::select(out, front, front);
}

// Fake tensors have no values to look at.
template <bool ignore_nan>
Tensor quantile(const Tensor& self, const Tensor& q, OptionalDim dim, bool keepdim, const char* interpolation) {
  const char* op = ignore_nan ? "nanquantile" : "quantile";
  check_quantile(self, q, op);
  if (!self.device().is_meta() && q.numel() && q->storage)
    TS_CHECK(raw_truth(ops::all(ops::logical_and(ops::ge(q, Scalar(0)), ops::le(q, Scalar(1))))), op,
             ": q values must be in the range [0, 1]");
  return within_range<ignore_nan>(self, q, dim, keepdim, interpolation);
}

template <bool ignore_nan>
Tensor quantile_number(const Tensor& self, double q, OptionalDim dim, bool keepdim, const char* interpolation) {
  const char* op = ignore_nan ? "nanquantile" : "quantile";
  TS_CHECK(q >= 0 && q <= 1, op, ": q must be in the range [0, 1] but got ", q);
  DType t = is_floating(self.dtype()) ? self.dtype() : DType::Float32;
  return within_range<ignore_nan>(self, filled({}, Scalar(q), t, self.device()), dim, keepdim, interpolation);
}

template <bool ignore_nan> void declare_quantile(const char* name, const char* doc) {
  constexpr const char* kRest = " q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor";
  def(concat(name, "(Tensor self, Tensor", kRest).c_str())
      .facts("autocast:float32/-")
      .body<quantile<ignore_nan>>()
      .out(kSameDtype)
      .doc(doc);
  def(concat(name, ".scalar(Tensor self, float", kRest).c_str())
      .body<quantile_number<ignore_nan>>()
      .out(kSameDtype)
      .doc(doc);
}

} // namespace

TS_OPERATORS(quantile) {
  declare_quantile<false>("quantile",
                          "The element below which lies the share q of all, or of those along `dim`; between two by "
                          "interpolation: linear, lower, higher, midpoint or nearest. NaN if any is.");
  declare_quantile<true>("nanquantile", "As quantile, of the elements that are not NaN.");
}

} // namespace ts
