// Helpers of autograd's view tracking: a strided place inside a dense base, taken, cleared or filled.
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kViewGradientCode = "copies and adds through a view of the result";

// A base's memory as one flat row of zeros. Strides may be negative: the first element need not come first.
class Row {
public:
  // Of a base of these sizes and strides, in fresh memory.
  Row(IntSpan sizes, IntSpan strides, const Tensor& like) : Row(sizes, strides) {
    flat_ = filled(Dims{length_}, Scalar(0), like.dtype(), like.device());
  }
  // Of what lies in `out`, or is to be copied there.
  Row(const Tensor& out, IntSpan strides) : Row(out.sizes(), strides) {
    int64_t one = 1;
    bool as_is = same(out.strides(), strides) && is_dense(out.sizes(), strides);
    flat_ = as_is ? alias(out, IntSpan(&length_, 1), IntSpan(&one, 1), out->byte_offset)
                  : empty_tensor(Dims{length_}, out.dtype(), out.device());
    raw_fill(flat_, Scalar(0));
    if (!as_is) out_ = out;
  }
  void finish() const {
    if (out_.defined()) raw_copy(out_, base());
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
  Row(IntSpan sizes, IntSpan strides) : sizes_(sizes), strides_(strides) {
    check_geometry(sizes, strides);
    auto [low, high] = byte_extent(sizes, strides, 1);
    first_ = -low;
    length_ = high - low;
  }
  static void check_geometry(IntSpan sizes, IntSpan strides) {
    TS_CHECK(sizes.size() == strides.size(), "as_strided: mismatch in length of sizes ", sizes, " and strides ",
             strides);
    checked_numel(sizes);
  }
  Dims sizes_, strides_;
  int64_t first_ = 0, length_ = 0; // position of the base's first element
  Tensor flat_, out_;
};

// A result for a base: laid out as it is, if it is dense.
Tensor base_outline(IntSpan sizes, IntSpan strides, const Tensor& like) {
  TS_CHECK(sizes.size() == strides.size(), "as_strided: mismatch in length of sizes ", sizes, " and strides ", strides);
  if (is_dense(sizes, strides)) return outline_strided(sizes, strides, like.dtype(), like.device());
  return outline(sizes, like.dtype(), like.device());
}

Tensor scatter_add_rule(const Tensor& grad, IntSpan base_sizes, IntSpan base_strides, IntSpan sizes, IntSpan, int64_t) {
  TS_CHECK(same(grad.sizes(), sizes), "as_strided_scatter_add: expected a gradient of sizes ", sizes, ", got ",
           grad.sizes());
  return base_outline(base_sizes, base_strides, grad);
}
void scatter_add(const Tensor& out, const Tensor& grad, IntSpan, IntSpan base_strides, IntSpan sizes, IntSpan strides,
                 int64_t offset) {
  Row row(out, base_strides);
  if (!may_overlap(sizes, strides)) {
    copy_into(row.place(sizes, strides, offset), grad);
  } else {
    // Elements seen several times gather all their gradients.
    Tensor positions = ops::arange(int64_t{0}, row.flat().numel(), int64_t{1}, DType::Int64, grad.device());
    static const Op index_add_("index_add_");
    Tensor at = ops::reshape(ops::contiguous(row.place(positions, sizes, strides, offset)), Dims{-1});
    index_add_(row.flat(), int64_t{0}, at, ops::reshape(ops::contiguous(grad), Dims{-1}));
  }
  row.finish();
}

Tensor take_rule(const Tensor& base, IntSpan, IntSpan sizes, IntSpan, int64_t) {
  return outline(sizes, base.dtype(), base.device());
}
void take(const Tensor& out, const Tensor& base, IntSpan base_strides, IntSpan sizes, IntSpan strides, int64_t offset) {
  Row row(base.sizes(), base_strides, base);
  raw_copy(row.base(), base);
  raw_copy(out, row.place(sizes, strides, offset));
}

Tensor clear_rule(const Tensor& base, IntSpan base_strides, IntSpan, IntSpan, int64_t) {
  return base_outline(base.sizes(), base_strides, base);
}
void clear(const Tensor& out, const Tensor& base, IntSpan base_strides, IntSpan sizes, IntSpan strides,
           int64_t offset) {
  Row row(out, base_strides);
  raw_copy(row.base(), base);
  raw_fill(row.place(sizes, strides, offset), Scalar(0));
  row.finish();
}

const Op kScatterAdd("as_strided_scatter_add"), kTake("as_strided_take"), kClear("as_strided_clear");

} // namespace

TS_OPERATORS(view_gradient) {
  def("as_strided_scatter_add(Tensor grad, int[] base_sizes, int[] base_strides, int[] sizes, int[] strides, int "
      "offset) -> Tensor")
      .facts("stored")
      .rule<scatter_add_rule>()
      .computation<scatter_add>(kViewGradientCode)
      .gradient([](GradContext& c) { c.set(0, kTake(c.grad(), c.value(2), c.value(3), c.value(4), c.value(5))); })
      .hidden()
      .doc("Zeros of the base's shape with `grad` added at the place of a view: the gradient of that view.");
  def("as_strided_take(Tensor base, int[] base_strides, int[] sizes, int[] strides, int offset) -> Tensor")
      .facts("stored")
      .rule<take_rule>()
      .computation<take>(kViewGradientCode)
      .gradient([](GradContext& c) {
        c.set(0, kScatterAdd(c.grad(), c.sizes(0), c.value(1), c.value(2), c.value(3), c.value(4)));
      })
      .hidden()
      .doc("A copy of a view's place in `base`, given by strides over the base's memory order.");
  def("as_strided_clear(Tensor base, int[] base_strides, int[] sizes, int[] strides, int offset) -> Tensor")
      .facts("stored")
      .rule<clear_rule>()
      .computation<clear>(kViewGradientCode)
      .gradient([](GradContext& c) { c.set(0, kClear(c.grad(), c.value(1), c.value(2), c.value(3), c.value(4))); })
      .hidden()
      .doc("A copy of `base` with zeros at a view's place.");
}

} // namespace ts
