// Indexing by condition: nonzero, argwhere, masked_select, masked_scatter.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/index/gather_scatter.h"

namespace ts {
namespace {

const KernelId kNonzero("nonzero");
const Op unravel("_unravel");

int64_t count_true(const Tensor& flat_mask) {
  Tensor total = ops::sum(flat_mask);
  int64_t n = 0;
  copy_bytes_to_host(&n, total, sizeof n, "nonzero");
  return n;
}

// The kernel, where the backend has one: a row of coordinates for each true element of a contiguous mask.
bool write_coordinates(const Tensor& out, const Tensor& mask) {
  return Launch(kNonzero, mask.device()).out(out).in(mask).run();
}

} // namespace

// Each true element's rank is an inclusive count of trues before it; the others write to a slot that is cut off.
Tensor nonzero_flat(const Tensor& t) {
  check_not_meta(t, "nonzero");
  Device device = t.device();
  Tensor flat = raw_view(raw_contiguous(t), Dims{t.numel()});
  if (t.numel() == 0) return empty_tensor(Dims{0}, DType::Int64, device);
  Tensor mask = is_bool(t.dtype()) ? flat : ops::ne(flat, Scalar(0));
  int64_t n = mask.numel(), found = count_true(mask);
  if (found == n) return counting(n, device);
  Tensor out = empty_tensor(Dims{found}, DType::Int64, device);
  if (found == 0 || write_coordinates(raw_view(out, Dims{found, 1}), mask)) return out;
  Tensor rank = ops::sub(ops::cumsum(raw_cast(mask, DType::Int64), 0), Scalar(1));
  Tensor slot = ops::where(mask, rank, filled({}, Scalar(found), DType::Int64, device));
  Tensor slots = empty_tensor(Dims{found + 1}, DType::Int64, device);
  scatter_into(slots, 0, slot, counting(n, device), TS_S_SET);
  return raw_narrow(slots, 0, 0, found);
}

namespace {

// Flat positions to one coordinate per dim.
Tensor coordinates(const Tensor& flat, IntSpan sizes) {
  int64_t ndim = static_cast<int64_t>(sizes.size());
  Tensor out = empty_tensor(Dims{flat.numel(), ndim}, DType::Int64, flat.device());
  if (out.numel() == 0) return out;
  Dims strides = contiguous_strides(sizes);
  for (int64_t d = 0; d < ndim; ++d) {
    Tensor column = ndim == 1 ? flat : unravel(flat, Scalar(strides[d]), Scalar(sizes[d]));
    raw_copy(raw_narrow(out, 1, d, 1), raw_view(column, Dims{flat.numel(), 1}));
  }
  return out;
}

Tensor nonzero_rule(const Tensor& self) { return outline(Dims{0, self.ndim()}, DType::Int64, self.device()); }
Tensor nonzero(const Tensor& self) {
  bool counted = self.ndim() > 1 && self.numel() > 0 && !self.device().is_meta();
  if (counted && backend_of(self.device()).kernel(kNonzero, self.device().index)) {
    Tensor mask = raw_contiguous(is_bool(self.dtype()) ? self : ops::ne(self, Scalar(0)));
    Tensor out =
        empty_tensor(Dims{count_true(raw_view(mask, Dims{mask.numel()})), self.ndim()}, DType::Int64, self.device());
    if (out.numel() == 0 || write_coordinates(out, mask)) return out;
  }
  if (self.ndim() > 0) return coordinates(nonzero_flat(self), self.sizes());
  return empty_tensor(Dims{nonzero_flat(self).numel(), 0}, DType::Int64, self.device());
}

const Op nonzero_op("nonzero");

std::vector<Tensor> nonzero_numpy(const Tensor& self) {
  Tensor found = nonzero_op(self.ndim() ? self : ops::view(self, Dims{1}));
  std::vector<Tensor> columns;
  for (int64_t d = 0; d < found.size(1); ++d) columns.push_back(ops::select(found, 1, d));
  return columns;
}
Tensor argwhere(const Tensor& self) { return nonzero_op(self); }

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  TS_CHECK(is_bool(mask.dtype()), "masked_select: expected BoolTensor for mask, got ", mask.dtype());
  check_same_device(self, mask, "masked_select");
  Dims sizes = broadcast_sizes(self.sizes(), mask.sizes(), "masked_select");
  if (sizes.empty()) sizes.push_back(1);
  Tensor x = ops::expand(self, sizes), m = ops::expand(mask, sizes);
  return ops::index(x, TensorList(&m, 1));
}

// The k-th true element receives the k-th element of source.
Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  TS_CHECK(is_bool(mask.dtype()), "masked_scatter: expected BoolTensor for mask, got ", mask.dtype());
  check_same_device(self, mask, "masked_scatter");
  check_same_device(self, source, "masked_scatter");
  check_same_dtype(self, source, "masked_scatter");
  Dims sizes = broadcast_sizes(self.sizes(), mask.sizes(), "masked_scatter");
  Tensor x = ops::expand(self, sizes), m = ops::contiguous(ops::expand(mask, sizes));
  Tensor flat_mask = ops::reshape(m, Dims{-1});
  int64_t wanted = self.device().is_meta() ? 0 : count_true(flat_mask);
  TS_CHECK(wanted <= source.numel(), "masked_scatter: Number of elements of source (", source.numel(),
           ") < number of ones in mask (", wanted, ")");
  if (x.numel() == 0 || source.numel() == 0) // nothing is taken from it, but it is part of the graph
    return is_floating(source.dtype()) ? ops::where(m, ops::sum(source), x) : ops::clone(x);
  Tensor rank = ops::clamp(ops::sub(ops::cumsum(ops::to_dtype(flat_mask, DType::Int64), 0), Scalar(1)), Scalar(0),
                           Scalar(source.numel() - 1));
  Tensor values = ops::index_select(ops::reshape(source, Dims{-1}), 0, rank);
  return ops::where(m, ops::reshape(values, sizes), x);
}

} // namespace

