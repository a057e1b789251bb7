// Adaptive maxima with their places, and maxima put back where they were.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/nn/conv_shape.h"

namespace ts {
namespace {

using Two = std::tuple<Tensor, Tensor>;

// Window o of n covers floor(o * size / n) to ceil((o + 1) * size / n); shorter ones repeat their last position, which
// changes no maximum. Output-major.
struct Windows {
  std::vector<int64_t> at;
  int64_t width = 0;
  Windows(int64_t size, int64_t n) {
    auto begin = [&](int64_t o) { return o * size / n; };
    auto end = [&](int64_t o) { return ((o + 1) * size + n - 1) / n; };
    for (int64_t o = 0; o < n; ++o) width = std::max(width, end(o) - begin(o));
    for (int64_t o = 0; o < n; ++o)
      for (int64_t k = 0; k < width; ++k) at.push_back(std::min(begin(o) + k, end(o) - 1));
  }
};

// The elements at `indices` of each flattened plane: what is recorded keeps the indices, which nobody may change then.
Tensor taken(const Tensor& self, const Tensor& indices) {
  Tensor found = ops::gather(ops::flatten(self, int64_t{-2}), int64_t{-1}, ops::flatten(indices, int64_t{-2}));
  return as_laid_out(self, ops::reshape(found, indices.sizes()));
}

Two adaptive_max_pool2d_with_indices(const Tensor& input, IntSpan output_size) {
  const char* op = "adaptive_max_pool2d";
  const Tensor self = ops::detach(input);
  Dims n = per_dim(output_size, 2, op, "output_size");
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(self.dtype()) || !self.numel(), op, ": \"", op,
                "\" not implemented for '", self.dtype(), "'; expected a floating input");
  TS_CHECK(self.ndim() == 3 || self.ndim() == 4, op, ": Expected 3D or 4D tensor, but got ", self.sizes());
  TS_CHECK(self.size(-1) > 0 && self.size(-2) > 0 && (self.ndim() == 3 || self.size(-3) > 0), op,
           ": Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes());
  TS_CHECK(n[0] >= 0 && n[1] >= 0 && n[0] < int64_t{1} << 31 && n[1] < int64_t{1} << 31, op,
           ": elements of output_size must be greater than or equal to 0, but got ", output_size);
  Dims sizes(self.sizes().first(self.sizes().size() - 2));
  sizes.push_back(n[0]);
  sizes.push_back(n[1]);
  if (n[0] == 0 || n[1] == 0 || !self.numel()) {
    Tensor none = ops::narrow(ops::flatten(input), int64_t{0}, int64_t{0}, int64_t{0});
    return {ops::reshape(none, sizes), ops::zeros(sizes, DType::Int64, self.device())};
  }
  Windows rows(self.size(-2), n[0]), columns(self.size(-1), n[1]);
  Tensor x = ops::index_select(ops::index_select(self, int64_t{-2}, from_host(rows.at, self.device())), int64_t{-1},
                               from_host(columns.at, self.device()));
  int64_t planes = self.numel() / (self.size(-1) * self.size(-2)), taps = rows.width * columns.width;
  x = ops::permute(ops::reshape(x, Dims{planes, n[0], rows.width, n[1], columns.width}), Dims{0, 1, 3, 2, 4});
  Tensor tap = ops::max_dim.multi<2>(ops::reshape(x, Dims{planes, n[0], n[1], taps}), int64_t{-1})[1];
  std::vector<int64_t> places;
  for (int64_t r = 0; r < n[0]; ++r)
    for (int64_t c = 0; c < n[1]; ++c)
      for (int64_t k = 0; k < taps; ++k)
        places.push_back(rows.at[static_cast<size_t>(r * rows.width + k / columns.width)] * self.size(-1) +
                         columns.at[static_cast<size_t>(c * columns.width + k % columns.width)]);
  Tensor table = ops::expand(reshaped(from_host(places, self.device()), Dims{1, n[0], n[1], taps}),
                             Dims{planes, n[0], n[1], taps});
  Tensor at = ops::gather(table, int64_t{-1}, ops::unsqueeze(tap, int64_t{-1}));
  Tensor indices = as_laid_out(self, ops::reshape(at, sizes));
  return {taken(input, indices), indices};
}

Tensor max_unpool(const Tensor& self, const Tensor& indices, IntSpan output_size) {
  const char* op = "max_unpool";
  alert_not_deterministic(op);
  size_t spatial = output_size.size(), ndim = self.sizes().size();
  TS_CHECK(indices.dtype() == DType::Int64, op,
           ": elements in indices should be type int64 but got: ", indices.dtype());
  TS_CHECK(same(self.sizes(), indices.sizes()), op,
           ": Expected shape of indices to be same as that of the input "
           "tensor, ",
           self.sizes(), ", but got indices of shape ", indices.sizes());
  TS_CHECK(spatial >= 1 && (ndim == spatial + 1 || ndim == spatial + 2), op, ": expected an input of ", spatial + 1,
           " or ", spatial + 2, " dimensions, got ", self.sizes());
  Dims lead(self.sizes().first(ndim - spatial)), flat(lead), sizes(lead), given(lead);
  flat.push_back(checked_numel(output_size));
  given.push_back(checked_numel(self.sizes().last(spatial)));
  for (int64_t s : output_size) sizes.push_back(s);
  Tensor zeros = ops::zeros(flat, self.dtype(), self.device());
  Tensor filled = ops::scatter(zeros, int64_t{-1}, ops::reshape(indices, given), ops::reshape(self, given));
  return as_laid_out(self, ops::reshape(filled, sizes));
}

} // namespace

TS_OPERATORS(unpool) {
  def("adaptive_max_pool2d_with_indices(Tensor input, int[2] output_size) -> (Tensor, Tensor)")
      .body<adaptive_max_pool2d_with_indices>()
      .hidden()
      .function_only()
      .in("nn.functional")
      .doc("adaptive_max_pool2d, and where in the H * W plane each maximum was (int64).");
  def("max_unpool(Tensor input, Tensor indices, int[] output_size) -> Tensor")
      .facts("autocast:float32/-")
      .body<max_unpool>()
      .hidden()
      .function_only()
      .doc("Zeros of output_size after the leading dims, with input written at indices of the flattened plane.");
}

} // namespace ts
