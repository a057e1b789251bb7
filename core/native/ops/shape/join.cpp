// Joining tensors: cat, stack and the h/v/d forms.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/promotion.h"
#include <algorithm>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kJoinCode = "joins as cat does, its operands seen with a dim more";

const KernelId kCat("cat");

// An empty one-dimensional tensor joins anything: PyTorch keeps this for old programs.
bool is_skipped(const Tensor& t) { return t.ndim() == 1 && t.numel() == 0; }
bool is_skipped(IntSpan sizes) { return sizes.size() == 1 && sizes[0] == 0; }

struct CatShape {
  Dims sizes;
  int64_t dim;
};

CatShape cat_shape(TensorList tensors, int64_t dim) {
  const Tensor* first = nullptr;
  for (const Tensor& t : tensors)
    if (!is_skipped(t)) {
      first = &t;
      break;
    }
  if (!first) return {Dims{0}, 0}; // whatever dim is
  TS_CHECK(first->ndim() > 0, "cat: zero-dimensional tensor (at position ", first - tensors.data(),
           ") cannot be concatenated");
  CatShape shape{Dims(first->sizes()), wrap_dim(dim, first->ndim(), "cat")};
  int64_t total = 0;
  for (size_t k = 0; k < tensors.size(); ++k) {
    const Tensor& t = tensors[k];
    if (is_skipped(t)) continue;
    TS_CHECK(t.ndim() == first->ndim(), "cat: Tensors must have same number of dimensions: got ", first->ndim(),
             " and ", t.ndim());
    for (int64_t d = 0; d < t.ndim(); ++d)
      TS_CHECK(d == shape.dim || t.sizes()[d] == shape.sizes[d],
               "cat: Sizes of tensors must match except in dimension ", shape.dim, ". Expected size ", shape.sizes[d],
               " but got size ", t.sizes()[d], " for tensor number ", k, " in the list. Dimension ", d, " of ",
               first->sizes(), " and ", t.sizes(), " differs");
    TS_CHECK(!__builtin_add_overflow(total, t.sizes()[shape.dim], &total), "cat: sizes overflow");
  }
  shape.sizes[shape.dim] = total;
  return shape;
}

// Channels-last when every operand is.
MemoryFormat cat_format(TensorList tensors) {
  MemoryFormat format = suggested_format(tensors[0].sizes(), tensors[0].strides());
  bool all =
      std::ranges::all_of(tensors, [&](const Tensor& t) { return suggested_format(t.sizes(), t.strides()) == format; });
  return all ? format : MemoryFormat::Contiguous;
}

Tensor cat_rule(TensorList tensors, int64_t dim) {
  TS_CHECK_VALUE(!tensors.empty(), "cat: expected a non-empty list of Tensors");
  Dims sizes = cat_shape(tensors, dim).sizes;
  for (const Tensor& t : tensors) check_same_device(tensors[0], t, "cat");
  return outline_strided(sizes, strides_for(sizes, cat_format(tensors)), result_type(tensors), tensors[0].device());
}

// Parts that have elements, one after another along dim.
void copy_parts(const Tensor& out, const std::vector<Tensor>& parts, int64_t dim) {
  int64_t at = 0;
  for (const Tensor& p : parts) {
    int64_t length = p.sizes()[dim];
    raw_copy(raw_narrow(out, dim, at, length), p);
    at += length;
  }
}

// Part by part, each cast on the way.
void cat_copies(const Tensor& out, TensorList tensors, int64_t dim) {
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors)
    if (t.numel() > 0) parts.push_back(t);
  copy_parts(out, parts, dim < 0 ? dim + out.ndim() : dim);
}

void cat_gradient(GradContext& c) {
  int64_t dim = c.value<int64_t>(1), at = 0;
  if (dim < 0) dim += c.grad().ndim();
  for (int j = 0; j < c.count(0); ++j) {
    if (is_skipped(c.sizes(0, j))) {
      if (c.needs(0, j)) c.set(0, j, ops::zeros(c.sizes(0, j), c.dtype(0, j), c.device(0, j)));
      continue;
    }
    int64_t length = c.sizes(0, j)[dim];
    if (c.needs(0, j)) c.set(0, j, ops::to_dtype(ops::slice(c.grad(), dim, at, at + length, 1), c.dtype(0, j)));
    at += length;
  }
}

Tensor cat_alias(TensorList tensors, int64_t dim) { return ops::cat(tensors, dim); }

// The tensors with a dimension of size one more.
std::vector<Tensor> with_new_dim(TensorList tensors, int64_t d) {
  std::vector<Tensor> parts;
  parts.reserve(tensors.size());
  for (const Tensor& t : tensors) {
    Dims sizes(t.sizes()), strides(t.strides());
    sizes.insert(sizes.begin() + d, 1);
    strides.insert(strides.begin() + d, 1);
    parts.push_back(alias(t, sizes, strides, t->byte_offset));
  }
  return parts;
}

