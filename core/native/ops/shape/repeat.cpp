// Repetition and rearrangement: repeat, tile, repeat_interleave, roll, flip, rot90.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kRepeatCode = "copies from a view that runs backwards";

// Seen as (r0, s0, r1, s1, ...) with zero strides for the repeats, then copied.
Tensor repeat(const Tensor& self, IntSpan repeats) {
  TS_CHECK(repeats.size() >= self.sizes().size(),
           "repeat: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor, got ",
           repeats, " for sizes ", self.sizes());
  size_t lead = repeats.size() - self.sizes().size();
  Dims single, pairs, result;
  for (size_t d = 0; d < repeats.size(); ++d) {
    TS_CHECK(repeats[d] >= 0, "repeat: Trying to create tensor with negative dimension ", repeats[d], ": ", repeats);
    int64_t size = d < lead ? 1 : self.sizes()[d - lead], total;
    TS_CHECK(!__builtin_mul_overflow(size, repeats[d], &total), "repeat: sizes overflow, got ", repeats, " for sizes ",
             self.sizes());
    for (int64_t s : {int64_t{1}, size}) single.push_back(s);
    for (int64_t s : {repeats[d], size}) pairs.push_back(s);
    result.push_back(total);
  }
  checked_numel(result);
  return ops::reshape(ops::clone(ops::expand(ops::reshape(self, single), pairs), MemoryFormat::Contiguous), result);
}

Tensor tile(const Tensor& self, IntSpan dims) {
  Dims repeats(dims);
  while (repeats.size() < self.sizes().size()) repeats.insert(repeats.begin(), 1);
  return repeat(self, repeats);
}

// --- repeat_interleave
Tensor interleave_int(const Tensor& self, int64_t repeats, std::optional<int64_t> dim,
                      std::optional<int64_t> output_size) {
  TS_CHECK(repeats >= 0, "repeat_interleave: repeats has to be non-negative, got ", repeats);
  Tensor x = dim ? self : ops::reshape(self, Dims{-1});
  int64_t d = wrap_dim(dim.value_or(0), x.ndim(), "repeat_interleave");
  if (x.ndim() == 0) x = ops::reshape(x, Dims{1});
  int64_t total;
  TS_CHECK(!__builtin_mul_overflow(x.sizes()[d], repeats, &total), "repeat_interleave: sizes overflow");
  TS_CHECK(!output_size || *output_size == total,
           "repeat_interleave: allocated size does not match required size, expected ", total);
  Tensor each = ops::unsqueeze(x, d + 1);
  Dims seen(each.sizes()), result(x.sizes());
  seen[d + 1] = repeats;
  result[d] = total;
  checked_numel(result);
  return ops::reshape(ops::clone(ops::expand(each, seen), MemoryFormat::Contiguous), result);
}

// Which element each repeat comes from: how many running totals lie at or before its position.
Tensor interleave_positions_rule(const Tensor& repeats, std::optional<int64_t> output_size) {
  check_index_dtype(repeats, "repeat_interleave");
  TS_CHECK(repeats.ndim() <= 1, "repeat_interleave: only accept 0-dim or 1-dim tensor as repeat, got sizes ",
           repeats.sizes());
  return outline(Dims{std::max<int64_t>(output_size.value_or(0), 0)}, DType::Int64, repeats.device());
}
Tensor interleave_positions(const Tensor& repeats, std::optional<int64_t> output_size) {
  static const Op searchsorted("searchsorted.Tensor");
  int64_t total = 0;
  Tensor totals;
  if (repeats.numel()) {
    TS_CHECK(!raw_truth(ops::any(ops::lt(repeats, Scalar(0)))), "repeat_interleave: repeats can not be negative");
    totals = ops::cumsum(raw_cast(raw_view(repeats, Dims{repeats.numel()}), DType::Int64), 0);
    copy_bytes_to_host(&total, raw_narrow(totals, 0, totals.numel() - 1, 1), sizeof total);
  }
  TS_CHECK(!output_size || *output_size == total,
           "repeat_interleave: allocated size does not match required size, expected ", total, ", got ", *output_size);
  if (total == 0) return empty_tensor(Dims{0}, DType::Int64, repeats.device());
  return searchsorted(totals, counting(total, repeats.device()), false, true);
}

Tensor interleave_tensor(const Tensor& self, const Tensor& repeats, std::optional<int64_t> dim,
                         std::optional<int64_t> output_size) {
  static const Op positions_op("repeat_interleave.Tensor");
  Tensor x = dim ? self : ops::reshape(self, Dims{-1});
  int64_t d = wrap_dim(dim.value_or(0), x.ndim(), "repeat_interleave");
  if (x.ndim() == 0) x = ops::reshape(x, Dims{1});
  TS_CHECK(repeats.ndim() <= 1 && (repeats.numel() == 1 || repeats.numel() == x.sizes()[d]),
           "repeat_interleave: repeats must have the same size as input along dim, but got repeats of sizes ",
           repeats.sizes(), " and input ", x.sizes());
  Tensor each = repeats.numel() == x.sizes()[d] && repeats.ndim() == 1
                    ? repeats
                    : ops::expand(ops::reshape(repeats, Dims{1}), Dims{x.sizes()[d]});
  return ops::index_select(x, d, positions_op(each, output_size));
}

