// Searching and counting: searchsorted, bucketize, bincount, histc, one_hot, isin.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/no_gradient.h"
#include "ops/common/promotion.h"
#include "ops/index/gather_scatter.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kSearchCode = "brings both operands to one dtype, then counts or looks up";

const KernelId kSearch("searchsorted"), kCount("count_integers");
const Op middle_of("_search_middle"), step_low("_search_low"), step_high("_search_high");

// Halves [low, high) for all values at once. Comparisons are negated so that a NaN value lands at the end.
Tensor search(const Tensor& sorted, const Tensor& values, bool right) {
  int64_t n = sorted.sizes().back();
  Tensor low = filled(values.sizes(), Scalar(0), DType::Int64, values.device());
  Tensor high = filled(values.sizes(), Scalar(n), DType::Int64, values.device());
  for (int64_t width = n; width > 0; width /= 2) {
    Tensor middle = middle_of(low, high);
    Tensor at = ops::clamp(middle, Scalar(0), Scalar(n - 1));
    Tensor element = ops::gather(sorted, -1, at);
    Tensor stop = right ? ops::gt(element, values) : ops::ge(element, values); // the answer is at or before the middle
    Tensor next_low = step_low(low, middle, high, stop);
    high = step_high(low, middle, high, stop);
    low = next_low;
  }
  return low;
}

bool goes_right(bool right, const char* side) { return right || (side && std::strcmp(side, "right") == 0); }

Tensor searchsorted_rule(const Tensor& sequence, const Tensor& values, bool out_int32, bool right, const char* side,
                         const Tensor& sorter) {
  check_same_device(sequence, values, "searchsorted");
  TS_CHECK(!side || std::strcmp(side, "left") == 0 || std::strcmp(side, "right") == 0,
           "searchsorted: side can only be 'left' or 'right' but got ", side);
  TS_CHECK(!side || !right || std::strcmp(side, "right") == 0,
           "searchsorted: side and right can't be set to opposites, got side of left while right was True");
  TS_CHECK(sequence.ndim() > 0, "searchsorted: boundaries tensor should have positive dimension, but got 0 dimension");
  bool leads_match =
      values.ndim() == sequence.ndim() && same(values.sizes().first(values.sizes().size() - (values.ndim() > 0)),
                                               sequence.sizes().first(sequence.sizes().size() - 1));
  TS_CHECK(sequence.ndim() == 1 || leads_match,
           "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
           "input value tensor must match, but we got boundaries tensor ",
           sequence.sizes(), " and input value tensor ", values.sizes());
  if (sorter.defined()) {
    TS_CHECK(same(sorter.sizes(), sequence.sizes()),
             "searchsorted: boundary and sorter must have the same size, but got boundary tensor ", sequence.sizes(),
             " and got sorter tensor ", sorter.sizes());
    TS_CHECK(sorter.dtype() == DType::Int64, "searchsorted: sorter must be a tensor of long dtype but got dtype ",
             sorter.dtype());
  }
  int64_t n = sequence.sizes().back();
  TS_CHECK(!out_int32 || n < INT32_MAX, "searchsorted: the size of boundaries' last dimension should be less than ",
           INT32_MAX, ", but got ", n);
  return outline(values.sizes(), out_int32 ? DType::Int32 : DType::Int64, values.device());
}

void searchsorted(const Tensor& out, const Tensor& sequence, const Tensor& values, bool, bool right_flag,
                  const char* side, const Tensor& sorter) {
  if (sequence.sizes().back() == 0) return raw_fill(out, Scalar(0));
  Tensor sorted = sorter.defined() ? ops::gather(sequence, -1, sorter) : sequence;
  bool right = goes_right(right_flag, side);
  DType common = promote_types(sorted.dtype(), values.dtype());
  Tensor keys = raw_contiguous(raw_cast(sorted, common)), wanted = raw_contiguous(raw_cast(values, common));
  bool as_is = out.dtype() == DType::Int64 && out.is_contiguous();
  Tensor found = as_is ? out : empty_tensor(values.sizes(), DType::Int64, values.device());
  if (!Launch(kSearch, values.device()).out(found).in(keys).in(wanted).param(right).run()) {
    // One sequence for all values, or one for each row of them.
    Tensor flat = sequence.ndim() == 1 ? raw_view(wanted, Dims{wanted.numel()}) : wanted;
    found = reshaped(raw_contiguous(search(keys, flat, right)), values.sizes());
  }
  if (!found.is(out)) raw_copy(out, found);
}

