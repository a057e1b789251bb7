// Reading by index: gather, index_select, take, take_along_dim.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/index/gather_scatter.h"
#include "runtime/backend.h"
#include <vector>

namespace ts {

namespace {

// Why what is declared here is computed by code.
const char* const kGatherCode = "sees index and operand in geometries that the entry point gather takes";
const KernelId kGather("gather"), kIndexSelect("index_select");

// Complex numbers as pairs of real ones where the kernel does not take them: they are only moved.
void gather_into(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index) {
  Launch launch(kGather, self.device());
  launch.out(out).in(self).in(index).param(dim);
  if (!is_complex(self.dtype())) return launch.run_required();
  if (!launch.run()) gather_into(raw_parts(out), raw_parts(self), dim, raw_index_of_parts(index));
}

} // namespace

Tensor raw_1d(const Tensor& t) { return t.ndim() ? t : raw_view(t, Dims{1}); }

Tensor select_along(const Tensor& self, int64_t dim, const Tensor& index) {
  Dims sizes(self.sizes());
  sizes[dim] = index.numel();
  Tensor out = empty_tensor(sizes, self.dtype(), self.device());
  if (out.numel() == 0) return out;
  TS_CHECK_INDEX(self.sizes()[dim] > 0, "index is out of bounds for dimension ", dim, " with size 0");
  select_into(out, self, dim, index);
  return out;
}

void select_into(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index) {
  if (self.is_contiguous() && Launch(kIndexSelect, self.device()).out(out).in(self).in(index).param(dim).run()) return;
  Dims shape(out.sizes().size(), 1);
  shape[dim] = index.numel();
  Tensor seen = raw_expand(raw_view(index, shape), out.sizes(), "index_select");
  gather_into(out, self, dim, seen);
}

namespace {

Tensor gather_rule(const Tensor& self, int64_t dim, const Tensor& index, bool) {
  if (index.numel()) check_index_dtype(index, "gather"); // PyTorch takes an empty one of any dtype
  check_same_device(self, index, "gather");
  int64_t d = wrap_dim(dim, self.ndim(), "gather");
  if (index.numel() == 0) return outline(index.sizes(), self.dtype(), self.device()); // of any rank
  TS_CHECK(std::max<int64_t>(self.ndim(), 1) == std::max<int64_t>(index.ndim(), 1),
           "gather: Index tensor must have the same number of dimensions as input tensor, got index ", index.sizes(),
           " and input ", self.sizes());
  for (int64_t k = 0; k < index.ndim() && self.ndim() > 0; ++k)
    TS_CHECK(k == d || index.sizes()[k] <= self.sizes()[k], "gather: Size does not match at dimension ", k,
             " expected index ", index.sizes(), " to be no larger than self ", self.sizes(), " apart from dimension ",
             d);
  TS_CHECK_INDEX(index.numel() == 0 || self.ndim() == 0 || self.sizes()[d] > 0,
                 "gather: index is out of bounds for dimension ", d, " with size 0");
  return outline(index.sizes(), self.dtype(), self.device());
}
void gather(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, bool) {
  int64_t d = wrap_dim(dim, self.ndim(), "gather");
  Tensor to = raw_1d(out), from = raw_1d(self), at = raw_1d(index);
  for (int64_t k = 0; k < at.ndim(); ++k)
    if (k != d && at.sizes()[k] != from.sizes()[k]) from = raw_narrow(from, k, 0, at.sizes()[k]);
  gather_into(to, from, d, at);
}

// Where nothing is picked no kernel looks at the positions.
void check_positions_of_nothing(const Tensor& index, int64_t dim, int64_t size) {
  if (!index->storage || index.device().is_meta()) return; // nor are there any
  Tensor flat = raw_contiguous(raw_cast(index, DType::Int64));
  std::vector<int64_t> host(static_cast<size_t>(flat.numel()));
  copy_bytes_to_host(host.data(), flat, host.size() * sizeof(int64_t));
  for (int64_t v : host)
    TS_CHECK_INDEX(v >= 0 && v < size, "index_select: index ", v, " is out of bounds for dimension ", dim,
                   " with size ", size);
}

Tensor index_select_rule(const Tensor& self, int64_t dim, const Tensor& index) {
  check_index_dtype(index, "index_select");
  check_same_device(self, index, "index_select");
  TS_CHECK_INDEX(index.ndim() <= 1, "index_select: Index is supposed to be a vector, got sizes ", index.sizes());
  int64_t d = wrap_dim(dim, self.ndim(), "index_select");
  TS_CHECK(self.ndim() > 0 || index.numel() == 1, "index_select: Index to scalar can have only 1 value, got ",
           index.numel(), " value(s)");
  Dims sizes(self.sizes());
  if (self.ndim()) sizes[d] = index.numel();
  Tensor out = outline(sizes, self.dtype(), self.device());
  TS_CHECK_INDEX(out.numel() == 0 || self.ndim() == 0 || self.sizes()[d] > 0, "index is out of bounds for dimension ",
                 d, " with size 0");
  if (out.numel() == 0 && self.ndim() > 0) check_positions_of_nothing(index, d, self.sizes()[d]);
  return out;
}
void index_select(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index) {
  if (self.ndim() && index.ndim()) return select_into(out, self, dim < 0 ? dim + self.ndim() : dim, index);
  select_into(raw_1d(out), raw_1d(self), self.ndim() ? wrap_dim(dim, self.ndim(), "index_select") : 0, raw_1d(index));
}

Tensor take(const Tensor& self, const Tensor& index) {
  check_long_index(index, "take");
  Tensor flat = ops::reshape(self, Dims{-1});
  return ops::index(flat, TensorList(&index, 1));
}

Tensor take_along_dim(const Tensor& self, const Tensor& positions, std::optional<int64_t> dim) {
  static const Op wrap("_wrap_index"); // negative positions count from the end
  TS_CHECK(positions.dtype() == DType::Int64, "take_along_dim: dtype of indices should be Long but got ",
           positions.dtype());
  if (!dim) {
    Tensor flat = ops::reshape(self, Dims{-1});
    return ops::gather(flat, 0, wrap(ops::reshape(positions, Dims{-1}), Scalar(flat.numel())));
  }
  TS_CHECK(self.ndim() == positions.ndim(),
           "take_along_dim: input and indices should have the same number of dimensions, but got ", self.ndim(),
           " dimensions for input, and ", positions.ndim(), " dimensions for indices");
  int64_t d = wrap_dim(*dim, self.ndim(), "take_along_dim");
  Tensor indices = wrap(positions, Scalar(self.ndim() ? self.sizes()[d] : 1));
  Dims self_sizes(self.sizes()), index_sizes(indices.sizes());
  if (self.ndim() == 0) return ops::gather(self, d, indices);
  self_sizes[d] = index_sizes[d] = 1;
  Dims common = broadcast_sizes(self_sizes, index_sizes, "take_along_dim");
  self_sizes = index_sizes = common;
  self_sizes[d] = self.sizes()[d];
  index_sizes[d] = indices.sizes()[d];
  return ops::gather(ops::expand(self, self_sizes), d, ops::expand(indices, index_sizes));
}

} // namespace

TS_OPERATORS(gather) {
  def("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor")
      .rule<gather_rule>()
      .computation<gather>(kGatherCode)
      .saves("index")
      .out(kApart | kLikeFirst)
      .gradient([](GradContext& c) {
        c.set(0, ops::scatter_add(ops::zeros(c.sizes(0), c.grad().dtype(), c.grad().device()), c.value<int64_t>(1),
                                  c.arg(2), c.grad()));
      })
      .doc(
          "Elements of self taken along `dim` at index, whose shape the result has. IndexError outside the dimension.");
  def("index_select(Tensor self, int dim, Tensor index) -> Tensor")
      .facts("kernel:index_select")
      .facts("stored")
      .rule<index_select_rule>()
      .computation<index_select>(kGatherCode)
      .saves("index")
      .out(kSameDtype | kApart)
      .gradient([](GradContext& c) {
        c.set(0, ops::index_add(ops::zeros(c.sizes(0), c.grad().dtype(), c.grad().device()), c.value<int64_t>(1),
                                c.arg(2), c.grad()));
      })
      .doc("The slices of self along `dim` at the positions of a one-dimensional index.");
  def("take(Tensor self, Tensor index) -> Tensor")
      .facts("leaf stored:none")
      .body<take>()
      .out(kSameDtype | kApart)
      .doc("Elements of the flattened self at index, whose shape the result has; negative positions count from the "
           "end.");
  def("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor")
      .body<take_along_dim>()
      .out()
      .doc("As gather, with self and indices broadcast against each other apart from `dim`; flattened without dim.");
}

} // namespace ts
