// Channels rearranged into pixels and back: pixel_shuffle, pixel_unshuffle, channel_shuffle.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"

namespace ts {
namespace {

Dims joined(IntSpan lead, std::initializer_list<int64_t> rest) {
  Dims sizes(lead);
  for (int64_t s : rest) sizes.push_back(s);
  return sizes;
}
// The leading dims as they are, then the others in the given order.
Tensor permuted(const Tensor& t, std::initializer_list<int64_t> rest) {
  int64_t lead = t.ndim() - static_cast<int64_t>(rest.size());
  Dims order;
  for (int64_t d = 0; d < lead; ++d) order.push_back(d);
  for (int64_t d : rest) order.push_back(lead + d);
  return ops::permute(t, order);
}

// New memory even where dimensions of size 1 would let a view do.
Tensor copied(const Tensor& t, IntSpan sizes) { return ops::view(ops::clone(t, MemoryFormat::Contiguous), sizes); }

// (..., C r r, H, W) to (..., C, H r, W r).
Tensor pixel_shuffle(const Tensor& self, int64_t r) {
  TS_CHECK(self.ndim() >= 3, "pixel_shuffle: expects input to have at least 3 dimensions, but got input with ",
           self.ndim(), " dimension(s)");
  TS_CHECK(r > 0, "pixel_shuffle: expects a positive upscale_factor, but got ", r);
  IntSpan lead = self.sizes().first(static_cast<size_t>(self.ndim() - 3));
  int64_t c = self.size(-3), h = self.size(-2), w = self.size(-1), area;
  TS_CHECK(!__builtin_mul_overflow(r, r, &area) && c % area == 0,
           "pixel_shuffle: expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
           "but input.size(-3)=",
           c, " is not divisible by ", r, " squared");
  Tensor split = ops::reshape(self, joined(lead, {c / area, r, r, h, w}));
  return as_laid_out(self, copied(permuted(split, {0, 3, 1, 4, 2}), joined(lead, {c / area, h * r, w * r})));
}

// (..., C, H r, W r) to (..., C r r, H, W).
Tensor pixel_unshuffle(const Tensor& self, int64_t r) {
  TS_CHECK(self.ndim() >= 3, "pixel_unshuffle: expects input to have at least 3 dimensions, but got input with ",
           self.ndim(), " dimension(s)");
  TS_CHECK(r > 0, "pixel_unshuffle: expects a positive downscale_factor, but got ", r);
  IntSpan lead = self.sizes().first(static_cast<size_t>(self.ndim() - 3));
  int64_t c = self.size(-3), h = self.size(-2), w = self.size(-1);
  TS_CHECK(h % r == 0 && w % r == 0,
           "pixel_unshuffle: expects height and width to be divisible by downscale_factor, but got ", h, " and ", w,
           " for ", r);
  Tensor split = ops::reshape(self, joined(lead, {c, h / r, r, w / r, r}));
  return as_laid_out(self, copied(permuted(split, {0, 2, 4, 1, 3}), joined(lead, {c * r * r, h / r, w / r})));
}

// Channels read as (groups, C / groups) and written the other way round.
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TS_CHECK(self.ndim() >= 3, "channel_shuffle: expects input with > 2 dims, but got input with sizes ", self.sizes());
  TS_CHECK(groups > 0 && self.sizes()[1] % groups == 0,
           "channel_shuffle: number of groups to divide channels in must be positive and divide them. Value of "
           "groups:",
           groups, ", channels:", self.sizes()[1]);
  Dims split(self.sizes());
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  return as_laid_out(self, copied(ops::transpose(ops::reshape(self, split), int64_t{1}, int64_t{2}), self.sizes()));
}

} // namespace

TS_OPERATORS(shuffle) {
  def("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")
      .facts("leaf stored:none")
      .body<pixel_shuffle>()
      .function_only()
      .in("nn.functional")
      .doc("(..., C r r, H, W) rearranged to (..., C, H r, W r).");
  def("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor")
      .facts("leaf stored:none")
      .body<pixel_unshuffle>()
      .function_only()
      .in("nn.functional")
      .doc("(..., C, H r, W r) rearranged to (..., C r r, H, W).");
  def("channel_shuffle(Tensor self, int groups) -> Tensor")
      .facts("leaf stored:none")
      .body<channel_shuffle>()
      .function_only()
      .in("nn.functional")
      .doc("Channels (dim 1) in groups, taken one from each group in turn.");
}

} // namespace ts