const Op searchsorted_op("searchsorted.Tensor");

// A number as a tensor beside another, in the dtype that both go to.
Tensor number_beside(const Tensor& t, Scalar value, const char* op) {
  DType dtype = t.dtype();
  if (value.is_float() && !is_floating(dtype)) dtype = default_dtype();
  if (value.tag == Tag::Int && is_bool(dtype)) dtype = DType::Int64;
  return ops::full(IntSpan(), convert_scalar(value, dtype, op), dtype, t.device());
}

Tensor searchsorted_scalar(const Tensor& sequence, Scalar value, bool out_int32, bool right, const char* side,
                           const Tensor& sorter) {
  Value named = side ? Value(side) : Value();
  return searchsorted_op(sequence, number_beside(sequence, value, "searchsorted"), out_int32, right, named, sorter);
}

void check_boundaries(const Tensor& boundaries) {
  TS_CHECK(boundaries.ndim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(", boundaries.ndim(),
           ")");
}
Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  check_boundaries(boundaries);
  return searchsorted_op(boundaries, self, out_int32, right);
}
Tensor bucketize_scalar(Scalar self, const Tensor& boundaries, bool out_int32, bool right) {
  check_boundaries(boundaries);
  return searchsorted_op(boundaries, number_beside(boundaries, self, "bucketize"), out_int32, right);
}

// --- counting
int64_t host_int(const Tensor& t) {
  int64_t v = 0;
  copy_bytes_to_host(&v, raw_cast(t, DType::Int64), sizeof v);
  return v;
}

Tensor bincount_rule(const Tensor& self, const Tensor& weights, int64_t minlength) {
  TS_CHECK(is_integral(self.dtype(), false) && self.ndim() == 1,
           "bincount: only supports 1-d non-negative integral inputs, got dtype ", self.dtype(), " and sizes ",
           self.sizes());
  TS_CHECK(minlength >= 0, "bincount: minlength should be >= 0, got ", minlength);
  TS_CHECK(!weights.defined() || same(weights.sizes(), self.sizes()),
           "bincount: weights should be 1-d and have the same length as input");
  DType t = !weights.defined() || self.numel() == 0 ? DType::Int64
            : weights.dtype() == DType::Float32     ? DType::Float32
                                                    : DType::Float64;
  return outline(Dims{minlength}, t, self.device());
}
Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  DType t = bincount_rule(self, weights, minlength).dtype();
  if (self.numel() == 0) return filled(Dims{minlength}, Scalar(0), t, self.device());
  Tensor at = raw_cast(self, DType::Int64);
  int64_t top = host_int(ops::amax(at));
  const auto check_least = [](int64_t least) {
    TS_CHECK(least >= 0, "bincount: only supports 1-d non-negative integral inputs, got a negative one");
  };
  check_least(top);
  TS_CHECK(top < INT64_MAX, "bincount: the largest input, ", top, ", is too large");
  Tensor out = filled(Dims{std::max(top + 1, minlength)}, Scalar(0), t, self.device());
  // The kernel declines where it meets a negative number.
  if (!weights.defined() && Launch(kCount, self.device()).out(out).in(raw_contiguous(at)).run()) return out;
  check_least(host_int(ops::amin(at)));
  Tensor add = weights.defined() ? raw_cast(weights, t)
                                 : raw_expand(filled({}, Scalar(1), t, self.device()), self.sizes(), "bincount");
  scatter_into(out, 0, at, add, TS_S_ADD);
  return out;
}

double host_double(const Tensor& t) {
  alignas(16) char element[16];
  copy_bytes_to_host(element, t, static_cast<size_t>(t.item_size()));
  return read_scalar(element, t.dtype()).to_double();
}

