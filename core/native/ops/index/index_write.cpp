// Writing whole slices by index: index_add, index_copy, index_fill and their in-place forms.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/index/gather_scatter.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kIndexWriteCode = "sees rows in geometries that the entry point scatter takes";

const Op index_fill_op("index_fill.int_Scalar");

// Results are written over a copy of self, or in place over self itself.
Tensor index_write_outline_of(const Tensor& self) { return outline(self.sizes(), self.dtype(), self.device()); }
void begin(const Tensor& out, const Tensor& self) {
  if (!out.is(self)) raw_copy(out, self);
}
Tensor index_write_number(const Tensor& self, Scalar v, IntSpan sizes, const char* op) {
  return raw_expand(filled({}, convert_scalar(v, self.dtype(), op), self.dtype(), self.device()), sizes, op);
}

void slices_to(const Tensor& out, int64_t d, const Tensor& index, const Tensor& source, int opcode) {
  Tensor from = apart_from(source, out);
  if (from.ndim() != std::max<int64_t>(out.ndim(), 1))
    from = raw_view(from, Dims(static_cast<size_t>(std::max<int64_t>(out.ndim(), 1)), 1));
  scatter_slices(out, d, apart_from(index, out), from, opcode);
}

Tensor index_add_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  check_slices(self, dim, index, source, "index_add");
  TS_CHECK(is_complex(self.dtype()) || !alpha.is_complex(), "index_add: expected a real alpha for ", self.dtype(),
           ", got a complex number");
  TS_CHECK(is_differentiable(self.dtype()) || std::abs(alpha.real()) < 0x1p63,
           "index_add: expected an alpha that fits ", self.dtype(), ", got ", alpha.real());
  return index_write_outline_of(self);
}
void index_add(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
               Scalar alpha) {
  begin(out, self);
  // A factor of whole numbers is a whole number, and one of truths a truth, as PyTorch's.
  if (alpha.is_float() && !is_differentiable(source.dtype())) alpha = Scalar(static_cast<int64_t>(alpha.real()));
  Tensor scaled = alpha.is(1) ? source : ops::mul(source, alpha);
  if (scaled.dtype() != source.dtype()) scaled = ops::to_dtype(scaled, source.dtype());
  slices_to(out, wrap_dim(dim, self.ndim(), "index_add"), index, scaled, TS_S_ADD);
}
void index_add_rule_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  check_inplace(self, "index_add_");
  check_no_overlap(self, index, "index_add_");
  check_no_overlap(self, source, "index_add_");
  index_add_rule(self, dim, index, source, alpha);
}
void index_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  index_add(self, self, dim, index, source, alpha);
}

Tensor index_copy_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  check_long_index(index, "index_copy_");
  check_slices(self, dim, index, source, "index_copy", false);
  return index_write_outline_of(self);
}
void index_copy(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  begin(out, self);
  slices_to(out, wrap_dim(dim, self.ndim(), "index_copy"), index, source, TS_S_SET);
}
void index_copy_rule_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  check_inplace(self, "index_copy_");
  check_no_overlap(self, index, "index_copy_");
  check_no_overlap(self, source, "index_copy_");
  index_copy_rule(self, dim, index, source);
}
void index_copy_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  index_copy(self, self, dim, index, source);
}

void check_fill(const Tensor& self, int64_t dim, const Tensor& index) {
  TS_CHECK_INDEX(index.dtype() == DType::Int64, "index_fill_(): Expected dtype int64 for index, got ", index.dtype());
  check_same_device(self, index, "index_fill_");
  TS_CHECK_INDEX(index.ndim() <= 1, "index_fill_: Index has to be a vector/scalar, got sizes ", index.sizes());
  check_room(self, wrap_dim(dim, self.ndim(), "index_fill_"), index.numel(), "index_fill_");
}
void fill_slices(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& value) {
  int64_t d = wrap_dim(dim, out.ndim(), "index_fill_");
  Dims sizes(raw_1d(out).sizes());
  sizes[d] = index.numel();
  static const Op wrap("_wrap_index");
  Tensor at = wrap(apart_from(index, out), Scalar(raw_1d(out).sizes()[d])); // negative positions count from the end
  scatter_slices(out, d, at, raw_expand(value, sizes, "index_fill_"), TS_S_SET);
}

Tensor index_fill_scalar_rule(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  check_fill(self, dim, index);
  convert_scalar(value, self.dtype(), "index_fill_");
  return index_write_outline_of(self);
}
void index_fill_scalar(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  begin(out, self);
  fill_slices(out, dim, index, index_write_number(self, value, {}, "index_fill_"));
}
void index_fill_scalar_rule_(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  check_filled(self, "index_fill_");
  check_no_overlap(self, index, "index_fill_");
  index_fill_scalar_rule(self, dim, index, value);
}
void index_fill_scalar_(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  index_fill_scalar(self, self, dim, index, value);
}

