// Padding by what lies inside: reflect, replicate, circular, in one pass over the tensor.
#include "ops/nn/pad_edges.h"
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <cstring>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kEdgesCode = "copies its ends from the result itself, one dim after the other";

// Those that do not stay.
std::vector<Pads> edges_of(const Tensor& t, IntSpan pad) {
  std::vector<Pads> all = parse_pads(t.sizes(), pad, "pad");
  std::erase_if(all, [](const Pads& p) { return p.left == 0 && p.right == 0; });
  return all;
}

// The sizes of `sizes` with `sign` times the pads, of which none may cut.
Dims sizes_with(IntSpan sizes, IntSpan pad, int64_t sign) {
  Dims out(sizes);
  for (const Pads& p : parse_pads(sizes, pad, "pad")) {
    TS_CHECK(p.left >= 0 && p.right >= 0, "pad: expected no negative padding here, got ", pad);
    out[p.dim] = padded_size(out[p.dim], {p.dim, sign * p.left, sign * p.right}, "pad", sizes, pad);
  }
  return out;
}

Tensor turned(const Tensor& t, int64_t dim) { return t.sizes()[dim] == 1 ? t : ops::flip(t, Dims{dim}); }

// What `count` elements outside are, by where the first of them comes from; the edge itself is at `edge`.
Tensor source(const Tensor& t, int64_t dim, int64_t from, int64_t edge, int64_t count, PadMode mode) {
  if (mode == PadMode::Circular) return raw_narrow(t, dim, from, count);
  if (mode == PadMode::Reflect) return turned(raw_narrow(t, dim, from, count), dim);
  Dims sizes(t.sizes());
  sizes[dim] = count;
  return raw_expand(raw_narrow(t, dim, edge, 1), sizes, "pad");
}

// --- forward ---------------------------------------------------------------------------------------------------------

Tensor pad_edges_rule(const Tensor& self, IntSpan pad, const char* mode) {
  check_pads(self.sizes(), pad, pad_mode_of(mode), "pad");
  return outline_in_layout(sizes_with(self.sizes(), pad, 1), self.dtype(), self.device(), is_channels_last(self));
}

// The middle is copied; then each dim's ends come from what the result holds of it, corners with the last of them.
void pad_edges(const Tensor& out, const Tensor& self, IntSpan pad, const char* mode_name) {
  const PadMode mode = pad_mode_of(mode_name);
  const std::vector<Pads> edges = edges_of(self, pad);
  std::vector<Tensor> within{out}; // all dims whole, all but the last one, ...
  for (auto e = edges.rbegin(); e != edges.rend(); ++e)
    within.push_back(raw_narrow(within.back(), e->dim, e->left, self.sizes()[e->dim]));
  raw_copy(within.back(), self);
  for (size_t k = 0; k < edges.size(); ++k) {
    const auto [dim, left, right] = edges[k];
    const Tensor& t = within[edges.size() - 1 - k];
    const int64_t n = self.sizes()[dim], end = left + n;
    const bool circular = mode == PadMode::Circular;
    if (left) raw_copy(raw_narrow(t, dim, 0, left), source(t, dim, circular ? n : left + 1, left, left, mode));
    if (right)
      raw_copy(raw_narrow(t, dim, end, right), source(t, dim, circular ? left : end - 1 - right, end - 1, right, mode));
  }
}

// --- backward --------------------------------------------------------------------------------------------------------

Tensor pad_edges_backward_rule(const Tensor& grad, IntSpan pad, const char* mode) {
  const Dims sizes = sizes_with(grad.sizes(), pad, -1);
  check_pads(sizes, pad, pad_mode_of(mode), "pad");
  return outline_in_layout(sizes, grad.dtype(), grad.device(), is_channels_last(grad));
}

// Adds to `to` what belongs to it of `grad`, which has these edges still, or puts it there.
void fold(const Tensor& to, const Tensor& grad, std::span<const Pads> edges, PadMode mode, bool add) {
  if (edges.empty()) return add ? void(ops::add_(to, grad)) : raw_copy(to, grad);
  const auto [dim, left, right] = edges.back();
  const std::span<const Pads> rest = edges.first(edges.size() - 1);
  const int64_t n = to.sizes()[dim];
  fold(to, raw_narrow(grad, dim, left, n), rest, mode, add);
  // The end of `count` elements at `at` belongs to as many from `from` on, all of a copied edge's to `edge`.
  auto end = [&](int64_t at, int64_t count, int64_t from, int64_t edge) {
    if (!count) return;
    const Tensor part = raw_narrow(grad, dim, at, count);
    if (mode == PadMode::Replicate) {
      const Tensor sum = count == 1 ? part : ops::sum_dim(part, Dims{dim}, true);
      return fold(raw_narrow(to, dim, edge, 1), sum, rest, mode, true);
    }
    fold(raw_narrow(to, dim, from, count), mode == PadMode::Reflect ? turned(part, dim) : part, rest, mode, true);
  };
  const bool circular = mode == PadMode::Circular;
  end(0, left, circular ? n - left : 1, 0);
  end(left + n, right, circular ? 0 : n - 1 - right, n - 1);
}

