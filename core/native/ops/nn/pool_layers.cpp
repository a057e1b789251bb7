// Pooling in the signatures of torch.nn.functional: one dim, adaptive, and resizing.
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/raw.h"
#include "ops/nn/pool_shape.h"
#include <cmath>
#include <cstring>

namespace ts {
namespace {

const Op max_op("max_pool2d_with_indices"), avg_op("avg_pool2d");
using Two = std::tuple<Tensor, Tensor>;

Tensor max_pool2d(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                  bool ceil_mode) {
  return max_op(self, kernel, stride, padding, dilation, ceil_mode);
}

// One dim as two, the first of size one.
struct AsRows {
  Dims values;
  AsRows(IntSpan one, int64_t other, const char* op, const char* name) {
    TS_CHECK(one.size() == 1, op, ": expected ", name, " to be one number, got ", one);
    values = {other, one[0]};
  }
};
Tensor as_plane(const Tensor& self, const char* op) {
  TS_CHECK(self.ndim() == 2 || self.ndim() == 3, op,
           ": Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got: ", self.sizes());
  return ops::unsqueeze(self, int64_t{-2});
}
Tensor as_line(const Tensor& t) { return ops::select(t, int64_t{-2}, int64_t{0}); }

Two max_pool1d_with_indices(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                            bool ceil_mode) {
  const char* op = "max_pool1d";
  AsRows k(kernel, 1, op, "kernel_size"), s(stride.empty() ? kernel : stride, 1, op, "stride"),
      p(padding, 0, op, "padding"), d(dilation, 1, op, "dilation");
  auto [values, indices] = max_op.multi<2>(as_plane(self, op), k.values, s.values, p.values, d.values, ceil_mode);
  return {as_line(values), as_line(indices)};
}
Tensor max_pool1d(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                  bool ceil_mode) {
  return std::get<0>(max_pool1d_with_indices(self, kernel, stride, padding, dilation, ceil_mode));
}
Tensor avg_pool1d(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, bool ceil_mode,
                  bool include_padding) {
  const char* op = "avg_pool1d";
  AsRows k(kernel, 1, op, "kernel_size"), s(stride.empty() ? kernel : stride, 1, op, "stride"),
      p(padding, 0, op, "padding");
  return as_line(avg_op(as_plane(self, op), k.values, s.values, p.values, ceil_mode, include_padding));
}

// --- adaptive: window o of n covers floor(o * size / n) to ceil((o + 1) * size / n) ----------------------------------

// The elements of every window side by side, in place of `dim`: (.., n, longest window, ..).
struct Windows {
  Tensor elements, inside, counts; // which of them are its own, (n, longest), and how many, (n, 1)
};

Windows adaptive_windows(const Tensor& x, int64_t dim, int64_t n) {
  static const Op floor_divide("floor_divide");
  const int64_t size = x.size(dim), longest = size % n ? size / n + 2 : size / n;
  Tensor o = ops::unsqueeze(counting(n, x.device()), int64_t{1});
  Tensor begin = floor_divide(ops::mul(o, Scalar(size)), Scalar(n));
  Tensor end = floor_divide(ops::add(ops::mul(o, Scalar(size)), Scalar(size + n - 1)), Scalar(n));
  Tensor at = ops::add(begin, counting(longest, x.device())), last = ops::sub(end, Scalar(1));
  Tensor picked = ops::index_select(x, dim, ops::flatten(ops::minimum(at, last)));
  Dims sizes(x.sizes());
  sizes[static_cast<size_t>(dim)] = longest;
  sizes.insert(sizes.begin() + dim, n);
  return {ops::reshape(picked, sizes), ops::le(at, last), ops::sub(end, begin)};
}

// Of equal maxima the first has the gradient.
Tensor adaptive_along(const Tensor& x, int64_t dim, int64_t n, bool maximum) {
  const int64_t d = wrap_dim(dim, x.ndim(), "adaptive_pool");
  Windows w = adaptive_windows(x, d, n);
  if (maximum) return ops::max_dim.multi<2>(w.elements, d + 1, false)[0];
  Dims beside(w.elements.sizes().size(), 1);
  beside[static_cast<size_t>(d)] = n;
  Tensor counts = ops::squeeze(ops::reshape(w.counts, beside), IntSpan(Dims{d + 1}));
  beside[static_cast<size_t>(d) + 1] = w.elements.sizes()[static_cast<size_t>(d) + 1];
  Tensor own = ops::masked_fill(w.elements, ops::logical_not(ops::reshape(w.inside, beside)), 0.0);
  Tensor sums = ops::sum_dim(own, IntSpan(Dims{d + 1}), false, accumulate_type(x.dtype()));
  return ops::to_dtype(ops::div(sums, counts), x.dtype());
}

void check_adaptive(const Tensor& self, IntSpan output, size_t n, const char* op) {
  TS_CHECK(self.sizes().size() == n + 1 || self.sizes().size() == n + 2, op, ": Expected ", n + 1, "D or ", n + 2,
           "D tensor, but got ", self.sizes());
  for (size_t d = self.sizes().size() - n; d < self.sizes().size(); ++d)
    TS_CHECK(self.sizes()[d] > 0, op,
             ": Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes());
  for (int64_t o : output)
    TS_CHECK(o >= 0 && o < int64_t{1} << 31, op,
             ": elements of output_size must be greater than or equal to 0, but got ", output);
}

// A result without elements that is part of the graph.
Tensor no_windows(const Tensor& self, IntSpan output) {
  Dims sizes(self.sizes().first(self.sizes().size() - 2));
  sizes.push_back(output[0]);
  sizes.push_back(output[1]);
  return ops::reshape(ops::narrow(ops::flatten(self), int64_t{0}, int64_t{0}, int64_t{0}), sizes);
}

Tensor adaptive_avg_pool2d(const Tensor& self, IntSpan output_size) {
  const char* op = "adaptive_avg_pool2d";
  Dims output = per_dim(output_size, 2, op, "output_size");
  check_adaptive(self, output, 2, op);
  int64_t h = self.size(-2), w = self.size(-1);
  if (output[0] == 0 || output[1] == 0) return no_windows(self, output);
  if (output[0] == 1 && output[1] == 1) {
    int64_t plane[] = {-2, -1};
    return ops::mean_dim(self, IntSpan(plane), true);
  }
  int64_t kernel[] = {h / output[0], w / output[1]};
  if (h % output[0] == 0 && w % output[1] == 0) return avg_op(self, IntSpan(kernel), IntSpan(kernel));
  return as_laid_out(self, adaptive_along(adaptive_along(self, -2, output[0], false), -1, output[1], false));
}
Tensor adaptive_avg_pool1d(const Tensor& self, IntSpan output_size) {
  TS_CHECK(output_size.size() == 1, "adaptive_avg_pool1d: expected output_size to be one number, got ", output_size);
  check_adaptive(self, output_size, 1, "adaptive_avg_pool1d");
  int64_t output[] = {1, output_size[0]};
  return as_line(adaptive_avg_pool2d(as_plane(self, "adaptive_avg_pool1d"), output));
}
// Maxima along rows, then columns: the greatest of a rectangle is the greatest of its rows' greatest.
Tensor adaptive_max_pool2d(const Tensor& self, IntSpan output_size) {
  const char* op = "adaptive_max_pool2d";
  Dims output = per_dim(output_size, 2, op, "output_size");
  check_adaptive(self, output, 2, op);
  if (output[0] == 0 || output[1] == 0) return no_windows(self, output);
  int64_t h = self.size(-2), w = self.size(-1), kernel[] = {h / output[0], w / output[1]};
  if (output[0] == 1 && output[1] == 1 && h * w > 0 &&
      !is_channels_last(self)) // a maximum of all: rows as long as planes
    return ops::unsqueeze(ops::max_dim.multi<2>(ops::flatten(self, int64_t{-2}), int64_t{-1}, true)[0], int64_t{-1});
  if (h % output[0] == 0 && w % output[1] == 0) return max_pool2d(self, kernel, kernel, Dims{0}, Dims{1}, false);
  return as_laid_out(self, adaptive_along(adaptive_along(self, -1, output[1], true), -2, output[0], true));
}

} // namespace

TS_OPERATORS(pool_layers) {
  def("max_pool2d(Tensor self, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] dilation=1, bool "
      "ceil_mode=False) -> Tensor")
      .body<max_pool2d>()
      .function_only()
      .in("nn.functional")
      .doc("Maximum of each window of (N, C, H, W) or (C, H, W).");
  def("max_pool1d(Tensor self, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] dilation=1, bool "
      "ceil_mode=False) -> Tensor")
      .body<max_pool1d>()
      .function_only()
      .in("nn.functional")
      .doc("Maximum of each window of (N, C, L) or (C, L).");
  def("max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] "
      "dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)")
      .body<max_pool1d_with_indices>()
      .function_only()
      .in("nn.functional")
      .doc("max_pool1d, and where each maximum was (int64).");
  def("avg_pool1d(Tensor self, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool ceil_mode=False, bool "
      "count_include_pad=True) -> Tensor")
      .body<avg_pool1d>()
      .function_only()
      .in("nn.functional")
      .doc("Mean of each window of (N, C, L) or (C, L).");
  def("adaptive_avg_pool2d(Tensor self, int[2] output_size) -> Tensor")
      .body<adaptive_avg_pool2d>()
      .function_only()
      .in("nn.functional")
      .doc("Means over a grid of output_size windows that cover each plane.");
  def("adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor")
      .body<adaptive_avg_pool1d>()
      .function_only()
      .in("nn.functional")
      .doc("Means over output_size windows that cover each line.");
  def("adaptive_max_pool2d(Tensor self, int[2] output_size) -> Tensor")
      .body<adaptive_max_pool2d>()
      .function_only()
      .in("nn.functional")
      .doc("Maxima over a grid of output_size windows that cover each plane.");
}

} // namespace ts
