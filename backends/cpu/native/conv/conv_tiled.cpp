// Which convolutions tiles compute, and how their tensors lie for them.
#include "conv_tiled.h"
#include "isa_pick.h"
#include "matmul/matmul.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace tesserack::cpu {

// conv/conv_tiled.isa.cpp and conv_tiled_weight.cpp: none are taken without AVX2.
TS_ISA_FUNCTION(bool, tiled_conv_takes, (const ConvGeometry& geometry));
TS_ISA_FUNCTION(void, tiled_conv, (const TiledConv& conv));
TS_ISA_FUNCTION(bool, tiled_conv_weight_takes, (const ConvGeometry& geometry));
TS_ISA_FUNCTION(void, tiled_conv_weight, (const TiledConv& conv));
// conv/conv_winograd.isa.cpp and conv_winograd_weight.cpp, likewise.
TS_ISA_FUNCTION(bool, winograd_takes, (const ConvGeometry& geometry));
TS_ISA_FUNCTION(bool, winograd_conv, (const TiledConv& conv));
TS_ISA_FUNCTION(bool, winograd_conv_weight, (const TiledConv& conv));
// conv/conv_planes.isa.cpp and conv_planes_weight.cpp, likewise.
TS_ISA_FUNCTION(bool, planes_take, (const ConvGeometry& geometry));
TS_ISA_FUNCTION(bool, planes_conv, (const TiledConv& conv));
TS_ISA_FUNCTION(bool, planes_conv_weight, (const TiledConv& conv));

namespace {

using backend::Tensor;
using onednn::Conv;

// The distance between neighbouring taps of a weight, if all its taps lie evenly.
std::optional<int64_t> even_taps(const Tensor& weight) {
  int64_t step = 0, count = 1;
  for (int d = weight.ndim(); d-- > 2;) {
    if (weight.size(d) == 1) continue;
    if (step == 0) step = weight.stride(d);
    if (weight.stride(d) != step * count) return std::nullopt;
    count *= weight.size(d);
  }
  return step;
}

// The geometry of the convolution that maps the gradient of the output to the one of the input. Strides are 1.
ConvGeometry mirrored(const ConvGeometry& g) {
  ConvGeometry m = g;
  std::swap(m.in_channels, m.out_channels);
  for (int d = 0; d < 3; ++d) {
    std::swap(m.in[d], m.out[d]);
    m.padding[d] = g.dilation[d] * (g.kernel[d] - 1) - g.padding[d];
  }
  return m;
}

bool is_product(const ConvGeometry& g) { return g.is_pointwise() && g.groups == 1; }

// Such a convolution, or a gradient of it, as one matrix product.
void multiply(Conv kind, const TiledConv& t) {
  const auto bytes = [](float* data) { return reinterpret_cast<char*>(data); };
  const ConvGeometry& g = t.geometry;
  const int64_t positions = g.batch * g.positions();
  const Matrix input{bytes(t.input), g.in_channels, 1}, output{bytes(t.output), g.out_channels, 1};
  const Matrix weight{bytes(t.weight), t.weight_out, t.weight_in};
  if (kind == Conv::backward_weight) {
    const Matrix columns{output.data, 1, g.out_channels};
    return run_gemm({TS_FLOAT32, g.out_channels, g.in_channels, positions, columns, input, weight,
                     t.accumulate ? weight : Matrix{}});
  }
  run_gemm({TS_FLOAT32,
            positions,
            g.out_channels,
            g.in_channels,
            input,
            {weight.data, t.weight_in, t.weight_out},
            output,
            t.bias ? Matrix{bytes(t.bias), 0, 1} : Matrix{}});
}

} // namespace

std::optional<TiledConv> as_tiled(Conv kind, const ConvGeometry& g, const Tensor& weight) {
  if (weight.dtype() != TS_FLOAT32) return {};
  const std::optional<int64_t> tap = even_taps(weight);
  if (!tap) return {};
  TiledConv t{.geometry = g,
              .weight = reinterpret_cast<float*>(weight.bytes()),
              .weight_group = g.out_channels / g.groups * weight.stride(0),
              .weight_out = weight.stride(0),
              .weight_in = weight.stride(1),
              .weight_tap = *tap};
  if (kind == Conv::backward_input) {
    t.geometry = mirrored(g);
    for (int d = 0; d < 3; ++d)
      if (g.stride[d] != 1 || t.geometry.padding[d] < 0) return {};
    std::swap(t.weight_out, t.weight_in);
    t.weight += *tap * (g.kernel[0] * g.kernel[1] * g.kernel[2] - 1);
    t.weight_tap = -*tap;
  }
  return t;
}

bool winograd_suits(const ConvGeometry& geometry) {
  static const bool wanted = [] {
    const char* value = std::getenv("TESSERACK_CPU_WINOGRAD");
    return value == nullptr || std::strcmp(value, "0") != 0;
  }();
  return wanted && pick_winograd_takes()(geometry);
}

bool run_winograd(Conv kind, const TiledConv& conv) {
  return (kind == Conv::backward_weight ? pick_winograd_conv_weight() : pick_winograd_conv())(conv);
}

bool planes_suit(const ConvGeometry& geometry) { return pick_planes_take()(geometry); }

bool run_planes(Conv kind, const TiledConv& conv) {
  return (kind == Conv::backward_weight ? pick_planes_conv_weight() : pick_planes_conv())(conv);
}

bool tiles_suit(Conv kind, const ConvGeometry& g) {
  // With AVX-512 oneDNN's own kernels have not been beaten.
  if (onednn::is_built_in() && active_isa() == ISA_AVX512) return false;
  const auto takes = kind == Conv::backward_weight ? pick_tiled_conv_weight_takes() : pick_tiled_conv_takes();
  return g.channels_last && (is_product(g) || takes(g));
}

void run_tiled(Conv kind, const TiledConv& conv) {
  if (is_product(conv.geometry)) return multiply(kind, conv);
  (kind == Conv::backward_weight ? pick_tiled_conv_weight() : pick_tiled_conv())(conv);
}

} // namespace tesserack::cpu