void pad_edges_backward(const Tensor& out, const Tensor& grad, IntSpan pad, const char* mode) {
  const DType wide = accumulate_type(grad.dtype()); // gradients are sums of sums
  const std::vector<Pads> edges = edges_of(grad, pad);
  const Tensor sum = wide == out.dtype() ? out : empty_tensor(out.sizes(), wide, out.device());
  fold(sum, raw_cast(grad, wide), edges, pad_mode_of(mode), false);
  if (!sum.is(out)) raw_copy(out, sum);
}

// As PyTorch's: of two dims ReflectionPad2DBackward0.
std::string node_name_of(const GradContext& c) {
  const PadMode mode = pad_mode_of(c.value<const char*>(2));
  const std::string dims = std::to_string(c.value<IntSpan>(1).size() / 2);
  if (mode == PadMode::Circular) return "PadCircularBackward0";
  return (mode == PadMode::Reflect ? "ReflectionPad" : "ReplicationPad") + dims + "DBackward0";
}

const Op kEdges("_pad_edges"), kEdgesBackward("_pad_edges_backward");

} // namespace

PadMode pad_mode_of(const char* name) {
  if (std::strcmp(name, "replicate") == 0) return PadMode::Replicate;
  if (std::strcmp(name, "circular") == 0) return PadMode::Circular;
  TS_CHECK_KIND(ErrorKind::NotImplemented, std::strcmp(name, "reflect") == 0, "pad: Unrecognised padding mode ", name,
                "; expected constant, reflect, replicate or circular");
  return PadMode::Reflect;
}

std::vector<Pads> parse_pads(IntSpan sizes, IntSpan pad, const char* op) {
  TS_CHECK(pad.size() % 2 == 0, op, ": Length of pad must be even but instead it equals ", pad.size());
  TS_CHECK(pad.size() / 2 <= sizes.size(), op,
           ": Length of pad should be no more than twice the number of dimensions of the input, got ", pad,
           " for sizes ", sizes);
  std::vector<Pads> out;
  for (size_t i = 0; i < pad.size(); i += 2)
    out.push_back({static_cast<int64_t>(sizes.size() - 1 - i / 2), pad[i], pad[i + 1]});
  return out;
}

int64_t padded_size(int64_t size, const Pads& p, const char* op, IntSpan sizes, IntSpan pad) {
  int64_t n;
  bool overflow = __builtin_add_overflow(size, p.left, &n) || __builtin_add_overflow(n, p.right, &n);
  TS_CHECK(!overflow && n >= 0, op, ": The input size ", size, ", plus negative padding ", p.left, " and ", p.right,
           ", resulted in a negative output size, which is invalid; sizes ", sizes, ", pad ", pad);
  return n;
}

void check_pads(IntSpan sizes, IntSpan pad, PadMode mode, const char* op) {
  for (const Pads& p : parse_pads(sizes, pad, op)) {
    int64_t n = sizes[static_cast<size_t>(p.dim)];
    const int64_t total = padded_size(n, p, op, sizes, pad);
    if (mode == PadMode::Circular) n += std::min<int64_t>(p.left, 0) + std::min<int64_t>(p.right, 0);
    const int64_t most = mode == PadMode::Reflect ? n - 1 : mode == PadMode::Circular ? n : INT64_MAX;
    TS_CHECK(p.left <= most && p.right <= most, op, ": Padding size should be ",
             mode == PadMode::Circular ? "at most what is left of" : "less than",
             " the corresponding input dimension, but got: padding (", p.left, ", ", p.right, ") at dimension ", p.dim,
             " of input ", sizes);
    TS_CHECK(n > 0 || (p.left == 0 && p.right == 0), op, ": expected a non-empty dimension ", p.dim,
             " to pad from, got sizes ", sizes);
    TS_CHECK(total <= int64_t{1} << 40, op, ": padded size ", total, " is too large");
  }
}

TS_OPERATORS(pad_edges) {
  def("_pad_edges(Tensor self, int[] pad, str mode) -> Tensor")
      .facts("stored")
      .rule<pad_edges_rule>()
      .computation<pad_edges>(kEdgesCode)
      .hidden()
      .gradient(
          [](GradContext& c) { c.set(0, kEdgesBackward(c.grad(), c.value<IntSpan>(1), c.value<const char*>(2))); })
      .node_name(node_name_of)
      .doc("pad by reflect, replicate or circular, with numbers that pad has checked: none is negative.");
  def("_pad_edges_backward(Tensor grad, int[] pad, str mode) -> Tensor")
      .facts("stored")
      .rule<pad_edges_backward_rule>()
      .computation<pad_edges_backward>(kEdgesCode)
      .hidden()
      .gradient([](GradContext& c) { c.set(0, kEdges(c.grad(), c.value<IntSpan>(1), c.value<const char*>(2))); })
      .doc("What comes back through _pad_edges: each element's gradient and those of what repeats it.");
}

} // namespace ts
