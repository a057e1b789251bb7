// Max and average pooling over two dims, with gradients.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/raw.h"
#include "ops/nn/pool_shape.h"
#include "runtime/computed_dtypes.h"
#include <cmath>
#include <limits>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kPoolCode = "wide windows, and those of whole numbers, are summed apart before a kernel is asked";

const KernelId kAvg("avg_pool2d"), kAvgBackward("avg_pool2d_backward");
const Op floor_divide("floor_divide"), pool_max_op("max_pool2d_with_indices"), max_backward_op("max_pool2d_backward"),
    pool_avg_op("avg_pool2d"), avg_backward_op("avg_pool2d_backward");
using Two = std::tuple<Tensor, Tensor>;

// A result laid out as `like` is.
Tensor pool_outline_as(const Tensor& like, IntSpan sizes, DType dtype) {
  return outline_in_layout(sizes, dtype, like.device(), is_channels_last(like));
}
int64_t plane_of(IntSpan sizes) { return sizes[sizes.size() - 1] * sizes[sizes.size() - 2]; }
// (N, C, H, W) as (N, C, H * W), one operator call.
Tensor flat_planes(const Tensor& t) {
  Dims sizes(t.sizes().first(t.sizes().size() - 2));
  sizes.push_back(plane_of(t.sizes()));
  return ops::reshape(t, sizes);
}

// --- max -----------------------------------------------------------------------------------------------------------

// Lowest value of a dtype: what padding holds.
double lowest(DType t) {
  if (is_floating(t)) return -std::numeric_limits<double>::infinity();
  if (is_unsigned(t)) return 0;
  return -std::ldexp(1.0, static_cast<int>(8 * item_size(t) - 1));
}

// Rows (or columns) that tap k of window o reads, as int64 of shape (O).
std::vector<double> window_starts(int64_t output, int64_t stride, int64_t padding) {
  std::vector<double> starts;
  for (int64_t o = 0; o < output; ++o) starts.push_back(static_cast<double>(o * stride - padding));
  return starts;
}
// Of windows that hold nothing but padding and equals of it, the first tap inside.
std::vector<double> first_inside(std::vector<double> starts, int64_t dilation) {
  for (double& s : starts)
    if (s < 0) s += std::ceil(-s / static_cast<double>(dilation)) * static_cast<double>(dilation);
  return starts;
}

// Position in the plane from the position in the window.
Tensor plane_positions(const Tensor& in_window, const PoolShape& s, Device device) {
  auto vector = [&](const std::vector<double>& v, bool rows) {
    Tensor t = raw_vector(v, DType::Int64, device);
    return rows ? ops::unsqueeze(t, int64_t{1}) : t;
  };
  std::vector<double> top = window_starts(s.output_plane()[0], s.stride[0], s.padding[0]),
                      left = window_starts(s.output_plane()[1], s.stride[1], s.padding[1]);
  int64_t height = s.input_plane()[0], width = s.input_plane()[1];
  Tensor row_in = floor_divide(in_window, s.kernel[1]);
  Tensor column_in = ops::sub(in_window, ops::mul(row_in, s.kernel[1]));
  Tensor row = ops::add(ops::mul(row_in, s.dilation[0]), vector(top, true));
  Tensor column = ops::add(ops::mul(column_in, s.dilation[1]), vector(left, false));
  Tensor inside = ops::logical_and(ops::logical_and(ops::ge(row, 0), ops::lt(row, height)),
                                   ops::logical_and(ops::ge(column, 0), ops::lt(column, width)));
  Tensor position = ops::add(ops::mul(row, width), column);
  Tensor fallback = ops::add(ops::mul(vector(first_inside(top, s.dilation[0]), true), width),
                             vector(first_inside(left, s.dilation[1]), false));
  return ops::where(inside, position, fallback);
}

Two max_pool2d_rule(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                    bool ceil_mode) {
  const char* op = "max_pool2d";
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_complex(self.dtype()) && self.dtype() != DType::Bool, op,
                ": \"max_pool2d\" not implemented for '", self.dtype(), "'; expected real numbers");
  PoolShape s = pool_shape(self.sizes(), kernel, stride, padding, dilation, ceil_mode, op);
  return {pool_outline_as(self, s.output, self.dtype()), pool_outline_as(self, s.output, DType::Int64)};
}

Tensor max_values_rule(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                       bool ceil_mode) {
  return std::get<0>(max_pool2d_rule(self, kernel, stride, padding, dilation, ceil_mode));
}
void max_values(const Tensor& out, const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding,
                IntSpan dilation, bool ceil_mode) {
  raw_copy(out, pool_max_op.multi<2>(self, kernel, stride, padding, dilation, ceil_mode)[0]);
}

