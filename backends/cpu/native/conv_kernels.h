// Own convolution on tiles of the float32 matrix product.
#ifndef TESSERACK_CPU_CONV_KERNELS_H
#define TESSERACK_CPU_CONV_KERNELS_H

#include "conv.h"
#include "isa_pick.h"

namespace tesserack::cpu {

// Whether tiles suit (native/isa/conv_tiled.cpp): never without AVX2.
TS_ISA_FUNCTION(bool, tiled_conv_takes, (const ConvGeometry& geometry));
TS_ISA_FUNCTION(void, tiled_conv, (const TiledConv& conv));

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_CONV_KERNELS_H
