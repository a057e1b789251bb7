// Writing whole slices by index: index_add, index_copy, index_fill and their in-place forms.
#include "ops/api.h"
#include "ops/arguments.h"
#include "ops/check.h"
#include "ops/declare.h"
#include "ops/gather_scatter.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const Op index_fill_op("index_fill.int_Scalar");

Tensor fresh(const Tensor& self) { return copy_as(self, self.dtype(), MemoryFormat::Contiguous); }
Tensor number(const Tensor& self, Scalar v, IntSpan sizes, const char* op) {
  return raw_expand(filled({}, convert_scalar(v, self.dtype(), op), self.dtype(), self.device()), sizes, op);
}

int64_t check_slices(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const char* op) {
  check_index_dtype(index, op);
  check_same_device(self, index, op);
  check_same_device(self, source, op);
  check_same_dtype(self, source, op);
  TS_CHECK_INDEX(index.ndim() <= 1, op, ": Index should have dimension 1 or 0, got sizes ", index.sizes());
  int64_t d = wrap_dim(dim, self.ndim(), op);
  Dims want(self.sizes());
  if (!want.empty()) want[d] = index.numel();
  bool fits = same(source.sizes(), want) || (source.numel() == 1 && index.numel() == 1 && checked_numel(want) == 1);
  TS_CHECK(fits, op, ": expected source of shape ", want.span(), " for self ", self.sizes(), " and an index of ",
           index.numel(), " elements along dimension ", d, ", got ", source.sizes());
  return d;
}

void slices_to(const Tensor& out, int64_t d, const Tensor& index, const Tensor& source, int opcode) {
  Tensor from = apart_from(source, out);
  if (from.ndim() != std::max<int64_t>(out.ndim(), 1))
    from = raw_view(from, Dims(static_cast<size_t>(std::max<int64_t>(out.ndim(), 1)), 1));
  scatter_slices(out, d, apart_from(index, out), from, opcode);
}

Tensor index_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  check_inplace(self, "index_add_");
  int64_t d = check_slices(self, dim, index, source, "index_add");
  bool one = alpha.to_double() == 1;
  TS_CHECK(one || !alpha.is_float() || is_differentiable(self.dtype()),
           "index_add: for integral input tensors, alpha must not be a floating point number");
  slices_to(self, d, index, one ? source : ops::mul(source, alpha), TS_S_ADD);
  return self;
}
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  check_slices(self, dim, index, source, "index_add");
  return index_add_(fresh(self), dim, index, source, alpha);
}

Tensor index_copy_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  check_inplace(self, "index_copy_");
  slices_to(self, check_slices(self, dim, index, source, "index_copy"), index, source, TS_S_SET);
  return self;
}
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  check_slices(self, dim, index, source, "index_copy");
  return index_copy_(fresh(self), dim, index, source);
}

void fill_slices(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  check_index_dtype(index, "index_fill_");
  check_same_device(self, index, "index_fill_");
  TS_CHECK_INDEX(index.ndim() <= 1, "index_fill_: Index has to be a vector/scalar, got sizes ", index.sizes());
  int64_t d = wrap_dim(dim, self.ndim(), "index_fill_");
  Dims sizes(raw_1d(self).sizes());
  sizes[d] = index.numel();
  static const Op wrap("_wrap_index");
  Tensor at = wrap(apart_from(index, self), Scalar(raw_1d(self).sizes()[d])); // negative positions count from the end
  scatter_slices(self, d, at, raw_expand(value, sizes, "index_fill_"), TS_S_SET);
}
Tensor index_fill_scalar_(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  check_inplace(self, "index_fill_");
  fill_slices(self, dim, index, number(self, value, {}, "index_fill_"));
  return self;
}
Tensor index_fill_tensor_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  TS_CHECK(value.ndim() == 0, "index_fill_: only supports a 0-dimensional value tensor, but got tensor with ",
           value.ndim(), " dimension(s).");
  check_inplace(self, "index_fill_");
  check_value_fits(value, self.dtype(), "index_fill_");
  Tensor v = raw_cast(transfer(value, self.device()), self.dtype());
  fill_slices(self, dim, index, apart_from(v, self));
  return self;
}
Tensor index_fill_scalar(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  return index_fill_scalar_(fresh(self), dim, index, value);
}
Tensor index_fill_tensor(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  return index_fill_tensor_(fresh(self), dim, index, value);
}

void index_add_gradient(GradContext& c) {
  c.set(0, c.grad());
  if (!c.needs(3)) return;
  Tensor g = ops::index_select(c.grad(), c.value<int64_t>(1), c.arg(2));
  Scalar alpha = c.value(4).as_scalar();
  if (alpha.to_double() != 1) g = ops::mul(g, alpha);
  c.set(3, ops::reshape(g, c.sizes(3)));
}
void index_copy_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, index_fill_op(c.grad(), c.value<int64_t>(1), c.arg(2), Scalar(0)));
  if (c.needs(3)) c.set(3, ops::reshape(ops::index_select(c.grad(), c.value<int64_t>(1), c.arg(2)), c.sizes(3)));
}
void index_fill_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, index_fill_op(c.grad(), c.value<int64_t>(1), c.arg(2), Scalar(0)));
  if (c.value(3).is_number() || !c.needs(3)) return;
  // Duplicate positions were written once: fill ones, and sum the gradient where they arrived.
  Tensor hit = index_fill_op(ops::zeros_like(c.grad()), c.value<int64_t>(1), c.arg(2), Scalar(1));
  c.set(3, ops::to_device(ops::sum(ops::mul(c.grad(), hit)), c.device(3), c.dtype(3)));
}

} // namespace

TS_OPERATORS(index_write) {
  def("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
      .body<index_add>()
      .saves("index")
      .gradient(index_add_gradient)
      .out()
      .doc("self with alpha times the slices of source added at the positions index along `dim`; duplicates add up.");
  def("index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)")
      .body<index_add_>()
      .saves("index")
      .gradient(index_add_gradient)
      .method_only()
      .doc("In-place version of index_add.");
  def("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor")
      .body<index_copy>()
      .saves("index")
      .gradient(index_copy_gradient)
      .out()
      .doc("self with the slices of source written at the positions index along `dim`.");
  def("index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)")
      .body<index_copy_>()
      .saves("index")
      .gradient(index_copy_gradient)
      .method_only()
      .doc("In-place version of index_copy.");
  // Before the forms that take a number, which would read the tensor.
  def("index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor")
      .body<index_fill_tensor>()
      .saves("index")
      .gradient(index_fill_gradient)
      .any_device()
      .doc("self with the slices at index along `dim` set to a 0-d value.");
  def("index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, Tensor value) -> Tensor(a!)")
      .body<index_fill_tensor_>()
      .saves("index")
      .gradient(index_fill_gradient)
      .any_device()
      .method_only()
      .doc("In-place version of index_fill.");
  def("index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .body<index_fill_scalar>()
      .saves("index")
      .gradient(index_fill_gradient)
      .doc("self with the slices at index along `dim` set to value.");
  def("index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)")
      .body<index_fill_scalar_>()
      .saves("index")
      .gradient(index_fill_gradient)
      .method_only()
      .doc("In-place version of index_fill.");
}

} // namespace ts
