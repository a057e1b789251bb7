// Convolution on tiles of the float32 matrix product, for channels-last images.
#ifndef TESSERACK_CPU_CONV_TILED_H
#define TESSERACK_CPU_CONV_TILED_H

#include "conv.h"

#include <tesserack/backend.hpp>

#include <optional>

namespace tesserack::cpu {

// The convolution, or the one that its gradient is, without input, bias and output, if tiles suit it: the gradient of
// the input is a convolution of the output's gradient, whose place is then `input`.
std::optional<TiledConv> as_tiled(onednn::Conv kind, const ConvGeometry& geometry, const backend::Tensor& weight);

void run_tiled(onednn::Conv kind, const TiledConv& conv);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_CONV_TILED_H
