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

Tensor constant_pad_rule(const Tensor& self, IntSpan pad, Scalar value) {
  const char* op = "constant_pad_nd";
  Dims sizes(self.sizes());
  for (const Pads& p : parse_pads(self.sizes(), pad, op))
    sizes[p.dim] = padded_size(sizes[p.dim], p, op, self.sizes(), pad);
  convert_scalar(value, self.dtype(), op);
  Dims strides = strides_for(sizes, suggested_format(self.sizes(), self.strides()));
  return outline_strided(sizes, strides, self.dtype(), self.device());
}
void constant_pad(const Tensor& out, const Tensor& self, IntSpan pad, Scalar value) {
  raw_fill(out, convert_scalar(value, self.dtype(), "constant_pad_nd"));
  Tensor to = out, from = self;
  for (const Pads& p : parse_pads(self.sizes(), pad, "constant_pad_nd")) {
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

// Where some are cut, one dimension at a time, as a selection of slices: its gradient adds up what was repeated.
Tensor selected_pad(const Tensor& self, IntSpan pad, PadMode mode, const char* op) {
  const DType wide = requires_grad(self) ? accumulate_type(self) : self.dtype(); // gradients are sums of sums
  Tensor x = wide == self.dtype() ? self : ops::to_dtype(self, wide);
  for (const Pads& p : parse_pads(self.sizes(), pad, op)) {
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
  if (std::ranges::all_of(pad, [](int64_t p) { return p == 0; })) return ops::clone(self);
  if (std::ranges::all_of(pad, [](int64_t p) { return p >= 0; })) return pad_edges(self, pad, mode_name);
  check_pads(self.sizes(), pad, mode, "pad");
  return selected_pad(self, pad, mode, "pad");
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
