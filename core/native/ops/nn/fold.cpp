// Sliding blocks of planes as columns, and columns summed back into planes.
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/nn/conv_shape.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kFoldCode = "sees windows of the image as an overlapping view";

const Op im2col_op("im2col"), col2im_op("col2im");

struct Blocks {
  ConvShape shape;
  Dims kernel, counts; // counts: how many blocks fit along each dim
  int64_t per_block() const { return kernel[0] * kernel[1]; }
  int64_t total() const { return counts[0] * counts[1]; }
};

Blocks blocks_of(IntSpan plane, IntSpan kernel, IntSpan dilation, IntSpan padding, IntSpan stride, const char* op) {
  Blocks b{conv_shape(stride, padding, dilation, 1, 2, op), per_dim(kernel, 2, op, "kernel_size"), Dims(2)};
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (size_t d = 0; d < 2; ++d) {
    TS_CHECK(b.kernel[d] > 0 && b.kernel[d] < kLimit, op, ": kernel size should be greater than zero, but got ",
             kernel);
    TS_CHECK(plane[d] >= 0 && plane[d] < kLimit, op, ": expected a plane of sizes that are not negative, got ", plane);
    int64_t reach = b.shape.dilation[d] * (b.kernel[d] - 1) + 1, room = plane[d] + 2 * b.shape.padding[d] - reach;
    TS_CHECK(room >= 0, op, ": Given a plane of sizes ", plane, ", kernel_size=", kernel, ", dilation=", dilation,
             ", padding=", padding, ", stride=", stride, ", no sliding block fits along dimension ", d,
             "; pad, or take a smaller kernel");
    b.counts[d] = room / b.shape.stride[d] + 1;
  }
  return b;
}

// Contiguous memory seen in another shape.
Tensor seen_as(const Tensor& t, IntSpan sizes) { return alias(t, sizes, contiguous_strides(sizes), t->byte_offset); }

Tensor im2col_rule(const Tensor& self, IntSpan kernel, IntSpan dilation, IntSpan padding, IntSpan stride) {
  const char* op = "unfold";
  IntSpan sizes = self.sizes();
  bool batched = sizes.size() == 4;
  TS_CHECK(batched || sizes.size() == 3, op, ": Expected 3D or 4D (batch mode) tensor with possibly 0 batch size, got ",
           sizes);
  for (int64_t s : sizes.subspan(batched))
    TS_CHECK(s > 0, op, ": Expected non-zero dimensions besides the batch, got ", sizes);
  Blocks b = blocks_of(sizes.last(2), kernel, dilation, padding, stride, op);
  Dims out(sizes.first(sizes.size() - 2));
  out.back() *= b.per_block();
  out.push_back(b.total());
  return outline(out, self.dtype(), self.device());
}
void im2col(const Tensor& out, const Tensor& self, IntSpan kernel, IntSpan dilation, IntSpan padding, IntSpan stride) {
  IntSpan sizes = self.sizes();
  Blocks b = blocks_of(sizes.last(2), kernel, dilation, padding, stride, "unfold");
  Tensor x = sizes.size() == 4 ? self : raw_view(self, Dims{1, sizes[0], sizes[1], sizes[2]});
  Tensor windows = window_view(padded_copy(x, b.shape, 0), b.shape, b.kernel, b.counts);
  raw_copy(seen_as(out, windows.sizes()), windows);
}

Tensor col2im_rule(const Tensor& self, IntSpan output_size, IntSpan kernel, IntSpan dilation, IntSpan padding,
                   IntSpan stride) {
  const char* op = "fold";
  bool batched = self.ndim() == 3;
  TS_CHECK(batched || self.ndim() == 2, op, ": Expected 2D or 3D (batch mode) tensor for input, got ", self.sizes());
  Dims plane = per_dim(output_size, 2, op, "output_size");
  Blocks b = blocks_of(plane, kernel, dilation, padding, stride, op);
  int64_t rows = self.size(-2), channels = rows / b.per_block();
  TS_CHECK(rows > 0 && rows % b.per_block() == 0, op,
           ": Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input of ",
           self.sizes(), " and kernel_size=", kernel);
  TS_CHECK(self.size(-1) == b.total(), op, ": Given output_size=", output_size, ", kernel_size=", kernel,
           ", dilation=", dilation, ", padding=", padding, ", stride=", stride, ", expected ", b.total(),
           " sliding blocks in the last dimension, but got input of ", self.sizes());
  Dims out(self.sizes().first(self.sizes().size() - 2));
  for (int64_t size : {channels, plane[0], plane[1]}) out.push_back(size);
  return outline(out, self.dtype(), self.device());
}
void col2im(const Tensor& out, const Tensor& self, IntSpan output_size, IntSpan kernel, IntSpan dilation,
            IntSpan padding, IntSpan stride) {
  Dims plane = per_dim(output_size, 2, "fold", "output_size");
  Blocks b = blocks_of(plane, kernel, dilation, padding, stride, "fold");
  int64_t n = self.ndim() == 3 ? self.size(0) : 1, channels = out.size(-3);
  Tensor windows = raw_view(self, Dims{n, channels, b.kernel[0], b.kernel[1], b.counts[0], b.counts[1]});
  sum_windows_into(seen_as(out, Dims{n, channels, plane[0], plane[1]}), windows, b.shape, b.kernel);
}

} // namespace

TS_OPERATORS(fold) {
  def("im2col(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor")
      .facts("stored:none")
      .rule<im2col_rule>()
      .computation<im2col>(kFoldCode)
      .gradient([](GradContext& c) {
        c.set(0, col2im_op(c.grad(), c.sizes(0).last(2), c.value(1), c.value(2), c.value(3), c.value(4)));
      })
      .node_name("Im2ColBackward0")
      .hidden()
      .function_only()
      .in("nn.functional")
      .python_name("unfold")
      .doc("Sliding blocks of (N, C, H, W) or (C, H, W) as columns (N, C * KH * KW, blocks). RuntimeError when none "
           "fits.");
  def("col2im(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] "
      "stride=1) -> Tensor")
      .rule<col2im_rule>()
      .computation<col2im>(kFoldCode)
      .gradient([](GradContext& c) { c.set(0, im2col_op(c.grad(), c.value(2), c.value(3), c.value(4), c.value(5))); })
      .node_name("Col2ImBackward0")
      .hidden()
      .function_only()
      .in("nn.functional")
      .python_name("fold")
      .doc("Columns (N, C * KH * KW, blocks) summed into planes (N, C, *output_size): the transpose of unfold. "
           "RuntimeError when the number of blocks does not fit.");
}

} // namespace ts
