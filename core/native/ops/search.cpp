// Searching and counting: searchsorted, bucketize, bincount, histc, one_hot, isin.
#include "dispatch/launch.h"
#include "ops/api.h"
#include "ops/arguments.h"
#include "ops/check.h"
#include "ops/declare.h"
#include "ops/gather_scatter.h"
#include "ops/promotion.h"
#include <cmath>
#include <cstring>

namespace ts {
namespace {

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

// Values in the shape search works on: the sequence's leading dims and one more.
Tensor searchsorted(const Tensor& sequence, const Tensor& values, bool out_int32, bool right_flag, const char* side,
                    const Tensor& sorter) {
  check_same_device(sequence, values, "searchsorted");
  TS_CHECK(!side || std::strcmp(side, "left") == 0 || std::strcmp(side, "right") == 0,
           "searchsorted: side can only be 'left' or 'right' but got ", side);
  TS_CHECK(!side || !right_flag || std::strcmp(side, "right") == 0,
           "searchsorted: side and right can't be set to opposites, got side of left while right was True");
  bool right = right_flag || (side && std::strcmp(side, "right") == 0);
  TS_CHECK(sequence.ndim() > 0, "searchsorted: boundaries tensor should have positive dimension, but got 0 dimension");
  bool shared = sequence.ndim() == 1;
  bool leads_match =
      values.ndim() == sequence.ndim() && same(values.sizes().first(values.sizes().size() - (values.ndim() > 0)),
                                               sequence.sizes().first(sequence.sizes().size() - 1));
  TS_CHECK(shared || leads_match,
           "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
           "input value tensor must match, but we got boundaries tensor ",
           sequence.sizes(), " and input value tensor ", values.sizes());
  Tensor sorted = sequence;
  if (sorter.defined()) {
    TS_CHECK(same(sorter.sizes(), sequence.sizes()),
             "searchsorted: boundary and sorter must have the same size, but got boundary tensor ", sequence.sizes(),
             " and got sorter tensor ", sorter.sizes());
    TS_CHECK(sorter.dtype() == DType::Int64, "searchsorted: sorter must be a tensor of long dtype but got dtype ",
             sorter.dtype());
    sorted = ops::gather(sequence, -1, sorter);
  }
  DType result = out_int32 ? DType::Int32 : DType::Int64;
  int64_t n = sorted.sizes().back();
  TS_CHECK(!out_int32 || n < INT32_MAX, "searchsorted: the size of boundaries' last dimension should be less than ",
           INT32_MAX, ", but got ", n);
  if (values.numel() == 0 || n == 0) return filled(values.sizes(), Scalar(0), result, values.device());
  DType common = promote_types(sorted.dtype(), values.dtype());
  Tensor found = empty_tensor(values.sizes(), DType::Int64, values.device());
  Tensor keys = raw_contiguous(raw_cast(sorted, common)), wanted = raw_contiguous(raw_cast(values, common));
  if (!Launch(kSearch, values.device()).out(found).in(keys).in(wanted).param(right).run()) {
    Tensor flat = shared ? raw_view(wanted, Dims{wanted.numel()}) : wanted;
    found = reshaped(raw_contiguous(search(keys, flat, right)), values.sizes());
  }
  return raw_cast(found, result);
}

Tensor searchsorted_scalar(const Tensor& sequence, Scalar value, bool out_int32, bool right, const char* side,
                           const Tensor& sorter) {
  DType t = value.is_float() && !is_floating(sequence.dtype()) ? default_dtype()
            : value.is_float()                                 ? sequence.dtype()
            : is_bool(sequence.dtype())                        ? DType::Int64
                                                               : sequence.dtype();
  return searchsorted(sequence, filled({}, convert_scalar(value, t, "searchsorted"), t, sequence.device()), out_int32,
                      right, side, sorter);
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  TS_CHECK(boundaries.ndim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(", boundaries.ndim(),
           ")");
  return searchsorted(boundaries, self, out_int32, right, nullptr, {});
}
Tensor bucketize_scalar(Scalar self, const Tensor& boundaries, bool out_int32, bool right) {
  TS_CHECK(boundaries.ndim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(", boundaries.ndim(),
           ")");
  return searchsorted_scalar(boundaries, self, out_int32, right, nullptr, {});
}

// --- counting
int64_t host_int(const Tensor& t) {
  int64_t v = 0;
  copy_bytes_to_host(&v, raw_cast(t, DType::Int64), sizeof v);
  return v;
}

Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  TS_CHECK(is_integral(self.dtype(), false) && self.ndim() == 1,
           "bincount: only supports 1-d non-negative integral inputs, got dtype ", self.dtype(), " and sizes ",
           self.sizes());
  TS_CHECK(minlength >= 0, "bincount: minlength should be >= 0, got ", minlength);
  TS_CHECK(!weights.defined() || same(weights.sizes(), self.sizes()),
           "bincount: weights should be 1-d and have the same length as input");
  check_not_meta(self, "bincount");
  DType t = !weights.defined() ? DType::Int64 : weights.dtype() == DType::Float32 ? DType::Float32 : DType::Float64;
  if (self.numel() == 0) return filled(Dims{minlength}, Scalar(0), DType::Int64, self.device());
  Tensor at = raw_cast(self, DType::Int64);
  TS_CHECK(host_int(ops::amin(at)) >= 0,
           "bincount: only supports 1-d non-negative integral inputs, got a negative one");
  int64_t top = host_int(ops::amax(at));
  TS_CHECK(top < INT64_MAX, "bincount: the largest input, ", top, ", is too large");
  Tensor out = filled(Dims{std::max(top + 1, minlength)}, Scalar(0), t, self.device());
  if (!weights.defined() && Launch(kCount, self.device()).out(out).in(raw_contiguous(at)).run()) return out;
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

Tensor histc(const Tensor& self, int64_t bins, Scalar min, Scalar max) {
  TS_CHECK(bins > 0, "histc: bins must be > 0, got ", bins);
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(self.dtype()), "histc: not implemented for dtype ",
                self.dtype());
  check_not_meta(self, "histc");
  double low = min.to_double(), high = max.to_double();
  Tensor out = filled(Dims{bins}, Scalar(0), self.dtype(), self.device());
  if (self.numel() == 0) return out;
  Tensor x = raw_view(raw_contiguous(self), Dims{self.numel()});
  if (low == high) {
    low = host_double(ops::amin(x));
    high = host_double(ops::amax(x));
  }
  if (low == high) low -= 1, high += 1;
  TS_CHECK(std::isfinite(low) && std::isfinite(high), "histc: range of [", low, ", ", high, "] is not finite");
  TS_CHECK(low < high, "histc: max must be larger than min, got min ", low, " and max ", high);
  Tensor inside = ops::logical_and(ops::ge(x, Scalar(low)), ops::le(x, Scalar(high)));
  Tensor position = ops::mul(ops::sub(x, Scalar(low)), Scalar(static_cast<double>(bins) / (high - low)));
  position = ops::clamp(ops::where(inside, position, filled({}, Scalar(0), x.dtype(), x.device())), Scalar(0),
                        Scalar(bins - 1));
  scatter_into(out, 0, raw_cast(position, DType::Int64), raw_cast(inside, self.dtype()), TS_S_ADD);
  return out;
}

// --- membership
Tensor one_hot(const Tensor& self, int64_t num_classes) {
  TS_CHECK(self.dtype() == DType::Int64, "one_hot: is only applicable to index tensor of type LongTensor, got ",
           self.dtype());
  TS_CHECK(num_classes >= -1, "one_hot: expected num_classes of -1 or more, got ", num_classes);
  if (num_classes == -1) check_not_meta(self, "one_hot");
  TS_CHECK(self.numel() > 0 || num_classes > 0, "one_hot: Can not infer total number of classes from empty tensor.");
  Dims sizes(self.sizes());
  if (self.numel() > 0 && !self.device().is_meta()) {
    TS_CHECK(host_int(ops::amin(self)) >= 0, "one_hot: Class values must be non-negative.");
    int64_t top = host_int(ops::amax(self));
    TS_CHECK(num_classes == -1 || top < num_classes, "one_hot: Class values must be smaller than num_classes, got ",
             top, " for num_classes=", num_classes);
    TS_CHECK(top < INT64_MAX, "one_hot: class values are too large, got ", top);
    if (num_classes == -1) num_classes = top + 1;
  }
  sizes.push_back(num_classes);
  Tensor out = filled(sizes, Scalar(0), DType::Int64, self.device());
  if (self.numel() == 0) return out;
  sizes.back() = 1;
  Tensor one = raw_expand(filled({}, Scalar(1), DType::Int64, self.device()), sizes, "one_hot");
  scatter_into(out, static_cast<int64_t>(sizes.size()) - 1, raw_view(self, sizes), one, TS_S_SET);
  return out;
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
  check_same_device(elements, test_elements, "isin");
  Tensor hit;
  DType t = promote_types(elements.dtype(), test_elements.dtype());
  TS_CHECK(!is_complex(t), "isin: complex tensors are not supported, got ", t);
  if (elements.numel() == 0 || test_elements.numel() == 0) {
    hit = filled(elements.sizes(), Scalar(false), DType::Bool, elements.device());
  } else {
    Tensor set = ops::sort.multi<2>(ops::reshape(raw_cast(test_elements, t), Dims{-1}), 0)[0];
    Tensor x = raw_cast(elements, t);
    Tensor at = ops::clamp(searchsorted(set, x, false, false, nullptr, {}), Scalar(0), Scalar(set.numel() - 1));
    hit = ops::eq(ops::reshape(ops::index_select(set, 0, ops::reshape(at, Dims{-1})), x.sizes()), x);
  }
  return invert ? ops::logical_not(hit) : hit;
}
Tensor isin_tensor_scalar(const Tensor& elements, Scalar test, bool unique, bool invert) {
  DType t = test.is_float() && !is_floating(elements.dtype()) ? default_dtype() : elements.dtype();
  if (is_bool(t) && test.tag == Tag::Int) t = DType::Int64;
  return isin(elements, filled({}, convert_scalar(test, t, "isin"), t, elements.device()), unique, invert);
}
Tensor isin_scalar_tensor(Scalar element, const Tensor& tests, bool unique, bool invert) {
  DType t = element.is_float() && !is_floating(tests.dtype()) ? default_dtype() : tests.dtype();
  if (is_bool(t) && element.tag == Tag::Int) t = DType::Int64;
  return isin(filled({}, convert_scalar(element, t, "isin"), t, tests.device()), tests, unique, invert);
}

} // namespace

TS_OPERATORS(search) {
  def("searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? "
      "side=None, Tensor? sorter=None) -> Tensor")
      .body<searchsorted>()
      .not_differentiable()
      .function_only()
      .doc("Where each value would be inserted to keep the last dimension of sorted_sequence sorted: before equal "
           "elements, or after with right.");
  def("searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? "
      "side=None, Tensor? sorter=None) -> Tensor")
      .body<searchsorted_scalar>()
      .not_differentiable()
      .function_only()
      .doc("searchsorted of one number.");
  def("bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor")
      .body<bucketize>()
      .not_differentiable()
      .function_only()
      .doc("The bucket of each element between one-dimensional sorted boundaries.");
  def("bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor")
      .body<bucketize_scalar>()
      .not_differentiable()
      .function_only()
      .doc("The bucket of one number between one-dimensional sorted boundaries.");
  def("bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor")
      .body<bincount>()
      .data_dependent()
      .not_differentiable()
      .doc("How often each non-negative integer occurs, or the sum of its weights. Waits for the device.");
  def("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
      .body<histc>()
      .reads_host()
      .not_differentiable()
      .doc("Counts in equal bins between min and max, or between the extremes when these are equal. Waits for the "
           "device.");
  def("one_hot(Tensor self, int num_classes=-1) -> Tensor")
      .body<one_hot>()
      .data_dependent()
      .not_differentiable()
      .function_only()
      .in("nn.functional")
      .doc("Class indices as rows of zeros with a one. Waits for the device.");
  def("isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> "
      "Tensor")
      .body<isin>()
      .reads_host()
      .not_differentiable()
      .function_only()
      .doc("Whether each element occurs in test_elements.");
  def("isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> "
      "Tensor")
      .body<isin_tensor_scalar>()
      .not_differentiable()
      .function_only()
      .doc("Whether each element equals a number.");
  def("isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> "
      "Tensor")
      .body<isin_scalar_tensor>()
      .not_differentiable()
      .function_only()
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