// --- roll, flip, rot90
Tensor roll(const Tensor& self, IntSpan shifts, IntSpan dims) {
  TS_CHECK(!shifts.empty(), "roll: `shifts` required");
  if (dims.empty()) {
    TS_CHECK(shifts.size() == 1, "roll: shifts and dimensions must align. shifts: ", shifts.size(), ", dims:0");
    int64_t zero = 0;
    return ops::reshape(roll(ops::reshape(self, Dims{-1}), shifts, IntSpan(&zero, 1)), self.sizes());
  }
  TS_CHECK(shifts.size() == dims.size(), "roll: shifts and dimensions must align. shifts: ", shifts.size(),
           ", dims:", dims.size());
  Tensor x = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    TS_CHECK_INDEX(self.ndim() > 0, "roll: Dimension specified as ", dims[i], " but tensor has no dimensions");
    int64_t d = wrap_dim(dims[i], self.ndim(), "roll");
    if (x.numel() == 0 || x.ndim() == 0) continue;
    int64_t n = x.sizes()[d], start = ((-(shifts[i] % n)) % n + n) % n;
    if (start == 0) continue;
    const Tensor parts[] = {ops::slice(x, d, start, n, 1), ops::slice(x, d, 0, start, 1)};
    x = ops::cat(TensorList(parts), d);
  }
  return x.is(self) ? ops::clone(self) : x;
}

Tensor flip_rule(const Tensor& self, IntSpan dims) {
  if (!dims.empty()) wrap_dims(dims, self.ndim(), "flip");
  return outline_like(self, self.dtype());
}
void flip(const Tensor& out, const Tensor& self, IntSpan dims) {
  Dims strides(self.strides());
  int64_t offset = 0;
  if (!dims.empty())
    for (int64_t d : wrap_dims(dims, self.ndim(), "flip")) {
      offset += std::max<int64_t>(self.sizes()[d] - 1, 0) * strides[d];
      strides[d] = -strides[d];
    }
  raw_copy(out, alias(self, self.sizes(), strides, self->byte_offset + offset * self.item_size()));
}
Tensor fliplr(const Tensor& self) {
  TS_CHECK(self.ndim() >= 2, "fliplr: Input must be >= 2-d, got sizes ", self.sizes());
  return ops::flip(self, Dims{1});
}
Tensor flipud(const Tensor& self) {
  TS_CHECK(self.ndim() >= 1, "flipud: Input must be >= 1-d, got sizes ", self.sizes());
  return ops::flip(self, Dims{0});
}

Tensor rot90(const Tensor& self, int64_t k, IntSpan dims) {
  TS_CHECK(dims.size() == 2, "rot90: expected total rotation dims == 2, but got dims = ", dims.size());
  TS_CHECK(self.ndim() >= 2, "rot90: expected total dims >= 2, but got total dims = ", self.ndim());
  int64_t a = wrap_dim(dims[0], self.ndim(), "rot90"), b = wrap_dim(dims[1], self.ndim(), "rot90");
  TS_CHECK(a != b, "rot90: expected rotation dims to be different, but got dim0 = ", dims[0], " and dim1 = ", dims[1]);
  switch ((k % 4 + 4) % 4) {
  case 1: return ops::transpose(ops::flip(self, Dims{b}), a, b);
  case 2: return ops::flip(self, Dims{a, b});
  case 3: return ops::transpose(ops::flip(self, Dims{a}), a, b);
  default: return ops::clone(self);
  }
}

} // namespace

TS_OPERATORS(repeat) {
  def("repeat(Tensor self, int[] repeats) -> Tensor")
      .facts("leaf stored")
      .body<repeat>()
      .method_only()
      .doc("self repeated along every dimension; more repeats than dimensions add leading ones.");
  def("tile(Tensor self, int[] dims) -> Tensor")
      .facts("stored")
      .body<tile>()
      .doc("As repeat, with missing leading repeats taken as 1.");
  def("repeat_interleave.Tensor(Tensor repeats, *, int? output_size=None) -> Tensor")
      .facts("stored")
      .rule<interleave_positions_rule>()
      .make<interleave_positions>()
      .not_differentiable()
      .function_only()
      .doc("Each position i repeated repeats[i] times.");
  def("repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None) -> Tensor")
      .body<interleave_tensor>()
      .data_dependent()
      .doc("Each slice of self along `dim` repeated as often as repeats says; flattened without dim.");
  def("repeat_interleave.self_int(Tensor self, int repeats, int? dim=None, *, int? output_size=None) -> Tensor")
      .body<interleave_int>()
      .doc("Each slice of self along `dim` repeated; flattened without dim.");
  def("roll(Tensor self, int[1] shifts, int[1]? dims=None) -> Tensor")
      .facts("leaf stored")
      .body<roll>()
      .doc("self shifted along dimensions, what leaves one end entering at the other; flattened without dims.");
  def("flip(Tensor self, int[] dims) -> Tensor")
      .rule<flip_rule>()
      .computation<flip>(kRepeatCode)
      .gradient([](GradContext& c) { c.set(0, ops::flip(c.grad(), c.value<IntSpan>(1))); })
      .doc("A copy with the order reversed along the given dimensions.");
  def("fliplr(Tensor self) -> Tensor").body<fliplr>().doc("A copy reversed along dimension 1.");
  def("flipud(Tensor self) -> Tensor").body<flipud>().doc("A copy reversed along dimension 0.");
  def("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor")
      .facts("leaf")
      .body<rot90>()
      .doc("self turned by 90 degrees k times in the plane of two dimensions, from the first towards the second.");
}

} // namespace ts