void max_pool2d_with_indices(const Tensor& out, const Tensor& indices, const Tensor& self, IntSpan kernel,
                             IntSpan stride, IntSpan padding, IntSpan dilation, bool ceil_mode) {
  PoolShape s = pool_shape(self.sizes(), kernel, stride, padding, dilation, ceil_mode, "max_pool2d");
  const Tensor& x = self;
  Tensor windows = pool_windows(x, s, lowest(x.dtype()));
  // (N, C, OH, OW, KH, KW): the two kernel dims are reduced as one position.
  int64_t order[] = {0, 1, 4, 5, 2, 3}, last_dim[] = {-1};
  Tensor taps = ops::flatten(ops::permute(windows, IntSpan(order)), int64_t{4}, int64_t{5});
  Tensor where = ops::argmax(taps, last_dim[0]);
  Tensor at = plane_positions(where, s, x.device());
  raw_copy(indices, ops::reshape(at, s.output));
  raw_copy(out,
           ops::reshape(ops::gather(flat_planes(raw_contiguous(x)), int64_t{-1}, flat_planes(raw_contiguous(indices))),
                        s.output));
}

Tensor max_pool2d_backward_rule(const Tensor& grad, const Tensor& indices, IntSpan input_size) {
  const char* op = "max_pool2d_backward";
  TS_CHECK(same(grad.sizes(), indices.sizes()) && indices.dtype() == DType::Int64, op,
           ": expected int64 indices of grad's shape ", grad.sizes(), ", got ", indices.dtype(), " ", indices.sizes());
  TS_CHECK(input_size.size() == grad.sizes().size() && (input_size.size() == 3 || input_size.size() == 4) &&
               same(input_size.first(input_size.size() - 2), grad.sizes().first(input_size.size() - 2)),
           op, ": expected input_size to fit grad of shape ", grad.sizes(), ", got ", input_size);
  return pool_outline_as(grad, input_size, grad.dtype());
}

void max_pool2d_backward(const Tensor& out, const Tensor& grad, const Tensor& indices, IntSpan input_size) {
  const Tensor &g = grad, &at = indices;
  Dims planes(input_size.first(input_size.size() - 2));
  planes.push_back(plane_of(input_size));
  DType wide = accumulate_type(grad);
  Tensor sums = filled(planes, 0.0, wide, grad.device());
  if (grad.numel()) sums = ops::scatter_add(sums, int64_t{-1}, flat_planes(at), flat_planes(raw_cast(g, wide)));
  raw_copy(out, ops::reshape(sums, input_size));
}

void max_gradient(GradContext& c) { c.set(0, max_backward_op(c.grad(), c.result(1), c.sizes(0))); }
// Picking is the transpose of scattering.
void max_backward_gradient(GradContext& c) {
  Tensor at = c.arg(1);
  c.set(0, ops::reshape(ops::gather(flat_planes(c.grad()), int64_t{-1}, flat_planes(at)), c.sizes(0)));
}

// --- average -------------------------------------------------------------------------------------------------------

// How many elements each window divides by, along one dim.
std::vector<double> extents(const PoolShape& s, size_t d, bool include_padding) {
  std::vector<double> out;
  int64_t input = s.input_plane()[d];
  for (int64_t o = 0; o < s.output_plane()[d]; ++o) {
    int64_t begin = o * s.stride[d] - s.padding[d], end = std::min(begin + s.kernel[d], input + s.padding[d]);
    if (!include_padding) begin = std::max<int64_t>(begin, 0), end = std::min(end, input);
    out.push_back(static_cast<double>(std::max<int64_t>(end - begin, 0)));
  }
  return out;
}

// Sums over windows times this are averages: (OH, OW).
Tensor window_scales(const PoolShape& s, bool include_padding, std::optional<int64_t> divisor, DType dtype,
                     Device device) {
  if (divisor) return filled({}, 1.0 / static_cast<double>(*divisor), dtype, device);
  std::vector<double> rows = extents(s, 0, include_padding), columns = extents(s, 1, include_padding), scales;
  for (double r : rows)
    for (double c : columns) scales.push_back(r * c > 0 ? 1 / (r * c) : 0);
  return reshaped(raw_vector(scales, dtype, device), s.output_plane());
}

// Whole numbers are divided towards zero; of them only int64, the type their sums have.
void check_average(const Tensor& t, std::optional<int64_t> divisor, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(t.dtype()) || t.dtype() == DType::Int64, op,
                ": \"avg_pool2d\" not implemented for '", t.dtype(), "'; expected a floating or int64 input");
  TS_CHECK(!divisor || *divisor != 0, op, ": divisor must be not zero");
}

