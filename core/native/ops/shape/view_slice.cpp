// Views by range: select, slice, narrow, diagonal, unfold, as_strided, the operators that undo them, and copies
// with such a view replaced.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "runtime/backend.h"
#include "runtime/computed_dtypes.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kViewSliceCode = "writes into a part of the result";

// --- geometry, shared by views and their backwards ---
struct Geometry {
  Dims sizes, strides;
  int64_t offset; // elements
  explicit Geometry(const Tensor& t) : sizes(t.sizes()), strides(t.strides()), offset(0) {}
  Tensor as_view(const Tensor& of) const {
    return make_view(of, sizes, strides, of->byte_offset + offset * of.item_size());
  }
  Tensor as_alias(const Tensor& of) const {
    return alias(of, sizes, strides, of->byte_offset + offset * of.item_size());
  }
};

Geometry select_geometry(const Tensor& self, int64_t dim, int64_t index) {
  TS_CHECK_INDEX(self.ndim() > 0, "select: cannot be applied to a 0-dim tensor");
  Geometry g(self);
  int64_t d = wrap_dim(dim, self.ndim(), "select");
  int64_t size = g.sizes[d];
  TS_CHECK_INDEX(index >= -size && index < size, "select: index ", index, " is out of bounds for dimension ", d,
                 " with size ", size);
  g.offset = (index < 0 ? index + size : index) * g.strides[d];
  g.sizes.erase(g.sizes.begin() + d);
  g.strides.erase(g.strides.begin() + d);
  return g;
}

int64_t clamp_bound(int64_t v, int64_t size) { return std::clamp<int64_t>(v < 0 ? v + size : v, 0, size); }

Geometry slice_geometry(const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                        int64_t step) {
  TS_CHECK_INDEX(self.ndim() > 0, "slice: cannot be applied to a 0-dim tensor");
  TS_CHECK_VALUE(step > 0, "slice: step must be positive, got ", step);
  Geometry g(self);
  int64_t d = wrap_dim(dim, self.ndim(), "slice");
  int64_t size = g.sizes[d];
  int64_t first = clamp_bound(start.value_or(0), size), last = clamp_bound(end.value_or(size), size);
  int64_t length = last > first ? 1 + (last - first - 1) / step : 0;
  g.sizes[d] = length;
  g.offset = first * g.strides[d];
  g.strides[d] = stepped_stride(g.strides[d], step, length);
  return g;
}

Geometry diagonal_geometry(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  int64_t a = wrap_dim(dim1, self.ndim(), "diagonal"), b = wrap_dim(dim2, self.ndim(), "diagonal");
  TS_CHECK(self.ndim() >= 2 && a != b, "diagonal: diagonal dimensions cannot be identical ", dim1, ", ", dim2,
           " for a tensor of sizes ", self.sizes());
  Geometry g(self);
  int64_t rows = g.sizes[a], columns = g.sizes[b];
  offset = std::clamp(offset, -rows, columns);
  int64_t length = offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns);
  length = std::max<int64_t>(length, 0);
  if (length > 0) g.offset = offset >= 0 ? offset * g.strides[b] : -offset * g.strides[a];
  int64_t step = g.strides[a] + g.strides[b];
  for (int64_t d : {std::max(a, b), std::min(a, b)}) {
    g.sizes.erase(g.sizes.begin() + d);
    g.strides.erase(g.strides.begin() + d);
  }
  g.sizes.push_back(length);
  g.strides.push_back(step);
  return g;
}

Geometry unfold_geometry(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  Geometry g(self);
  int64_t d = wrap_dim(dimension, self.ndim(), "unfold");
  int64_t have = self.ndim() ? g.sizes[d] : 1, stride = self.ndim() ? g.strides[d] : 1;
  TS_CHECK(size >= 0, "unfold: size is ", size, " but must be >= 0");
  TS_CHECK(size <= have, "unfold: maximum size for tensor at dimension ", d, " is ", have, " but size is ", size);
  TS_CHECK(step > 0, "unfold: step is ", step, " but must be > 0");
  if (self.ndim()) {
    g.sizes[d] = (have - size) / step + 1;
    g.strides[d] = stepped_stride(stride, step, g.sizes[d]);
  }
  g.sizes.push_back(size);
  g.strides.push_back(stride);
  return g;
}