Tensor histc_rule(const Tensor& self, int64_t bins, Scalar, Scalar) {
  TS_CHECK(bins > 0, "histc: bins must be > 0, got ", bins);
  // Integers as on PyTorch's cards; its cpu refuses them.
  bool counts = is_floating(self.dtype()) || is_integral(self.dtype(), false);
  TS_CHECK_KIND(ErrorKind::NotImplemented, counts, "histc: not implemented for dtype ", self.dtype());
  return outline(Dims{bins}, self.dtype(), self.device());
}
// Of integers, without rounding.
Tensor whole_bins(const Tensor& x, int64_t low, int64_t high, int64_t bins) {
  static const Op floor_divide("floor_divide");
  Tensor above = ops::mul(ops::sub(raw_cast(x, DType::Int64), Scalar(low)), Scalar(bins));
  return floor_divide(above, Scalar(high - low));
}
void histc(const Tensor& out, const Tensor& self, int64_t bins, Scalar min, Scalar max) {
  double low = min.to_double(), high = max.to_double();
  if (!is_floating(self.dtype())) low = std::trunc(low), high = std::trunc(high);
  raw_fill(out, Scalar(0));
  if (self.numel() == 0) return;
  Tensor x = raw_cast(raw_view(raw_contiguous(self), Dims{self.numel()}), accumulate_type(self));
  if (low == high) {
    low = host_double(ops::amin(x));
    high = host_double(ops::amax(x));
  }
  if (low == high) low -= 1, high += 1;
  // Integers whose distance times bins may not fit are counted with rounding.
  const double widest = 0x1p62 / static_cast<double>(bins);
  bool fits = std::abs(low) < 0x1p62 && std::abs(high) < 0x1p62 && high - low < widest;
  if (!is_floating(x.dtype()) && !fits) x = raw_cast(x, DType::Float64);
  TS_CHECK(std::isfinite(low) && std::isfinite(high), "histc: range of [", low, ", ", high, "] is not finite");
  TS_CHECK(low < high, "histc: max must be larger than min, got min ", low, " and max ", high);
  Tensor inside = ops::logical_and(ops::ge(x, Scalar(low)), ops::le(x, Scalar(high)));
  Tensor position;
  if (is_floating(x.dtype()))
    position = ops::mul(ops::sub(x, Scalar(low)), Scalar(static_cast<double>(bins) / (high - low)));
  else
    position = whole_bins(x, static_cast<int64_t>(low), static_cast<int64_t>(high), bins);
  position = ops::clamp(ops::where(inside, position, filled({}, Scalar(0), x.dtype(), x.device())), Scalar(0),
                        Scalar(bins - 1));
  scatter_into(out, 0, raw_cast(position, DType::Int64), raw_cast(inside, self.dtype()), TS_S_ADD);
}

// --- membership
Tensor one_hot_rule(const Tensor& self, int64_t num_classes) {
  TS_CHECK(self.dtype() == DType::Int64, "one_hot: is only applicable to index tensor of type LongTensor, got ",
           self.dtype());
  TS_CHECK(num_classes >= 0, "one_hot: expected num_classes of -1 or more, got ", num_classes);
  TS_CHECK(self.numel() > 0 || num_classes > 0, "one_hot: Can not infer total number of classes from empty tensor.");
  Dims sizes(self.sizes());
  sizes.push_back(num_classes);
  return outline(sizes, DType::Int64, self.device());
}
void one_hot(const Tensor& out, const Tensor& self, int64_t num_classes) {
  TS_CHECK(host_int(ops::amin(self)) >= 0, "one_hot: Class values must be non-negative.");
  int64_t top = host_int(ops::amax(self));
  TS_CHECK(top < num_classes, "one_hot: Class values must be smaller than num_classes, got ", top,
           " for num_classes=", num_classes);
  raw_fill(out, Scalar(0));
  Dims sizes(out.sizes());
  sizes.back() = 1;
  Tensor one = raw_expand(filled({}, Scalar(1), DType::Int64, self.device()), sizes, "one_hot");
  scatter_into(out, out.ndim() - 1, raw_view(self, sizes), one, TS_S_SET);
}
Tensor one_hot_any(const Tensor& self, int64_t num_classes) {
  static const Op one_hot_of("_one_hot"), item("_local_scalar_dense");
  bool counts = num_classes == -1 && self.dtype() == DType::Int64 && self.numel() > 0;
  if (counts) {
    check_not_meta(self, "one_hot");
    Results top;
    item.invoke(top, ops::amax(self));
    TS_CHECK(top[0].i < INT64_MAX, "one_hot: class values are too large, got ", top[0].i);
    num_classes = std::max<int64_t>(top[0].i, 0) + 1;
  }
  TS_CHECK(num_classes >= -1, "one_hot: expected num_classes of -1 or more, got ", num_classes);
  TS_CHECK(num_classes != 0 || self.numel() == 0, "one_hot: Class values must be smaller than num_classes, got 0");
  return one_hot_of(self, std::max<int64_t>(num_classes, 0));
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
  check_same_device(elements, test_elements, "isin");
  Tensor hit;
  DType t = promote_types(elements.dtype(), test_elements.dtype());
  TS_CHECK(!is_complex(t), "isin: complex tensors are not supported, got ", t);
  if (elements.numel() == 0 || test_elements.numel() == 0) {
    hit = ops::zeros(elements.sizes(), DType::Bool, elements.device());
  } else {
    Tensor set = ops::sort.multi<2>(ops::reshape(as_dtype(test_elements, t), Dims{-1}), 0)[0];
    Tensor x = as_dtype(elements, t);
    Tensor at = ops::clamp(searchsorted_op(set, x), Scalar(0), Scalar(set.numel() - 1));
    hit = ops::eq(ops::reshape(ops::index_select(set, 0, ops::reshape(at, Dims{-1})), x.sizes()), x);
  }
  return invert ? ops::logical_not(hit) : hit;
}
Tensor isin_tensor_scalar(const Tensor& elements, Scalar test, bool unique, bool invert) {
  return isin(elements, number_beside(elements, test, "isin"), unique, invert);
}
Tensor isin_scalar_tensor(Scalar element, const Tensor& tests, bool unique, bool invert) {
  return isin(number_beside(tests, element, "isin"), tests, unique, invert);
}

} // namespace

