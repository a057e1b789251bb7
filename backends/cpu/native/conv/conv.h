// What the three convolution kernels share: the geometry, and the fallback by im2col.
#ifndef TESSERACK_CPU_CONV_H
#define TESSERACK_CPU_CONV_H

#include <cstdint>

#include "matmul/onednn.h"

namespace tesserack::cpu {

// Sizes of the forward convolution; missing spatial dimensions stand as size 1 in front.
struct ConvGeometry {
  int spatial;
  bool channels_last;
  int64_t batch, in_channels, out_channels, groups;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];

  int64_t positions() const { return out[0] * out[1] * out[2]; }
  int64_t in_positions() const { return in[0] * in[1] * in[2]; }
  // Whether every output position is one input position times the weight.
  bool is_pointwise() const {
    for (int d = 0; d < 3; ++d)
      if (kernel[d] != 1 || stride[d] != 1 || padding[d] != 0) return false;
    return true;
  }
  int64_t patch() const { return in_channels / groups * kernel[0] * kernel[1] * kernel[2]; }
};

// Dense tensors of the forward convolution in float32 or float64; the one of `kind` is written.
struct ConvTensors {
  char *input, *weight, *bias, *output;
};

// Dense input and output in one layout; the weight with any strides, in elements: between groups, output channels,
// input channels, and neighbouring taps. A gradient of the weight is written, or added to it.
struct TiledConv {
  ConvGeometry geometry;
  float *input = nullptr, *weight, *bias = nullptr, *output = nullptr; // no bias: NULL
  int64_t weight_group, weight_out, weight_in, weight_tap;
  bool accumulate = false;
};

void conv_by_gemm(onednn::Conv kind, const ConvGeometry& geometry, int32_t dtype, const ConvTensors& tensors);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_CONV_H
