// Pooling in the signatures of torch.nn.functional: one dim, adaptive, and resizing.
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/raw.h"
#include "ops/nn/pool_shape.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace ts {
namespace {

const Op pool_layers_max_op("max_pool2d_with_indices"), max_values_op("_max_pool2d_values"),
    pool_layers_avg_op("avg_pool2d");
using Two = std::tuple<Tensor, Tensor>;

Tensor max_pool2d(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                  bool ceil_mode) {
  return pool_layers_max_op(self, kernel, stride, padding, dilation, ceil_mode);
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

struct MaxLine {
  AsRows kernel, stride, padding, dilation;
  MaxLine(IntSpan k, IntSpan s, IntSpan p, IntSpan d, const char* op)
      : kernel(k, 1, op, "kernel_size"), stride(s.empty() ? k : s, 1, op, "stride"), padding(p, 0, op, "padding"),
        dilation(d, 1, op, "dilation") {}
};

// Nothing but the numbers is asked for: no gradient, and nobody who writes down or changes what is called.
bool values_alone(const Tensor& self) {
  const ThreadState& tls = thread_state();
  const KeySet keys = (self->keys | tls.include) & ~tls.exclude;
  return !(keys & ~(backend_bits() | key_bit(key::Autograd))) && !(tls.exclude & ~key_bit(key::Autograd)) &&
         !is_recorded(self);
}

Two max_pool1d_with_indices(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                            bool ceil_mode) {
  const char* op = "max_pool1d";
  MaxLine l(kernel, stride, padding, dilation, op);
  auto [values, indices] = pool_layers_max_op.multi<2>(as_plane(self, op), l.kernel.values, l.stride.values,
                                                       l.padding.values, l.dilation.values, ceil_mode);
  return {as_line(values), as_line(indices)};
}
Tensor max_pool1d(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                  bool ceil_mode) {
  if (!values_alone(self))
    return std::get<0>(max_pool1d_with_indices(self, kernel, stride, padding, dilation, ceil_mode));
  const char* op = "max_pool1d";
  MaxLine l(kernel, stride, padding, dilation, op);
  return as_line(max_values_op(as_plane(self, op), l.kernel.values, l.stride.values, l.padding.values,
                               l.dilation.values, ceil_mode));
}
Tensor avg_pool1d(const Tensor& self, IntSpan kernel, IntSpan stride, IntSpan padding, bool ceil_mode,
                  bool include_padding) {
  const char* op = "avg_pool1d";
  AsRows k(kernel, 1, op, "kernel_size"), s(stride.empty() ? kernel : stride, 1, op, "stride"),
      p(padding, 0, op, "padding");
  return as_line(pool_layers_avg_op(as_plane(self, op), k.values, s.values, p.values, ceil_mode, include_padding));
}

// --- adaptive: window o of n covers floor(o * size / n) to ceil((o + 1) * size / n) ----------------------------------

struct Window {
  int64_t begin, end;
};
// Without a division each: there may be millions.
std::vector<Window> adaptive_windows(int64_t n, int64_t size) {
  std::vector<Window> windows(static_cast<size_t>(n));
  int64_t begin = 0, rest = 0; // o * size = begin * n + rest
  for (Window& window : windows) {
    window.begin = begin;
    begin += size / n, rest += size % n;
    if (rest >= n) ++begin, rest -= n;
    window.end = begin + (rest > 0 ? 1 : 0);
  }
  return windows;
}

// Many windows at once: the first elements of all, the second ones, as many as the longest has, which are hardly more
// than there are.
Tensor adaptive_gathered(const Tensor& self, size_t dim, int64_t n, bool maximum) {
  Tensor x = maximum ? self : as_dtype(self, accumulate_type(self));
  const std::vector<Window> all = adaptive_windows(n, x.sizes()[dim]);
  int64_t longest = 0;
  for (const Window& w : all) longest = std::max(longest, w.end - w.begin);
  std::vector<double> places, outside, lengths;
  places.reserve(all.size() * static_cast<size_t>(longest));
  outside.reserve(places.capacity());
  lengths.reserve(all.size());
  for (const Window& w : all) lengths.push_back(static_cast<double>(w.end - w.begin));
  for (int64_t k = 0; k < longest; ++k)
    for (const Window& w : all) {
      places.push_back(static_cast<double>(std::min(w.begin + k, w.end - 1)));
      outside.push_back(w.begin + k < w.end ? 0 : 1);
    }
  Dims sizes, each = {n}, tap = {longest, n};
  for (size_t d = 0; d < x.sizes().size(); ++d) {
    if (d == dim) sizes.push_back(longest);
    sizes.push_back(d == dim ? n : x.sizes()[d]);
    if (d > dim) each.push_back(1), tap.push_back(1);
  }
  int64_t along = static_cast<int64_t>(dim), taps[] = {along};
  Tensor windows = ops::reshape(ops::index_select(x, along, raw_vector(places, DType::Int64, x.device())), sizes);
  if (maximum) return ops::max_dim.multi<2>(windows, along, false)[0]; // an element twice is no greater
  Tensor held = ops::masked_fill(windows, raw_view(raw_vector(outside, DType::Bool, x.device()), tap), 0.0);
  Tensor counts = raw_view(raw_vector(lengths, x.dtype(), x.device()), each);
  return as_dtype(ops::div(ops::sum_dim(held, IntSpan(taps)), counts), self.dtype());
}

// Each element so many times: what windows of one element are.
Tensor repeated(const Tensor& x, int64_t dim, int64_t times) {
  Dims wide(x.sizes()), sizes(x.sizes());
  wide.insert(wide.begin() + dim + 1, times);
  sizes[static_cast<size_t>(dim)] *= times;
  return ops::reshape(ops::expand(ops::unsqueeze(x, dim + 1), wide), sizes);
}

Tensor adaptive_along(const Tensor& x, int64_t dim, int64_t n, bool maximum) {
  if (n % x.size(dim) == 0 && is_floating(x.dtype())) return repeated(x, dim + x.ndim(), n / x.size(dim));
  constexpr int64_t kOneByOne = 16;
  if (n > kOneByOne && is_floating(x.dtype()))
    return adaptive_gathered(x, static_cast<size_t>(dim + x.ndim()), n, maximum);
  int64_t dims[] = {dim};
  std::vector<Tensor> parts;
  for (const Window& w : adaptive_windows(n, x.size(dim))) {
    Tensor window = ops::narrow(x, dim, w.begin, w.end - w.begin);
    parts.push_back(maximum ? ops::max_dim.multi<2>(window, dim, true)[0] : ops::mean_dim(window, IntSpan(dims), true));
  }
  return ops::cat(parts, dim);
}

// Of the dims from `first` on.
void check_not_empty(const Tensor& self, size_t first, const char* op) {
  for (size_t d = first; d < self.sizes().size(); ++d)
    TS_CHECK(self.sizes()[d] > 0, op,
             ": Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes());
}

void check_adaptive(const Tensor& self, IntSpan output, size_t n, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(self.dtype()) || is_complex(self.dtype()) || !self.numel(), op,
                ": \"", op, "\" not implemented for '", self.dtype(), "'; expected a floating input");
  TS_CHECK(self.sizes().size() == n + 1 || self.sizes().size() == n + 2, op, ": Expected ", n + 1, "D or ", n + 2,
           "D tensor, but got ", self.sizes());
  check_not_empty(self, self.sizes().size() - n, op);
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

// One mean of each plane, with the strides of a tensor whose channels are innermost where self is one.
Tensor plane_means(const Tensor& self) {
  if (!is_channels_last(self)) return ops::mean_dim(self, IntSpan(Dims{-2, -1}), true);
  Tensor means = ops::mean_dim(ops::permute(self, Dims{0, 2, 3, 1}), IntSpan(Dims{1, 2}), true);
  return ops::permute(means, Dims{0, 3, 1, 2});
}

Tensor adaptive_avg_pool2d(const Tensor& self, IntSpan output_size) {
  const char* op = "adaptive_avg_pool2d";
  Dims output = per_dim(output_size, 2, op, "output_size");
  check_adaptive(self, output, 2, op);
  int64_t h = self.size(-2), w = self.size(-1);
  if (output[0] == 0 || output[1] == 0 || !self.numel()) return no_windows(self, output);
  if (output[0] == 1 && output[1] == 1) return plane_means(self);
  int64_t kernel[] = {h / output[0], w / output[1]};
  if (h % output[0] == 0 && w % output[1] == 0) return pool_layers_avg_op(self, IntSpan(kernel), IntSpan(kernel));
  // Means of means, rounded once.
  const DType wide = accumulate_type(self);
  const Tensor x = wide == self.dtype() ? self : ops::to_dtype(self, wide);
  const Tensor means = adaptive_along(adaptive_along(x, -2, output[0], false), -1, output[1], false);
  return as_laid_out(self, wide == self.dtype() ? means : ops::to_dtype(means, self.dtype()));
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
  check_not_empty(self, 1, op); // there is no greatest of no channels
  if (output[0] == 0 || output[1] == 0 || !self.numel()) return no_windows(self, output);
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
      .facts("leaf")
      .body<adaptive_max_pool2d>()
      .function_only()
      .in("nn.functional")
      .doc("Maxima over a grid of output_size windows that cover each plane.");
}

} // namespace ts