TS_OPERATORS(search) {
  def("searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? "
      "side=None, Tensor? sorter=None) -> Tensor")
      .facts("kernel:searchsorted")
      .rule<searchsorted_rule>()
      .computation<searchsorted>(kSearchCode)
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("Where each value would be inserted to keep the last dimension of sorted_sequence sorted: before equal "
           "elements, or after with right.");
  def("searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? "
      "side=None, Tensor? sorter=None) -> Tensor")
      .body<searchsorted_scalar>()
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("searchsorted of one number.");
  def("bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor")
      .body<bucketize>()
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("The bucket of each element between one-dimensional sorted boundaries.");
  def("bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor")
      .body<bucketize_scalar>()
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("The bucket of one number between one-dimensional sorted boundaries.");
  def("bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor")
      .facts("kernel:count_integers")
      .rule<bincount_rule>()
      .make<bincount>()
      .gradient(no_gradient)
      .doc("How often each non-negative integer occurs, or the sum of its weights. Waits for the device.");
  def("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
      .rule<histc_rule>()
      .computation<histc>(kSearchCode)
      .reads_host()
      .not_differentiable()
      .out(kSameDtype)
      .doc("Counts in equal bins between min and max, or between the extremes when these are equal. Waits for the "
           "device.");
  def("one_hot(Tensor self, int num_classes=-1) -> Tensor")
      .body<one_hot_any>()
      .data_dependent()
      .not_differentiable()
      .function_only()
      .in("nn.functional")
      .doc("Class indices as rows of zeros with a one. Waits for the device.");
  def("_one_hot(Tensor self, int num_classes) -> Tensor")
      .rule<one_hot_rule>()
      .computation<one_hot>(kSearchCode)
      .reads_host()
      .not_differentiable()
      .hidden()
      .doc("one_hot of a given number of classes.");
  def("isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> "
      "Tensor")
      .body<isin>()
      .reads_host()
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("Whether each element occurs in test_elements.");
  def("isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> "
      "Tensor")
      .body<isin_tensor_scalar>()
      .reads_host()
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("Whether each element equals a number.");
  def("isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> "
      "Tensor")
      .body<isin_scalar_tensor>()
      .reads_host()
      .not_differentiable()
      .function_only()
      .out(kSameDtype)
      .doc("Whether a number occurs in test_elements.");

  def("_search_middle(Tensor low, Tensor high) -> Tensor")
      .pointwise("low + floordiv(high - low, 2)")
      .promote(Promote::Arith)
      .not_differentiable()
      .hidden()
      .doc("Middle of a range of positions.");
  def("_search_low(Tensor low, Tensor middle, Tensor high, Tensor stop) -> Tensor")
      .pointwise("select(stop, low, min(middle + 1, high))")
      .promote(Promote::Keep)
      .not_differentiable()
      .hidden()
      .doc("Lower end of the half that is left.");
  def("_search_high(Tensor low, Tensor middle, Tensor high, Tensor stop) -> Tensor")
      .pointwise("select(stop, min(middle, high), high)")
      .promote(Promote::Keep)
      .not_differentiable()
      .hidden()
      .doc("Upper end of the half that is left.");
}

} // namespace ts