// --- bodies ---
Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  return select_geometry(self, dim, index).as_view(self);
}

Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  return slice_geometry(self, dim, start, end, step).as_view(self);
}

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  TS_CHECK(self.ndim() > 0, "narrow: cannot be applied to a 0-dim tensor");
  TS_CHECK(length >= 0, "narrow: length must be non-negative, got ", length);
  int64_t size = self.size(dim);
  TS_CHECK_INDEX(start >= -size && start <= size, "narrow: start out of range (expected to be in range of [", -size,
                 ", ", size, "], but got ", start, ")");
  if (start < 0) start += size;
  TS_CHECK(start <= size - length, "narrow: start (", start, ") + length (", length, ") exceeds dimension size (", size,
           ")");
  return ops::slice(self, dim, start, start + length, 1);
}
Tensor narrow_at(const Tensor& self, int64_t dim, const Tensor& start, int64_t length) {
  TS_CHECK(start.ndim() == 0 && is_integral(start.dtype(), false),
           "narrow: start must be an 0-dim integral Tensor, got ", start.dtype(), " of shape ", start.sizes());
  return narrow(self, dim, host_number(start), length);
}

Tensor diagonal(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  return diagonal_geometry(self, offset, dim1, dim2).as_view(self);
}

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return unfold_geometry(self, dimension, size, step).as_view(self);
}

// --- backwards: zeros of the input's shape with the gradient written into the same view ---
void check_grad_sizes(const Tensor& grad, IntSpan want, const char* op) {
  TS_CHECK(same(grad.sizes(), want), op, ": expected a gradient of sizes ", want, ", got ", grad.sizes());
}

template <auto Make, class... A> Tensor place_rule(const char* op, const Tensor& grad, IntSpan sizes, A... args) {
  Tensor out = outline(sizes, grad.dtype(), grad.device());
  check_grad_sizes(grad, Make(out, args...).sizes, op);
  return out;
}
template <auto Make, class... A> void place(const Tensor& out, const Tensor& grad, A... args) {
  raw_fill(out, Scalar(0));
  copy_into(Make(out, args...).as_alias(out), grad);
}

using Bound = std::optional<int64_t>;
Tensor select_backward_rule(const Tensor& grad, IntSpan sizes, int64_t dim, int64_t index) {
  return place_rule<select_geometry>("select_backward", grad, sizes, dim, index);
}
void select_backward(const Tensor& out, const Tensor& grad, IntSpan, int64_t dim, int64_t index) {
  place<select_geometry>(out, grad, dim, index);
}
Tensor slice_backward_rule(const Tensor& grad, IntSpan sizes, int64_t dim, Bound start, Bound end, int64_t step) {
  return place_rule<slice_geometry>("slice_backward", grad, sizes, dim, start, end, step);
}
void slice_backward(const Tensor& out, const Tensor& grad, IntSpan, int64_t dim, Bound start, Bound end, int64_t step) {
  place<slice_geometry>(out, grad, dim, start, end, step);
}
Tensor diagonal_backward_rule(const Tensor& grad, IntSpan sizes, int64_t offset, int64_t dim1, int64_t dim2) {
  return place_rule<diagonal_geometry>("diagonal_backward", grad, sizes, offset, dim1, dim2);
}
void diagonal_backward(const Tensor& out, const Tensor& grad, IntSpan, int64_t offset, int64_t dim1, int64_t dim2) {
  place<diagonal_geometry>(out, grad, offset, dim1, dim2);
}