// Windows larger than the input, which may have any number of taps beside it: one dim after the other, whole lines are
// added up where a window has them. Of shares instead (`back`), those of the windows that have an element.
bool has_wide_windows(const PoolShape& s) {
  return s.kernel[0] > s.input_plane()[0] || s.kernel[1] > s.input_plane()[1];
}
Tensor wide_window_sums(Tensor x, const PoolShape& s, bool back) {
  for (int64_t d : {0, 1}) {
    const size_t k = static_cast<size_t>(d);
    Tensor begin =
        ops::sub(ops::mul(ops::unsqueeze(counting(s.output_plane()[k], x.device()), int64_t{1}), Scalar(s.stride[k])),
                 Scalar(s.padding[k]));
    Tensor at = counting(s.input_plane()[k], x.device());
    Tensor outside = ops::logical_or(ops::lt(at, begin), ops::ge(at, ops::add(begin, Scalar(s.kernel[k]))));
    if (back) outside = ops::transpose(outside, int64_t{0}, int64_t{1});
    Tensor lines = ops::unsqueeze(ops::transpose(x, d - 2, int64_t{-1}), int64_t{-2});
    Dims sizes(lines.sizes());
    sizes[sizes.size() - 2] = outside.size(0);
    Tensor own = ops::masked_fill(ops::expand(lines, sizes), outside, 0);
    x = ops::transpose(ops::sum_dim(own, IntSpan(Dims{-1})), d - 2, int64_t{-1});
  }
  return x;
}

Tensor whole_averages(const Tensor& self, const PoolShape& s, bool include_padding, std::optional<int64_t> divisor) {
  int64_t kernel_dims[] = {2, 3};
  Tensor sums = has_wide_windows(s) ? wide_window_sums(self, s, false)
                                    : ops::sum_dim(pool_windows(self, s, 0), IntSpan(kernel_dims));
  static const Op divide("div_trunc");
  if (divisor) return ops::reshape(divide(sums, *divisor), s.output);
  std::vector<double> counts;
  for (double r : extents(s, 0, include_padding))
    for (double c : extents(s, 1, include_padding)) counts.push_back(std::max(r * c, 1.0));
  return ops::reshape(divide(sums, reshaped(raw_vector(counts, DType::Int64, self.device()), s.output_plane())),
                      s.output);
}

Tensor avg_pool2d_rule(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, bool ceil_mode, bool,
                       std::optional<int64_t> divisor) {
  check_average(self, divisor, "avg_pool2d");
  PoolShape s = pool_shape(self.sizes(), kernel, stride, padding, Dims{1}, ceil_mode, "avg_pool2d");
  return pool_outline_as(self, s.output, self.dtype());
}

void avg_pool2d(const Tensor& out, const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, bool ceil_mode,
                bool include_padding, std::optional<int64_t> divisor) {
  PoolShape s = pool_shape(self.sizes(), kernel, stride, padding, Dims{1}, ceil_mode, "avg_pool2d");
  Tensor x = in_layout(self, is_channels_last(self));
  if (!is_floating(self.dtype())) return raw_copy(out, whole_averages(x, s, include_padding, divisor));
  if (has_wide_windows(s)) {
    DType wide = accumulate_type(x);
    Tensor sums = wide_window_sums(raw_cast(x, wide), s, false);
    return raw_copy(out, ops::mul(sums, window_scales(s, include_padding, divisor, wide, x.device())));
  }
  if (Launch(kAvg, x.device())
          .out(out)
          .in(x)
          .param(s.kernel)
          .param(s.stride)
          .param(s.padding)
          .param(ceil_mode)
          .param(include_padding)
          .param(divisor)
          .run())
    return;
  DType wide = accumulate_type(x);
  int64_t kernel_dims[] = {2, 3};
  Tensor sums = ops::sum_dim(pool_windows(raw_cast(x, wide), s, 0), IntSpan(kernel_dims));
  raw_copy(out, ops::reshape(ops::mul(sums, window_scales(s, include_padding, divisor, wide, x.device())), s.output));
}

Tensor avg_pool2d_backward_rule(const Tensor& grad, IntSpan input_size, IntSpan kernel, IntSpan stride, IntSpan padding,
                                bool ceil_mode, bool, std::optional<int64_t> divisor) {
  const char* op = "avg_pool2d_backward";
  check_average(grad, divisor, op);
  PoolShape s = pool_shape(input_size, kernel, stride, padding, Dims{1}, ceil_mode, op);
  TS_CHECK(same(grad.sizes(), s.output), op, ": expected grad of shape ", IntSpan(s.output), ", got ", grad.sizes());
  return pool_outline_as(grad, input_size, grad.dtype());
}

