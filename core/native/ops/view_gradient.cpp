// Helpers of autograd's view tracking: a strided place inside a dense base, taken, cleared or filled.
#include "ops/api.h"
#include "ops/declare.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// A base's memory as one flat row of zeros. Strides may be negative: the first element need not come first.
class Row {
public:
  Row(IntSpan sizes, IntSpan strides, const Tensor& like) : sizes_(sizes), strides_(strides) {
    check_geometry(sizes, strides);
    auto [low, high] = byte_extent(sizes, strides, 1);
    first_ = -low;
    int64_t length[] = {high - low};
    flat_ = empty_tensor(length, like.dtype(), like.device());
    ops::zero_(flat_);
  }
  const Tensor& flat() const { return flat_; }
  Tensor base() const { return place(flat_, sizes_, strides_, 0); }
  // `row`, of this one's length, seen through a view's geometry; offset counts from the base's first element.
  Tensor place(const Tensor& row, IntSpan sizes, IntSpan strides, int64_t offset) const {
    check_geometry(sizes, strides);
    auto [low, high] = byte_extent(sizes, strides, 1);
    if (checked_numel(sizes) == 0) return alias(row, sizes, strides, row->byte_offset); // it may begin anywhere
    int64_t n = row.numel(), start;
    bool inside = !__builtin_add_overflow(offset, first_, &start) && start >= 0 && start <= n && low >= -start &&
                  high <= n - start;
    TS_CHECK(inside, "as_strided: a view of sizes ", sizes, ", strides ", strides, " and offset ", offset,
             " reaches outside its base of sizes ", sizes_.span(), " and strides ", strides_.span());
    return alias(row, sizes, strides, row->byte_offset + start * row.item_size());
  }
  Tensor place(IntSpan sizes, IntSpan strides, int64_t offset) const { return place(flat_, sizes, strides, offset); }

private:
  static void check_geometry(IntSpan sizes, IntSpan strides) {
    TS_CHECK(sizes.size() == strides.size(), "as_strided: mismatch in length of sizes ", sizes, " and strides ",
             strides);
    checked_numel(sizes);
  }
  Dims sizes_, strides_;
  int64_t first_ = 0; // position of the base's first element
  Tensor flat_;
};

Tensor scatter_add(const Tensor& grad, IntSpan base_sizes, IntSpan base_strides, IntSpan sizes, IntSpan strides,
                   int64_t offset) {
  TS_CHECK(same(grad.sizes(), sizes), "as_strided_scatter_add: expected a gradient of sizes ", sizes, ", got ",
           grad.sizes());
  Row row(base_sizes, base_strides, grad);
  if (!may_overlap(sizes, strides)) {
    ops::copy_(row.place(sizes, strides, offset), grad);
  } else {
    // Elements seen several times gather all their gradients.
    Tensor positions = ops::arange(int64_t{0}, row.flat().numel(), int64_t{1}, DType::Int64, grad.device());
    static const Op index_add_("index_add_");
    Tensor at = ops::reshape(ops::contiguous(row.place(positions, sizes, strides, offset)), Dims{-1});
    index_add_(row.flat(), int64_t{0}, at, ops::reshape(ops::contiguous(grad), Dims{-1}));
  }
  return row.base();
}

// A row holding `base`'s elements.
Row row_of(const Tensor& base, IntSpan strides) {
  Row row(base.sizes(), strides, base);
  ops::copy_(row.base(), base);
  return row;
}

Tensor take(const Tensor& grad, IntSpan base_strides, IntSpan sizes, IntSpan strides, int64_t offset) {
  return ops::clone(row_of(grad, base_strides).place(sizes, strides, offset));
}

Tensor clear(const Tensor& grad, IntSpan base_strides, IntSpan sizes, IntSpan strides, int64_t offset) {
  Row row = row_of(grad, base_strides);
  ops::zero_(row.place(sizes, strides, offset));
  return row.base();
}

const Op kScatterAdd("as_strided_scatter_add"), kTake("as_strided_take"), kClear("as_strided_clear");

} // namespace

TS_OPERATORS(view_gradient) {
  def("as_strided_scatter_add(Tensor grad, int[] base_sizes, int[] base_strides, int[] sizes, int[] strides, int "
      "offset) -> Tensor")
      .body<scatter_add>()
      .gradient([](GradContext& c) { c.set(0, kTake(c.grad(), c.value(2), c.value(3), c.value(4), c.value(5))); })
      .hidden()
      .doc("Zeros of the base's shape with `grad` added at the place of a view: the gradient of that view.");
  def("as_strided_take(Tensor base, int[] base_strides, int[] sizes, int[] strides, int offset) -> Tensor")
      .body<take>()
      .gradient([](GradContext& c) {
        c.set(0, kScatterAdd(c.grad(), c.sizes(0), c.value(1), c.value(2), c.value(3), c.value(4)));
      })
      .hidden()
      .doc("A copy of a view's place in `base`, given by strides over the base's memory order.");
  def("as_strided_clear(Tensor base, int[] base_strides, int[] sizes, int[] strides, int offset) -> Tensor")
      .body<clear>()
      .gradient([](GradContext& c) { c.set(0, kClear(c.grad(), c.value(1), c.value(2), c.value(3), c.value(4))); })
      .hidden()
      .doc("A copy of `base` with zeros at a view's place.");
}

} // namespace ts