// --- copies of self with src written into the view ---
template <auto Make, class... A>
Tensor write_view_rule(const char* op, const Tensor& self, const Tensor& src, A... args) {
  check_same_device(self, src, op);
  Tensor out = outline_like(self, self.dtype());
  Geometry g = Make(out, args...);
  TS_CHECK(same(src.sizes(), g.sizes), op,
           ": expected src to have a size equal to the slice of self. src size = ", src.sizes(),
           ", slice size = ", g.sizes.span());
  return out;
}
template <auto Make, class... A> void write_view(const Tensor& out, const Tensor& self, const Tensor& src, A... args) {
  raw_copy(out, self);
  copy_into(Make(out, args...).as_alias(out), src);
}
Tensor select_scatter_rule(const Tensor& self, const Tensor& src, int64_t dim, int64_t index) {
  return write_view_rule<select_geometry>("select_scatter", self, src, dim, index);
}
void select_scatter(const Tensor& out, const Tensor& self, const Tensor& src, int64_t dim, int64_t index) {
  write_view<select_geometry>(out, self, src, dim, index);
}
Tensor slice_scatter_rule(const Tensor& self, const Tensor& src, int64_t dim, Bound start, Bound end, int64_t step) {
  return write_view_rule<slice_geometry>("slice_scatter", self, src, dim, start, end, step);
}
void slice_scatter(const Tensor& out, const Tensor& self, const Tensor& src, int64_t dim, Bound start, Bound end,
                   int64_t step) {
  write_view<slice_geometry>(out, self, src, dim, start, end, step);
}
Tensor diagonal_scatter_rule(const Tensor& self, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
  return write_view_rule<diagonal_geometry>("diagonal_scatter", self, src, offset, dim1, dim2);
}
void diagonal_scatter(const Tensor& out, const Tensor& self, const Tensor& src, int64_t offset, int64_t dim1,
                      int64_t dim2) {
  write_view<diagonal_geometry>(out, self, src, offset, dim1, dim2);
}
Tensor zero_src(GradContext& c) { return ops::zeros(c.sizes(1), c.grad().dtype(), c.grad().device()); }

// Windows may overlap: their gradients add up.
Tensor unfold_backward(const Tensor& grad, IntSpan input_sizes, int64_t dim, int64_t size, int64_t step) {
  Tensor shape = outline(input_sizes, grad.dtype(), grad.device());
  check_grad_sizes(grad, unfold_geometry(shape, dim, size, step).sizes, "unfold_backward");
  if (input_sizes.empty())
    return size ? ops::reshape(grad, input_sizes) : ops::zeros(input_sizes, grad.dtype(), grad.device());
  int64_t d = wrap_dim(dim, static_cast<int64_t>(input_sizes.size()), "unfold_backward");
  Tensor flat = ops::flatten(ops::transpose(ops::unsqueeze(grad, d), d, -1), d, d + 1); // (size, windows) in place of d
  Tensor positions = ops::flatten(ops::transpose(
      ops::unfold(ops::arange(int64_t{0}, input_sizes[d], int64_t{1}, DType::Int64, grad.device()), 0, size, step), 0,
      1));
  flat = ops::squeeze(flat, IntSpan());
  Tensor zeros = ops::zeros(input_sizes, grad.dtype(), grad.device());
  return ops::index_add(zeros, d, positions, ops::reshape(flat, [&] {
                          Dims s(input_sizes);
                          s[d] = positions.numel();
                          return s;
                        }()));
}

const Op select_back("select_backward"), slice_back("slice_backward"), view_slice_diagonal_back("diagonal_backward"),
    unfold_back("unfold_backward"), strided_view("as_strided_view"), select_put("select_scatter"),
    slice_put("slice_scatter"), diagonal_put("diagonal_scatter");