void avg_pool2d_backward(const Tensor& out, const Tensor& grad, IntSpan input_size, IntSpan kernel, IntSpan stride,
                         IntSpan padding, bool ceil_mode, bool include_padding, std::optional<int64_t> divisor) {
  PoolShape s = pool_shape(input_size, kernel, stride, padding, Dims{1}, ceil_mode, "avg_pool2d_backward");
  Tensor g = in_layout(grad, is_channels_last(grad));
  if (has_wide_windows(s)) {
    DType wide = accumulate_type(g);
    Tensor share = ops::mul(raw_cast(g, wide), window_scales(s, include_padding, divisor, wide, g.device()));
    return raw_copy(out, wide_window_sums(share, s, true));
  }
  if (Launch(kAvgBackward, g.device())
          .out(out)
          .in(g)
          .param(input_size)
          .param(s.kernel)
          .param(s.stride)
          .param(s.padding)
          .param(ceil_mode)
          .param(include_padding)
          .param(divisor)
          .run())
    return;
  DType wide = accumulate_type(g);
  Tensor share = ops::mul(raw_cast(g, wide), window_scales(s, include_padding, divisor, wide, g.device()));
  Dims spread(s.output), strides(share.strides());
  if (spread.size() == 3) {
    spread.insert(spread.begin(), 1);
    strides.insert(strides.begin(), 0);
  }
  // One share for every tap: zero strides over the kernel's dims.
  for (size_t d = 0; d < 2; ++d) {
    spread.insert(spread.begin() + 2 + d, s.kernel[d]);
    strides.insert(strides.begin() + 2 + d, 0);
  }
  raw_copy(out, sum_pool_windows(alias(share, spread, strides, share->byte_offset), s));
}

void avg_gradient(GradContext& c) {
  c.set(0,
        avg_backward_op(c.grad(), c.sizes(0), c.value(1), c.value(2), c.value(3), c.value(4), c.value(5), c.value(6)));
}
void avg_backward_gradient(GradContext& c) {
  c.set(0, pool_avg_op(c.grad(), c.value(2), c.value(3), c.value(4), c.value(5), c.value(6), c.value(7)));
}

} // namespace

TS_OPERATORS(pool) {
  def("max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] "
      "dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)")
      .rule<max_pool2d_rule>()
      .kernel("max_pool2d_with_indices", "self: layout leads",
              "kernel_size each 2, stride or kernel_size each 2, padding each 2, dilation each 2, ceil_mode")
      .decompose<max_pool2d_with_indices, 2>()
      .saves("result1")
      .gradient(max_gradient)
      .node_name("MaxPool2DWithIndicesBackward0")
      .function_only()
      .in("nn.functional")
      .doc("Maximum of each window of (N, C, H, W) or (C, H, W), and where in the H * W plane it was (int64).");
  def("_max_pool2d_values(Tensor self, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] dilation=1, "
      "bool ceil_mode=False) -> Tensor")
      .rule<max_values_rule>()
      .kernel("max_pool2d_values", "self: layout leads",
              "kernel_size each 2, stride or kernel_size each 2, padding each 2, dilation each 2, ceil_mode")
      .decompose<max_values>()
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("max_pool2d_with_indices without the indices, where no gradient asks for them.");
  def("max_pool2d_backward(Tensor grad, Tensor indices, int[] input_size) -> Tensor")
      .rule<max_pool2d_backward_rule>()
      .kernel("max_pool2d_backward", "grad: layout leads; indices: layout", "input_size")
      .decompose<max_pool2d_backward>()
      .saves("indices")
      .gradient(max_backward_gradient)
      .hidden()
      .doc("Gradient of max_pool2d: grad added up at indices of each plane.");
  def("avg_pool2d(Tensor self, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, bool ceil_mode=False, bool "
      "count_include_pad=True, int? divisor_override=None) -> Tensor")
      .facts("kernel:avg_pool2d")
      .rule<avg_pool2d_rule>()
      .computation<avg_pool2d>(kPoolCode)
      .gradient(avg_gradient)
      .node_name("AvgPool2DBackward0")
      .function_only()
      .in("nn.functional")
      .out()
      .doc("Mean of each window of (N, C, H, W) or (C, H, W); zero padding counts unless count_include_pad is off, "
           "divisor_override replaces the count.");
  def("avg_pool2d_backward(Tensor grad, int[] input_size, int[2] kernel_size, int[2]? stride, int[2] padding, bool "
      "ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor")
      .facts("kernel:avg_pool2d_backward")
      .rule<avg_pool2d_backward_rule>()
      .computation<avg_pool2d_backward>(kPoolCode)
      .gradient(avg_backward_gradient)
      .hidden()
      .doc("Gradient of avg_pool2d: each gradient shared out over its window.");
}

} // namespace ts
