// Convolution on tiles of the float32 matrix product.
#ifndef TESSERACK_CPU_CONV_TILED_H
#define TESSERACK_CPU_CONV_TILED_H

#include "conv.h"

#include <tesserack/backend.hpp>

#include <optional>

namespace tesserack::cpu {

// The convolution, or the one that its gradient is, without input, bias and output, if its weight lies so that tiles
// can be computed: the gradient of the input is a convolution of the output's gradient, whose place is then `input`.
std::optional<TiledConv> as_tiled(onednn::Conv kind, const ConvGeometry& geometry, const backend::Tensor& weight);

// By the sums of the definition.
bool tiles_suit(onednn::Conv kind, const ConvGeometry& geometry);
void run_tiled(onednn::Conv kind, const TiledConv& conv);

// By fewer products. False if some result is not finite: what the definition gives is then to be computed by it.
bool winograd_suits(const ConvGeometry& geometry);
bool run_winograd(onednn::Conv kind, const TiledConv& conv);

// Plane by plane, for few channels: false if a result is not finite.
bool planes_suit(const ConvGeometry& geometry);
bool run_planes(onednn::Conv kind, const TiledConv& conv);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_CONV_TILED_H