// --- as_strided ---
void check_within_storage(const Tensor& self, IntSpan size, IntSpan stride, int64_t offset) {
  TS_CHECK(size.size() == stride.size(), "as_strided: mismatch in length of strides and shape, got ", size, " and ",
           stride);
  TS_CHECK(offset >= 0, "as_strided: expected a storage_offset that is not negative, got ", offset);
  for (int64_t s : stride)
    TS_CHECK(s >= 0, "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
  if (checked_numel(size) == 0) return;
  auto [low, high] = byte_extent(size, stride, self.item_size());
  int64_t have = self->storage ? static_cast<int64_t>(self->storage->nbytes) : self.nbytes();
  int64_t start;
  bool fits = !__builtin_mul_overflow(offset, self.item_size(), &start) && start <= have && high <= have - start;
  TS_CHECK(fits, "as_strided: setStorage: sizes ", size, ", strides ", stride, ", storage offset ", offset,
           ", and itemsize ", self.item_size(), " requiring more than the storage's ", have,
           " bytes are out of bounds");
}

// Carries self's own geometry among its arguments, because the gradient needs it and cannot read self's strides.
Tensor as_strided(const Tensor& self, IntSpan size, IntSpan stride, std::optional<int64_t> storage_offset) {
  int64_t offset = storage_offset.value_or(self.storage_offset());
  check_within_storage(self, size, stride, offset);
  return strided_view(self, size, stride, offset, self.strides(), self.storage_offset());
}

Tensor as_strided_view(const Tensor& self, IntSpan size, IntSpan stride, int64_t offset, IntSpan, int64_t) {
  check_within_storage(self, size, stride, offset);
  Dims strides(stride);
  for (size_t d = 0; d < strides.size(); ++d)
    if (size[d] <= 1) strides[d] = std::min(strides[d], kLargestIdleStride);
  return make_view(self, size, strides, offset * self.item_size());
}

// Storage positions of a geometry, one per element: sum over dims of index * stride.
Tensor positions_of(IntSpan sizes, IntSpan strides, int64_t start, Device device) {
  Tensor at = filled(sizes, Scalar(start), DType::Int64, device);
  for (size_t d = 0; d < sizes.size(); ++d) {
    Dims shape(sizes.size(), 1);
    shape[d] = sizes[d];
    at = ops::add(at, ops::mul(ops::view(counting(sizes[d], device), shape), strides[d]));
  }
  return ops::flatten(at);
}

// Adds the gradient into a buffer standing for the storage, and reads it at the input's places. Places of the storage
// that several input elements share receive the mean of their gradients, as one value stands for all of them.
void as_strided_gradient(GradContext& c) {
  IntSpan size = c.value<IntSpan>(1), stride = c.value<IntSpan>(2), sizes = c.sizes(0), own = c.value<IntSpan>(4);
  int64_t offset = c.value<int64_t>(3), start = c.value<int64_t>(5);
  auto [low, own_high] = byte_extent(sizes, own, 1);
  auto [out_low, high] = byte_extent(size, stride, 1);
  int64_t base = std::min(start + low, offset), n = std::max({start + own_high, offset + high, base + 1}) - base;
  Device device = c.grad().device();
  Tensor zeros = ops::zeros(IntSpan(&n, 1), c.grad().dtype(), device);
  Tensor buffer = ops::index_add(zeros, 0, positions_of(size, stride, offset - base, device), ops::flatten(c.grad()));
  Tensor at = positions_of(sizes, own, start - base, device);
  if (may_overlap(sizes, own)) {
    Tensor ones = ops::ones(IntSpan(&n, 1), accumulate_type(c.grad()), device);
    Tensor shares = ops::index_add(ops::zeros_like(ones), 0, at, ops::index_select(ones, 0, at));
    buffer = ops::to_dtype(ops::div(buffer, ops::maximum(shares, ones)), c.grad().dtype());
  }
  c.set(0, ops::view(ops::index_select(buffer, 0, at), sizes));
}

} // namespace