Tensor stack_rule(TensorList tensors, int64_t dim) {
  TS_CHECK(!tensors.empty(), "stack: expects a non-empty TensorList");
  const Tensor& first = tensors[0];
  int64_t d = wrap_dim(dim, first.ndim() + 1, "stack");
  DType dtype = first.dtype();
  for (size_t k = 0; k < tensors.size(); ++k) {
    TS_CHECK(same(tensors[k].sizes(), first.sizes()), "stack: expects each tensor to be equal size, but got ",
             first.sizes(), " at entry 0 and ", tensors[k].sizes(), " at entry ", k);
    check_same_device(first, tensors[k], "stack");
    dtype = promote_types(dtype, tensors[k].dtype());
  }
  Dims sizes(first.sizes());
  int64_t count = static_cast<int64_t>(tensors.size());
  if (d == first.ndim()) {
    sizes.push_back(count);
    MemoryFormat format = cat_format(with_new_dim(tensors, d));
    return outline_strided(sizes, strides_for(sizes, format), dtype, first.device());
  }
  // PyTorch joins along dim d and sees that one as two, which keeps a channels-last layout within each part.
  int64_t length = sizes[d];
  TS_CHECK(!__builtin_mul_overflow(length, count, &sizes[d]), "stack: sizes overflow");
  Dims strides = strides_for(sizes, cat_format(tensors));
  strides.insert(strides.begin() + d, strides[d] * std::max<int64_t>(length, 1));
  sizes[d] = length;
  sizes.insert(sizes.begin() + d, count);
  return outline_strided(sizes, strides, dtype, first.device());
}
void stack(const Tensor& out, TensorList tensors, int64_t dim) {
  int64_t d = dim < 0 ? dim + out.ndim() : dim;
  std::vector<Tensor> parts = with_new_dim(tensors, d);
  bool same_dtype = std::ranges::all_of(parts, [&](const Tensor& p) { return p.dtype() == out.dtype(); });
  if (!same_dtype || !Launch(kCat, out.device()).out(out).ins(parts).param(d).run()) copy_parts(out, parts, d);
}

void stack_gradient(GradContext& c) {
  int64_t dim = c.value<int64_t>(1);
  if (dim < 0) dim += c.grad().ndim();
  for (int j = 0; j < c.count(0); ++j)
    if (c.needs(0, j)) c.set(0, j, ops::to_dtype(ops::select(c.grad(), dim, j), c.dtype(0, j)));
}

const Op join_atleast_1d("atleast_1d.Sequence"), join_atleast_2d("atleast_2d.Sequence"),
    join_atleast_3d("atleast_3d.Sequence");

Tensor hstack(TensorList tensors) {
  TS_CHECK(!tensors.empty(), "hstack: expects a non-empty TensorList");
  std::vector<Tensor> parts = join_atleast_1d.list(tensors);
  return ops::cat(parts, parts[0].ndim() == 1 ? 0 : 1);
}
Tensor vstack(TensorList tensors) {
  TS_CHECK(!tensors.empty(), "vstack: expects a non-empty TensorList");
  return ops::cat(join_atleast_2d.list(tensors), 0);
}
Tensor dstack(TensorList tensors) {
  TS_CHECK(!tensors.empty(), "dstack: expects a non-empty TensorList");
  return ops::cat(join_atleast_3d.list(tensors), 2);
}
Tensor column_stack(TensorList tensors) {
  TS_CHECK(!tensors.empty(), "column_stack: expects a non-empty TensorList");
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) parts.push_back(t.ndim() <= 1 ? ops::reshape(t, Dims{t.numel(), 1}) : t);
  return ops::cat(parts, 1);
}

} // namespace

TS_OPERATORS(join) {
  def("cat(Tensor[] tensors, int dim=0) -> Tensor")
      .facts("stored autocast:widest")
      .rule<cat_rule>()
      .kernel("cat", "tensors: any result only", "dim wrapped result")
      .decompose<cat_copies>()
      .gradient(cat_gradient)
      .function_only()
      .out(kApart | kDtypeIsType)
      .doc("Joins tensors along an existing dimension; other sizes must match, dtypes are promoted.");
  def("concat(Tensor[] tensors, int dim=0) -> Tensor")
      .facts("stored")
      .body<cat_alias>()
      .function_only()
      .out(kApart | kDtypeIsType)
      .doc("Same as cat.");
  def("concatenate(Tensor[] tensors, int dim=0) -> Tensor")
      .body<cat_alias>()
      .function_only()
      .out(kApart | kDtypeIsType)
      .doc("Same as cat.");
  def("stack(Tensor[] tensors, int dim=0) -> Tensor")
      .facts("kernel:cat")
      .facts("stored autocast:widest")
      .rule<stack_rule>()
      .computation<stack>(kJoinCode)
      .gradient(stack_gradient)
      .function_only()
      .out(kDtypeIsType)
      .doc("Joins tensors of one shape along a new dimension.");
  def("hstack(Tensor[] tensors) -> Tensor")
      .body<hstack>()
      .function_only()
      .out(kDtypeIsType)
      .doc("Joins along dimension 1, or 0 for one-dimensional tensors.");
  def("vstack(Tensor[] tensors) -> Tensor")
      .body<vstack>()
      .function_only()
      .out(kDtypeIsType)
      .doc("Joins along dimension 0 after making every tensor at least two-dimensional.");
  def("row_stack(Tensor[] tensors) -> Tensor").body<vstack>().function_only().out(kDtypeIsType).doc("Same as vstack.");
  def("dstack(Tensor[] tensors) -> Tensor")
      .body<dstack>()
      .function_only()
      .out(kDtypeIsType)
      .doc("Joins along dimension 2 after making every tensor at least three-dimensional.");
  def("column_stack(Tensor[] tensors) -> Tensor")
      .body<column_stack>()
      .function_only()
      .out(kDtypeIsType)
      .doc("Joins along dimension 1 after turning one-dimensional tensors into columns.");
}

} // namespace ts
