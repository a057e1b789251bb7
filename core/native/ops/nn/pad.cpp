// Padding: constant, reflect, replicate, circular.
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/nn/pad_edges.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <cstring>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kPadCode = "writes into a part of the result";

// pad counts from the last dimension: (left, right) of the last, then of the one before, ...
struct Pads {
  int64_t dim, left, right;
};
std::vector<Pads> parse(const Tensor& self, IntSpan pad, const char* op) {
  TS_CHECK(pad.size() % 2 == 0, op, ": Length of pad must be even but instead it equals ", pad.size());
  TS_CHECK(pad.size() / 2 <= static_cast<size_t>(self.ndim()), op,
           ": Length of pad should be no more than twice the number of dimensions of the input, got ", pad,
           " for sizes ", self.sizes());
  std::vector<Pads> out;
  for (size_t i = 0; i < pad.size(); i += 2)
    out.push_back({self.ndim() - 1 - static_cast<int64_t>(i / 2), pad[i], pad[i + 1]});
  return out;
}

int64_t padded_size(int64_t size, const Pads& p, const char* op, IntSpan sizes, IntSpan pad) {
  int64_t n;
  bool overflow = __builtin_add_overflow(size, p.left, &n) || __builtin_add_overflow(n, p.right, &n);
  TS_CHECK(!overflow && n >= 0, op, ": The input size ", size, ", plus negative padding ", p.left, " and ", p.right,
           ", resulted in a negative output size, which is invalid; sizes ", sizes, ", pad ", pad);
  return n;
}

