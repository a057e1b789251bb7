// Values of planes and blocks at places between their elements, where a backend has the kernel; the package decomposes
// otherwise, and for second derivatives.
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "runtime/empty.h"

namespace ts {
namespace {

const char* const kGridSampleName = "grid_sample";

void grid_sample_check_arguments(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding) {
  check_same_dtype(input, grid, kGridSampleName);
  TS_CHECK(is_floating(input.dtype()), kGridSampleName, ": expected floating tensors, got ", input.dtype());
  TS_CHECK((input.ndim() == 4 || input.ndim() == 5) && grid.ndim() == input.ndim() && grid.size(0) == input.size(0) &&
               grid.size(-1) == input.ndim() - 2,
           kGridSampleName,
           ": expected input (N, C, H, W) with grid (N, h, w, 2), or (N, C, D, H, W) with (N, d, h, w, 3), got ",
           input.sizes(), " and ", grid.sizes());
  for (int64_t d = 2; d < input.ndim(); ++d)
    TS_CHECK(input.size(d) > 0, kGridSampleName, ": expected input to have non-empty spatial dimensions, got ",
             input.sizes());
  TS_CHECK(mode >= 0 && mode <= (input.ndim() == 4 ? 2 : 1), kGridSampleName, ": unknown mode ", mode, " of ",
           input.ndim() - 2, " dims");
  TS_CHECK(padding >= 0 && padding <= 2, kGridSampleName, ": unknown padding mode ", padding);
}
Dims result_sizes(const Tensor& input, const Tensor& grid) {
  Dims sizes{input.size(0), input.size(1)};
  for (int64_t d = 1; d + 1 < grid.ndim(); ++d) sizes.push_back(grid.size(d));
  return sizes;
}

Tensor grid_sample_forward_rule(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool) {
  grid_sample_check_arguments(input, grid, mode, padding);
  return outline(result_sizes(input, grid), input.dtype(), input.device());
}
using Two = std::tuple<Tensor, Tensor>;
Two grid_sample_backward_rule(const Tensor& grad, const Tensor& input, const Tensor& grid, int64_t mode,
                              int64_t padding, bool) {
  grid_sample_check_arguments(input, grid, mode, padding);
  check_same_dtype(input, grad, kGridSampleName);
  Dims sizes = result_sizes(input, grid);
  TS_CHECK(same(grad.sizes(), sizes), kGridSampleName, ": expected a gradient of shape ", sizes.span(), ", got ",
           grad.sizes());
  return {outline(input.sizes(), input.dtype(), input.device()), outline(grid.sizes(), grid.dtype(), grid.device())};
}
} // namespace

TS_OPERATORS(grid_sample) {
  def("_grid_sample(Tensor input, Tensor grid, int mode, int padding, bool align_corners) -> Tensor")
      .facts("autocast:float32/widest")
      .rule<grid_sample_forward_rule>()
      .kernel("grid_sample", "input grid: contiguous", "mode, padding, align_corners")
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("nn.functional.grid_sample without a gradient of its own. Modes: 0 linear, 1 nearest, 2 cubic; paddings: 0 "
           "zeros, 1 border, 2 reflection.");
  def("_grid_sample_backward(Tensor grad, Tensor input, Tensor grid, int mode, int padding, bool align_corners) -> "
      "(Tensor, Tensor)")
      .rule<grid_sample_backward_rule>()
      .kernel("grid_sample_backward", "grad input grid: contiguous", "mode, padding, align_corners")
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("The gradients of grid_sample by input and by grid.");
}

} // namespace ts