TS_OPERATORS(mask) {
  def("nonzero(Tensor self) -> Tensor")
      .facts("kernel:nonzero")
      .facts("stored:complex32")
      .rule<nonzero_rule>()
      .make<nonzero>()
      .not_differentiable()
      .out(kSameDtype)
      .doc("Indices (n, ndim) of the elements that are not zero, in row-major order. Waits for the device.");
  def("nonzero_numpy(Tensor self) -> Tensor[]")
      .body<nonzero_numpy>()
      .data_dependent()
      .not_differentiable()
      .hidden()
      .doc("nonzero(as_tuple=True): one index tensor per dimension.");
  def("where(Tensor condition) -> Tensor[]")
      .facts("stored")
      .body<nonzero_numpy>()
      .data_dependent()
      .not_differentiable()
      .function_only()
      .doc("nonzero(as_tuple=True) of the condition.");
  def("argwhere(Tensor self) -> Tensor").body<argwhere>().data_dependent().not_differentiable().doc("Same as nonzero.");
  def("masked_select(Tensor self, Tensor mask) -> Tensor")
      .facts("leaf stored")
      .body<masked_select>()
      .data_dependent()
      .out(kSameDtype | kApart)
      .doc("The elements of self where mask is true, one-dimensional; both are broadcast. Waits for the device.");
  def("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor")
      .facts("leaf stored:none")
      .body<masked_scatter>()
      .reads_host()
      .inplace()
      .doc("self with the elements where mask is true replaced by those of source, in order.");
  def("_unravel(Tensor self, Scalar stride, Scalar size) -> Tensor")
      .pointwise("mod(floordiv(self, stride), size)")
      .promote(Promote::Keep)
      .not_differentiable()
      .hidden()
      .doc("One coordinate of flat positions.");
}

} // namespace ts