TS_OPERATORS(view_slice) {
  def("select.int(Tensor(a) self, int dim, int index) -> Tensor(a)")
      .body<select>()
      .view()
      .gradient(
          [](GradContext& c) { c.set(0, select_back(c.grad(), c.sizes(0), c.value<int64_t>(1), c.value<int64_t>(2))); })
      .doc("A view of the slice at `index` along `dim`, which disappears. IndexError out of range.");
  def("slice(Tensor(a) self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor(a)")
      .body<slice>()
      .view()
      .hidden()
      .gradient([](GradContext& c) {
        c.set(0, slice_back(c.grad(), c.sizes(0), c.value<int64_t>(1), c.value(2), c.value(3), c.value<int64_t>(4)));
      })
      .doc("A view of positions start, start+step, ... before end along `dim`, by Python's rules for slices.");
  def("narrow(Tensor(a) self, int dim, int start, int length) -> Tensor(a)")
      .body<narrow>()
      .doc("A view of `length` positions along `dim`, from `start`.");
  def("narrow.Tensor(Tensor(a) self, int dim, Tensor start, int length) -> Tensor(a)")
      .body<narrow_at>()
      .reads_host()
      .doc("A view of `length` positions along `dim`, from where a 0-d tensor of integers says.");
  def("diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)")
      .body<diagonal>()
      .view()
      .gradient([](GradContext& c) {
        c.set(0, view_slice_diagonal_back(c.grad(), c.sizes(0), c.value<int64_t>(1), c.value<int64_t>(2),
                                          c.value<int64_t>(3)));
      })
      .doc("A view of the diagonals in the planes of dim1 and dim2, as the last dimension.");
  def("unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)")
      .body<unfold>()
      .view()
      .method_only()
      .gradient([](GradContext& c) {
        c.set(0, unfold_back(c.grad(), c.sizes(0), c.value<int64_t>(1), c.value<int64_t>(2), c.value<int64_t>(3)));
      })
      .doc("A view of all windows of `size` taken every `step` along `dimension`; windows are the last dimension.");
  def("as_strided(Tensor(a) self, int[] size, int[] stride, int? storage_offset=None) -> Tensor(a)")
      .facts("leaf")
      .body<as_strided>()
      .doc("A view of the storage with any sizes and strides. RuntimeError when it reaches outside the storage.");
  def("as_strided_view(Tensor(a) self, int[] size, int[] stride, int storage_offset, int[] self_stride, "
      "int self_offset) -> Tensor(a)")
      .body<as_strided_view>()
      .node_name("AsStridedBackward0")
      .view()
      .hidden()
      .gradient(as_strided_gradient)
      .doc("as_strided with self's own strides and offset, which its gradient needs.");

  def("select_scatter(Tensor self, Tensor src, int dim, int index) -> Tensor")
      .facts("stored")
      .rule<select_scatter_rule>()
      .computation<select_scatter>(kViewSliceCode)
      .gradient([](GradContext& c) {
        int64_t dim = c.value<int64_t>(2), index = c.value<int64_t>(3);
        if (c.needs(0)) c.set(0, select_put(c.grad(), zero_src(c), dim, index));
        c.set(1, ops::select(c.grad(), dim, index));
      })
      .doc("A copy of self with src at `index` along `dim`.");
  def("slice_scatter(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor")
      .facts("stored")
      .rule<slice_scatter_rule>()
      .computation<slice_scatter>(kViewSliceCode)
      .out()
      .gradient([](GradContext& c) {
        if (c.needs(0)) c.set(0, slice_put(c.grad(), zero_src(c), c.value(2), c.value(3), c.value(4), c.value(5)));
        c.set(1, ops::slice(c.grad(), c.value(2), c.value(3), c.value(4), c.value(5)));
      })
      .doc("A copy of self with src at positions start, start+step, ... before end along `dim`.");
  def("diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor")
      .facts("stored")
      .rule<diagonal_scatter_rule>()
      .computation<diagonal_scatter>(kViewSliceCode)
      .gradient([](GradContext& c) {
        if (c.needs(0)) c.set(0, diagonal_put(c.grad(), zero_src(c), c.value(2), c.value(3), c.value(4)));
        c.set(1, ops::diagonal(c.grad(), c.value(2), c.value(3), c.value(4)));
      })
      .doc("A copy of self with src, whose last dimension they are, on the diagonals of the planes dim1, dim2.");

  def("select_backward(Tensor grad, int[] input_sizes, int dim, int index) -> Tensor")
      .facts("stored")
      .rule<select_backward_rule>()
      .computation<select_backward>(kViewSliceCode)
      .hidden()
      .gradient([](GradContext& c) { c.set(0, ops::select(c.grad(), c.value<int64_t>(2), c.value<int64_t>(3))); })
      .doc("Zeros of input_sizes with grad at `index` along `dim`.");
  def("slice_backward(Tensor grad, int[] input_sizes, int dim, int? start, int? end, int step) -> Tensor")
      .facts("stored")
      .rule<slice_backward_rule>()
      .computation<slice_backward>(kViewSliceCode)
      .hidden()
      .gradient([](GradContext& c) {
        c.set(0, ops::slice(c.grad(), c.value<int64_t>(2), c.value(3), c.value(4), c.value<int64_t>(5)));
      })
      .doc("Zeros of input_sizes with grad in the slice.");
  def("diagonal_backward(Tensor grad, int[] input_sizes, int offset, int dim1, int dim2) -> Tensor")
      .facts("stored")
      .rule<diagonal_backward_rule>()
      .computation<diagonal_backward>(kViewSliceCode)
      .node_name("DiagEmbedBackward0")
      .hidden()
      .gradient([](GradContext& c) {
        c.set(0, ops::diagonal(c.grad(), c.value<int64_t>(2), c.value<int64_t>(3), c.value<int64_t>(4)));
      })
      .doc("Zeros of input_sizes with grad on the diagonal.");
  def("unfold_backward(Tensor grad, int[] input_sizes, int dim, int size, int step) -> Tensor")
      .facts("stored")
      .body<unfold_backward>()
      .hidden()
      .doc("The sum of all windows' gradients at their places in a tensor of input_sizes.");
}

} // namespace ts