Tensor index_fill_tensor_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  TS_CHECK(value.ndim() == 0, "index_fill_: only supports a 0-dimensional value tensor, but got tensor with ",
           value.ndim(), " dimension(s).");
  check_fill(self, dim, index);
  return index_write_outline_of(self);
}
void index_fill_tensor(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  check_value_fits(value, self.dtype(), "index_fill_");
  begin(out, self);
  fill_slices(out, dim, index, apart_from(raw_cast(transfer(value, self.device()), self.dtype()), out));
}
void index_fill_tensor_rule_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  check_filled(self, "index_fill_");
  check_no_overlap(self, index, "index_fill_");
  index_fill_tensor_rule(self, dim, index, value);
}
void index_fill_tensor_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  index_fill_tensor(self, self, dim, index, value);
}

void index_add_gradient(GradContext& c) {
  c.set(0, c.grad());
  if (!c.needs(3)) return;
  Tensor g = ops::index_select(c.grad(), c.value<int64_t>(1), c.arg(2));
  Scalar alpha = c.value(4).as_scalar();
  if (!alpha.is(1)) g = ops::mul(g, alpha.conj());
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

int64_t check_slices(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const char* op,
                     bool alike) {
  TS_CHECK_INDEX(index.ndim() <= 1, op, ": Index should have dimension 1 or 0, got sizes ", index.sizes());
  check_index_dtype(index, op);
  check_same_device(self, index, op);
  check_same_device(self, source, op);
  check_same_dtype(self, source, op);
  const int64_t d = wrap_dim(dim, self.ndim(), op), count = index.numel();
  const auto slice = [d](const Tensor& t) {
    Dims sizes(t.sizes());
    if (d < t.ndim()) sizes.erase(sizes.begin() + d);
    return sizes;
  };
  const bool fits = same(slice(self), slice(source)) && (!alike || self.ndim() == source.ndim());
  TS_CHECK(fits, op, ": expected source of self's shape but for ", count, " along dimension ", d, ", got source ",
           source.sizes(), " for self ", self.sizes());
  const int64_t have = source.ndim() ? source.size(d) : 1;
  TS_CHECK_KIND(alike ? ErrorKind::Runtime : ErrorKind::Index, have == count, op, ": Number of indices (", count,
                ") should be equal to source.size(dim): (", have, ") for source ", source.sizes(), " and dim ", d);
  check_room(self, d, source.numel(), op);
  return d;
}

TS_OPERATORS(index_write) {
  def("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
      .facts("kernel:index_add_")
      .facts("stored:complex32")
      .rule<index_add_rule>()
      .computation<index_add>(kIndexWriteCode)
      .reuses_self()
      .saves("index")
      .gradient(index_add_gradient)
      .out(kSameDtype)
      .doc("self with alpha times the slices of source added at the positions index along `dim`; duplicates add up.");
  def("index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)")
      .facts("stored:complex32")
      .rule<index_add_rule_>()
      .computation<index_add_, 0>(kIndexWriteCode)
      .saves("index")
      .gradient(index_add_gradient)
      .method_only()
      .doc("In-place version of index_add.");
  def("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor")
      .facts("stored:complex32 autocast:widest/-")
      .rule<index_copy_rule>()
      .computation<index_copy>(kIndexWriteCode)
      .reuses_self()
      .saves("index")
      .gradient(index_copy_gradient)
      .out()
      .doc("self with the slices of source written at the positions index along `dim`.");
  def("index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)")
      .facts("stored:complex32")
      .rule<index_copy_rule_>()
      .computation<index_copy_, 0>(kIndexWriteCode)
      .saves("index")
      .gradient(index_copy_gradient)
      .method_only()
      .doc("In-place version of index_copy.");
  // Before the forms that take a number, which would read the tensor.
  def("index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor")
      .facts("stored:complex32")
      .rule<index_fill_tensor_rule>()
      .computation<index_fill_tensor>(kIndexWriteCode)
      .reuses_self()
      .saves("index")
      .gradient(index_fill_gradient)
      .any_device()
      .doc("self with the slices at index along `dim` set to a 0-d value.");
  def("index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, Tensor value) -> Tensor(a!)")
      .facts("stored:complex32")
      .rule<index_fill_tensor_rule_>()
      .computation<index_fill_tensor_, 0>(kIndexWriteCode)
      .saves("index")
      .gradient(index_fill_gradient)
      .any_device()
      .method_only()
      .doc("In-place version of index_fill.");
  def("index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .rule<index_fill_scalar_rule>()
      .computation<index_fill_scalar>(kIndexWriteCode)
      .reuses_self()
      .saves("index")
      .gradient(index_fill_gradient)
      .doc("self with the slices at index along `dim` set to value.");
  def("index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)")
      .rule<index_fill_scalar_rule_>()
      .computation<index_fill_scalar_, 0>(kIndexWriteCode)
      .saves("index")
      .gradient(index_fill_gradient)
      .method_only()
      .doc("In-place version of index_fill.");
}

} // namespace ts