Tensor constant_pad_rule(const Tensor& self, IntSpan pad, Scalar value) {
  const char* op = "constant_pad_nd";
  Dims sizes(self.sizes());
  for (const Pads& p : parse(self, pad, op)) sizes[p.dim] = padded_size(sizes[p.dim], p, op, self.sizes(), pad);
  convert_scalar(value, self.dtype(), op);
  bool last = self.is_contiguous(MemoryFormat::ChannelsLast) && !self.is_contiguous();
  Dims strides = strides_for(sizes, last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
  return outline_strided(sizes, strides, self.dtype(), self.device());
}
void constant_pad(const Tensor& out, const Tensor& self, IntSpan pad, Scalar value) {
  raw_fill(out, convert_scalar(value, self.dtype(), "constant_pad_nd"));
  Tensor to = out, from = self;
  for (const Pads& p : parse(self, pad, "constant_pad_nd")) {
    int64_t skip = std::max<int64_t>(-p.left, 0), size = self.sizes()[p.dim];
    int64_t kept = size - skip - std::max<int64_t>(-p.right, 0);
    if (kept <= 0) return;
    from = raw_narrow(from, p.dim, skip, kept);
    to = raw_narrow(to, p.dim, std::max<int64_t>(p.left, 0), kept);
  }
  raw_copy(to, from);
}

void constant_pad_gradient(GradContext& c) {
  static const Op constant_pad_nd("constant_pad_nd");
  Dims back(c.value<IntSpan>(1));
  for (int64_t& p : back) p = -p;
  c.set(0, constant_pad_nd(c.grad(), back, Scalar(0)));
}

// Circular repeats what negative padding leaves, from `first` on, `n` elements; the others look at the whole.
int64_t source_of(int64_t i, int64_t first, int64_t n, PadMode mode) {
  if (mode == PadMode::Replicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == PadMode::Circular) return first + ((i - first) % n + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

void check_pads(const Tensor& self, IntSpan pad, PadMode mode, const char* op) {
  for (const Pads& p : parse(self, pad, op)) {
    int64_t n = self.sizes()[p.dim];
    const int64_t total = padded_size(n, p, op, self.sizes(), pad);
    if (mode == PadMode::Circular) n += std::min<int64_t>(p.left, 0) + std::min<int64_t>(p.right, 0);
    const int64_t most = mode == PadMode::Reflect ? n - 1 : mode == PadMode::Circular ? n : INT64_MAX;
    TS_CHECK(p.left <= most && p.right <= most, op, ": Padding size should be ",
             mode == PadMode::Circular ? "at most what is left of" : "less than",
             " the corresponding input dimension, but got: padding (", p.left, ", ", p.right, ") at dimension ", p.dim,
             " of input ", self.sizes());
    TS_CHECK(n > 0 || (p.left == 0 && p.right == 0), op, ": expected a non-empty dimension ", p.dim,
             " to pad from, got sizes ", self.sizes());
    TS_CHECK(total <= int64_t{1} << 40, op, ": padded size ", total, " is too large");
  }
}

// Where some are cut, one dimension at a time, as a selection of slices: its gradient adds up what was repeated.
Tensor selected_pad(const Tensor& self, IntSpan pad, PadMode mode, const char* op) {
  const DType wide = requires_grad(self) ? accumulate_type(self) : self.dtype(); // gradients are sums of sums
  Tensor x = wide == self.dtype() ? self : ops::to_dtype(self, wide);
  for (const Pads& p : parse(self, pad, op)) {
    if (p.left == 0 && p.right == 0) continue;
    int64_t n = x.sizes()[p.dim];
    const int64_t total = n + p.left + p.right;
    const int64_t first = mode == PadMode::Circular ? std::max<int64_t>(-p.left, 0) : 0;
    if (mode == PadMode::Circular) n += std::min<int64_t>(p.left, 0) + std::min<int64_t>(p.right, 0);
    std::vector<int64_t> from(static_cast<size_t>(total));
    for (int64_t i = 0; i < total; ++i) from[static_cast<size_t>(i)] = source_of(i - p.left, first, n, mode);
    x = ops::index_select(x, p.dim, from_host(from, self.device()));
  }
  return as_laid_out(self, wide == self.dtype() ? x : ops::to_dtype(x, self.dtype()));
}

Tensor pad_with(const Tensor& self, IntSpan pad, PadMode mode, const char* mode_name) {
  static const Op pad_edges("_pad_edges");
  check_pads(self, pad, mode, "pad");
  if (std::ranges::any_of(pad, [](int64_t p) { return p < 0; })) return selected_pad(self, pad, mode, "pad");
  return std::ranges::any_of(pad, [](int64_t p) { return p != 0; }) ? pad_edges(self, pad, mode_name)
                                                                    : ops::clone(self);
}

Tensor pad(const Tensor& input, IntSpan pad, const char* mode, std::optional<double> value) {
  static const Op constant_pad_nd("constant_pad_nd");
  if (std::strcmp(mode, "constant") == 0) return constant_pad_nd(input, pad, Scalar(value.value_or(0)));
  TS_CHECK_VALUE(!value || *value == 0, "pad: Padding mode \"", mode, "\" doesn't take in value argument");
  const PadMode m = pad_mode_of(mode);
  int64_t spatial = static_cast<int64_t>(pad.size() / 2);
  TS_CHECK_KIND(ErrorKind::NotImplemented,
                pad.size() % 2 == 0 && spatial >= 1 && spatial <= 3 &&
                    (input.ndim() == spatial + 1 || input.ndim() == spatial + 2),
                "pad: mode ", mode,
                " pads the last 1, 2 or 3 dimensions of an input with one or two dimensions before them, got pad ", pad,
                " for sizes ", input.sizes());
  for (int64_t d = input.ndim() - spatial - 1; m != PadMode::Circular && d < input.ndim(); ++d)
    TS_CHECK(input.sizes()[static_cast<size_t>(d)] > 0, "pad: mode ", mode, " expects non-zero dimensions ",
             "apart from the batch's, got sizes ", input.sizes());
  return pad_with(input, pad, m, mode);
}

} // namespace

TS_OPERATORS(pad) {
  def("constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor")
      .facts("stored")
      .rule<constant_pad_rule>()
      .computation<constant_pad>(kPadCode)
      .gradient(constant_pad_gradient)
      .function_only()
      .doc(
          "self with `value` around it: pad is (left, right) of the last dimension, then of the one before, and so on; "
          "negative numbers cut.");
  def("pad(Tensor input, int[] pad, str mode='constant', float? value=None) -> Tensor")
      .facts("stored")
      .body<pad>()
      .function_only()
      .in("nn.functional")
      .doc("Pads the last dimensions: pad is (left, right) of the last dimension, then of the one before, and so on. "
           "mode: constant, reflect, replicate or circular.");
}

} // namespace ts
