// Views by shape: view, reshape, transpose, permute, expand, squeeze and their like. Metadata only.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "tensor/geometry.h"
#include <bitset>

namespace ts {
namespace {

Tensor view(const Tensor& self, IntSpan size) {
  Dims to = infer_size(size, self.numel(), "view");
  std::optional<Dims> strides = view_strides(self.sizes(), self.strides(), to);
  TS_CHECK(strides,
           "view: view size is not compatible with input tensor's size and stride (at least one dimension "
           "spans across two contiguous subspaces), got sizes ",
           self.sizes(), ", strides ", self.strides(), " and the shape ", size, ". Use .reshape(...) instead.");
  return make_view(self, to, *strides, self->byte_offset);
}

// Of a tensor that nobody else holds: the result stands for itself, and is no view.
Tensor unsafe_view(const Tensor& self, IntSpan size) {
  Dims to = infer_size(size, self.numel(), "_unsafe_view");
  std::optional<Dims> strides = view_strides(self.sizes(), self.strides(), to);
  TS_CHECK(strides, "_unsafe_view: sizes ", self.sizes(), " with strides ", self.strides(), " have no view as ", size);
  return alias(self, to, *strides, self->byte_offset);
}
const Op unsafe_view_op("_unsafe_view");

// Bits reinterpreted: only the last dimension changes, by the ratio of the item sizes.
Tensor view_dtype(const Tensor& self, DType dtype) {
  TS_CHECK(!self.is_conj(), "view: is not supported for conjugate view tensors when converting to a different dtype; "
                            "use resolve_conj() first");
  TS_CHECK(!self.is_neg(), "view: is not supported for tensors with negative bit set when converting to a different "
                           "dtype; use resolve_neg() first");
  int64_t have = self.item_size(), want = item_size(dtype);
  Dims sizes(self.sizes()), strides(self.strides());
  if (have != want) {
    TS_CHECK(self.ndim() > 0, "view: self.dim() cannot be 0 to view ", self.dtype(), " as ", dtype,
             " (different element sizes)");
    TS_CHECK(strides.back() == 1 || self.numel() == 0 || sizes.back() == 1, "view: self.stride(-1) must be 1 to view ",
             self.dtype(), " as ", dtype, " (different element sizes), but got ", strides.back());
    strides.back() = 1;
  }
  if (have > want) {
    int64_t ratio = have / want;
    for (int64_t& s : strides) s *= ratio;
    TS_CHECK(!__builtin_mul_overflow(sizes.back(), ratio, &sizes.back()), "view: size overflows");
    strides.back() = 1;
  } else if (have < want) {
    int64_t ratio = want / have;
    TS_CHECK(sizes.back() % ratio == 0, "view: self.size(-1) must be divisible by ", ratio, " to view ", self.dtype(),
             " as ", dtype, " (different element sizes), but got ", sizes.back());
    for (size_t d = 0; d + 1 < strides.size(); ++d) {
      TS_CHECK(strides[d] % ratio == 0 || sizes[d] <= 1, "view: self.stride(", d, ") must be divisible by ", ratio,
               " to view ", self.dtype(), " as ", dtype, " (different element sizes), but got ", strides[d]);
      strides[d] /= ratio;
    }
    sizes.back() /= ratio;
  }
  TS_CHECK(self->byte_offset % want == 0, "view: self.storage_offset() must be a multiple of ",
           want / std::min(have, want), " to view ", self.dtype(), " as ", dtype);
  Tensor out = make_view(self, sizes, strides, self->byte_offset);
  out->set_dtype(dtype);
  return out;
}

Tensor reshape(const Tensor& self, IntSpan shape) {
  Dims to = infer_size(shape, self.numel(), "reshape");
  if (view_strides(self.sizes(), self.strides(), to)) return ops::view(self, to);
  return unsafe_view_op(ops::clone(self, MemoryFormat::Contiguous), to);
}

Tensor view_as(const Tensor& self, const Tensor& other) { return ops::view(self, other.sizes()); }
Tensor reshape_as(const Tensor& self, const Tensor& other) { return ops::reshape(self, other.sizes()); }

Tensor transposed(const Tensor& self, int64_t a, int64_t b) {
  Dims sizes(self.sizes()), strides(self.strides());
  if (!sizes.empty()) {
    std::swap(sizes[a], sizes[b]);
    std::swap(strides[a], strides[b]);
  }
  return make_view(self, sizes, strides, self->byte_offset);
}

Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  return transposed(self, wrap_dim(dim0, self.ndim(), "transpose"), wrap_dim(dim1, self.ndim(), "transpose"));
}

Tensor t(const Tensor& self) {
  TS_CHECK(self.ndim() <= 2, "t: expects a tensor with <= 2 dimensions, but self is ", self.ndim(), "D");
  return self.ndim() == 2 ? transposed(self, 0, 1) : transposed(self, 0, 0);
}

Dims checked_permutation(IntSpan dims, int64_t ndim, const char* op) {
  TS_CHECK(static_cast<int64_t>(dims.size()) == ndim, op, ": number of dimensions in the tensor input (", ndim,
           ") does not match the length of the desired ordering of dimensions, ", dims);
  return dims.empty() ? Dims() : wrap_dims(dims, ndim, op);
}

Tensor permute(const Tensor& self, IntSpan dims) {
  Dims order = checked_permutation(dims, self.ndim(), "permute");
  Dims sizes, strides;
  for (int64_t d : order) {
    sizes.push_back(self.sizes()[d]);
    strides.push_back(self.strides()[d]);
  }
  return make_view(self, sizes, strides, self->byte_offset);
}

void permute_gradient(GradContext& c) {
  Dims order = checked_permutation(c.value<IntSpan>(1), static_cast<int64_t>(c.sizes(0).size()), "permute");
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  c.set(0, ops::permute(c.grad(), back));
}

Tensor expand(const Tensor& self, IntSpan size, bool) {
  TS_CHECK(size.size() >= self.sizes().size(), "expand: the number of sizes provided (", size.size(),
           ") must be greater or equal to the number of dimensions in the tensor (", self.ndim(), "); sizes ", size,
           ", tensor ", self.sizes());
  Dims to(size);
  size_t lead = size.size() - self.sizes().size();
  for (size_t i = 0; i < to.size(); ++i) {
    TS_CHECK(to[i] >= -1 && (to[i] != -1 || i >= lead), "expand: The expanded size of the tensor (", to[i],
             ") isn't allowed in a leading, non-existing dimension ", i, "; sizes ", size);
    if (to[i] == -1) to[i] = self.sizes()[i - lead];
  }
  Dims strides = expand_strides(self.sizes(), self.strides(), to, "expand");
  for (size_t i = self.ndim() ? lead : 0;
       i-- > 0;) // a new dim of size 1 has the stride that it would have in memory, as in PyTorch
    if (to[i] == 1) strides[i] = to[i + 1] * strides[i + 1];
  return make_view(self, to, strides, self->byte_offset);
}

Tensor expand_as(const Tensor& self, const Tensor& other) { return ops::expand(self, other.sizes()); }
Tensor broadcast_to(const Tensor& self, IntSpan size) { return ops::expand(self, size); }

template <class Drop> Tensor squeezed(const Tensor& self, Drop&& drop) {
  Dims sizes, strides;
  for (int64_t d = 0; d < self.ndim(); ++d) {
    if (self.sizes()[d] == 1 && drop(d)) continue;
    sizes.push_back(self.sizes()[d]);
    strides.push_back(self.strides()[d]);
  }
  return make_view(self, sizes, strides, self->byte_offset);
}

Tensor squeeze_all(const Tensor& self) {
  return squeezed(self, [](int64_t) { return true; });
}
Tensor squeeze_dim(const Tensor& self, int64_t dim) {
  int64_t at = wrap_dim(dim, self.ndim(), "squeeze");
  return squeezed(self, [at](int64_t d) { return d == at; });
}
Tensor squeeze_dims(const Tensor& self, IntSpan dims) {
  std::bitset<UINT8_MAX + 1> drop;
  if (!dims.empty())
    for (int64_t d : wrap_dims(dims, self.ndim(), "squeeze")) drop.set(static_cast<size_t>(d));
  return squeezed(self, [drop](int64_t d) { return drop[static_cast<size_t>(d)]; });
}

Tensor unsqueeze(const Tensor& self, int64_t dim) {
  int64_t at = wrap_dim(dim, self.ndim() + 1, "unsqueeze");
  Dims sizes(self.sizes()), strides(self.strides());
  int64_t step = at < self.ndim() ? sizes[at] * strides[at] : 1;
  sizes.insert(sizes.begin() + at, 1);
  strides.insert(strides.begin() + at, step);
  return make_view(self, sizes, strides, self->byte_offset);
}

Tensor alias_of(const Tensor& self) { return make_view(self, self.sizes(), self.strides(), self->byte_offset); }
Tensor detach_of(const Tensor& self) { return shallow_copy(self); }
Tensor data_of(const Tensor& self) { return shallow_copy(self, true); }

// The gradient of a view that keeps all elements in order.
void reshape_back(GradContext& c) { c.set(0, ops::reshape(c.grad(), c.sizes(0))); }
void transpose_back(GradContext& c) { c.set(0, ops::transpose(c.grad(), c.value<int64_t>(1), c.value<int64_t>(2))); }

} // namespace

