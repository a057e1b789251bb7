// Basic indexing, a[3, :, None, ::2], as one view: integers, slices (of any step) and new axes.
#include "ops/shape/basic_index.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kBasicIndexCode = "writes into a part of the result";

using basic_index_item::kNewAxis;
using basic_index_item::kSelect;
using basic_index_item::kSlice;

struct Window {
  Dims sizes, strides;
  int64_t offset = 0; // elements
};

void add_select(Window& w, int64_t index, int64_t size, int64_t stride) {
  TS_CHECK_INDEX(index >= 0 && index < size, "basic_index: index ", index, " is out of bounds for a dimension of size ",
                 size);
  w.offset += index * stride;
}

void add_slice(Window& w, const int64_t* item, int64_t size, int64_t stride) {
  int64_t start = item[1], length = item[2], step = item[3], last;
  bool inside = length >= 0 && step != 0;
  if (inside && length > 0)
    inside = start >= 0 && start < size && !__builtin_mul_overflow(length - 1, step, &last) &&
             !__builtin_add_overflow(last, start, &last) && last >= 0 && last < size;
  TS_CHECK_INDEX(inside, "basic_index: slice of length ", length, " from ", start, " with step ", step,
                 " reaches outside a dimension of size ", size);
  if (length > 0 || (start >= 0 && start <= size)) w.offset += start * stride;
  w.sizes.push_back(length);
  w.strides.push_back(length > 1 || step > 0 ? stepped_stride(stride, step, length) : stride);
}

Window window(const Tensor& self, IntSpan items) {
  TS_CHECK_VALUE(items.size() % 4 == 0, "basic_index: expected four numbers per item, got ", items.size());
  Window w;
  size_t dim = 0, ndim = self.sizes().size();
  for (size_t k = 0; k < items.size(); k += 4) {
    if (items[k] == kNewAxis) {
      w.sizes.push_back(1);
      w.strides.push_back(dim < ndim ? self.sizes()[dim] * self.strides()[dim] : 1);
      continue;
    }
    TS_CHECK_INDEX(dim < ndim, "basic_index: too many indices for a tensor of dimension ", ndim);
    int64_t size = self.sizes()[dim], stride = self.strides()[dim];
    ++dim;
    if (items[k] == kSelect)
      add_select(w, items[k + 1], size, stride);
    else
      add_slice(w, &items[k], size, stride);
  }
  for (; dim < ndim; ++dim) {
    w.sizes.push_back(self.sizes()[dim]);
    w.strides.push_back(self.strides()[dim]);
  }
  return w;
}

int64_t byte_position(const Tensor& self, const Window& w) { return self->byte_offset + w.offset * self.item_size(); }

Tensor basic_index(const Tensor& self, IntSpan items) {
  Window w = window(self, items);
  return make_view(self, w.sizes, w.strides, byte_position(self, w));
}

Tensor basic_index_backward_rule(const Tensor& grad, IntSpan input_sizes, IntSpan items) {
  Tensor out = outline(input_sizes, grad.dtype(), grad.device());
  Window w = window(out, items);
  TS_CHECK(same(grad.sizes(), w.sizes), "basic_index_backward: expected a gradient of sizes ", IntSpan(w.sizes),
           ", got ", grad.sizes());
  return out;
}
void basic_index_backward(const Tensor& out, const Tensor& grad, IntSpan, IntSpan items) {
  raw_fill(out, 0);
  Window w = window(out, items);
  copy_into(alias(out, w.sizes, w.strides, byte_position(out, w)), grad);
}

// The name PyTorch's chain of views ends with: whole slices make none, unless they stand alone.
std::string last_view(const GradContext& c) {
  IntSpan items = c.value<IntSpan>(1), sizes = c.sizes(0);
  std::string name = items.size() == 4 ? "SliceBackward0" : "AliasBackward0";
  size_t dim = 0;
  for (size_t k = 0; k < items.size(); k += 4) {
    if (items[k] == kNewAxis) {
      name = "UnsqueezeBackward0";
      continue;
    }
    bool whole = items[k] == kSlice && items[k + 1] == 0 && items[k + 2] == sizes[dim] && items[k + 3] == 1;
    if (!whole) name = items[k] == kSelect ? "SelectBackward0" : "SliceBackward0";
    ++dim;
  }
  return name;
}

const Op kIndex("basic_index"), kIndexBackward("basic_index_backward");

} // namespace

TS_OPERATORS(basic_index) {
  def("basic_index(Tensor(a) self, int[] items) -> Tensor(a)")
      .body<basic_index>()
      .view()
      .hidden()
      .gradient([](GradContext& c) { c.set(0, kIndexBackward(c.grad(), c.sizes(0), c.value<IntSpan>(1))); })
      .node_name(last_view)
      .doc("The view that basic indexing selects. `items` holds four numbers for each index: (0, index, -, -), "
           "(1, start, length, step) or (2, -, -, -) for a new axis; indices are not negative.");
  def("basic_index_backward(Tensor grad, int[] input_sizes, int[] items) -> Tensor")
      .facts("stored")
      .rule<basic_index_backward_rule>()
      .computation<basic_index_backward>(kBasicIndexCode)
      .hidden()
      .gradient([](GradContext& c) { c.set(0, kIndex(c.grad(), c.value<IntSpan>(2))); })
      .doc("Zeros of input_sizes with grad where basic_index took its elements from.");
}

} // namespace ts