TS_OPERATORS(view) {
  def("view(Tensor(a) self, int[] size) -> Tensor(a)")
      .body<view>()
      .view()
      .gradient(reshape_back)
      .method_only()
      .doc("The same elements seen in another shape, without a copy; one size may be -1. RuntimeError when the "
           "strides do not allow it: see reshape.");
  def("_unsafe_view(Tensor self, int[] size) -> Tensor")
      .body<unsafe_view>()
      .untracked_view()
      .gradient(reshape_back)
      .hidden()
      .doc("view of a temporary: shares its memory, but is not tracked as a view of it.");
  def("view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)")
      .body<view_dtype>()
      .view()
      .not_differentiable()
      .method_only()
      .doc("The same bytes seen as another dtype; the last dimension grows or shrinks by the ratio of item sizes.");
  def("reshape(Tensor(a) self, int[] shape) -> Tensor(a)")
      .body<reshape>()
      .doc("The elements in row-major order in another shape: a view when strides allow it, else a copy.");
  def("view_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .body<view_as>()
      .method_only()
      .doc("self.view(other.size()).");
  def("reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .body<reshape_as>()
      .method_only()
      .doc("self.reshape(other.size()).");
  for (const char* schema : {"transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
                             "swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)",
                             "swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"})
    def(schema).body<transpose>().view().gradient(transpose_back).doc("A view with two dimensions exchanged.");
  def("t(Tensor(a) self) -> Tensor(a)")
      .body<t>()
      .view()
      .gradient([](GradContext& c) {
        static const Op t_op("t");
        c.set(0, t_op(c.grad()));
      })
      .doc("The transpose of a matrix, as a view; tensors of fewer dimensions are returned as they are.");
  def("permute(Tensor(a) self, int[] dims) -> Tensor(a)")
      .body<permute>()
      .view()
      .gradient(permute_gradient)
      .doc("A view with the dimensions in the given order.");
  def("expand(Tensor(a) self, int[] size, *, bool implicit=False) -> Tensor(a)")
      .body<expand>()
      .view()
      .method_only()
      .gradient([](GradContext& c) { c.set(0, ops::sum_to_size(c.grad(), c.sizes(0))); })
      .doc("A view with dimensions of size 1 repeated to `size` without using memory; -1 keeps a size.");
  def("expand_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .body<expand_as>()
      .method_only()
      .doc("self.expand(other.size()).");
  def("broadcast_to(Tensor(a) self, int[] size) -> Tensor(a)")
      .body<broadcast_to>()
      .doc("A view of self at the broadcast shape `size`.");
  def("squeeze(Tensor(a) self) -> Tensor(a)")
      .body<squeeze_all>()
      .view()
      .gradient(reshape_back)
      .doc("A view without the dimensions of size 1.");
  def("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)")
      .body<squeeze_dim>()
      .node_name("SqueezeBackward1")
      .view()
      .gradient(reshape_back)
      .doc("A view without dimension `dim` if its size is 1.");
  def("squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)")
      .body<squeeze_dims>()
      .node_name("SqueezeBackward2")
      .view()
      .gradient(reshape_back)
      .doc("A view without those of the given dimensions whose size is 1.");
  def("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)")
      .body<unsqueeze>()
      .view()
      .gradient(reshape_back)
      .doc("A view with a dimension of size 1 inserted before position `dim`.");
  def("alias(Tensor(a) self) -> Tensor(a)")
      .body<alias_of>()
      .view()
      .hidden()
      .gradient([](GradContext& c) { c.set(0, c.grad()); })
      .doc("A view with the same geometry.");
  def("_data(Tensor(a) self) -> Tensor(a)")
      .body<data_of>()
      .untracked_view()
      .not_differentiable()
      .hidden()
      .doc("`self.data` as a step of a graph: the same data without its history, and a version of its own.");
  def("detach(Tensor(a) self) -> Tensor(a)")
      .body<detach_of>()
      .untracked_view()
      .not_differentiable()
      .doc("The same data without its history: gradients do not flow through the result. Shares memory and version.");
}

} // namespace ts
