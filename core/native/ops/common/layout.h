// The two layouts of images that kernels take: (N, C, ...) contiguous, and with the channels innermost.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// The format that PyTorch takes over from a tensor: channels last also where the elements have gaps, and not where the
// strides could be either.
MemoryFormat suggested_format(IntSpan sizes, IntSpan strides);
// Whether what is made of t has its channels innermost: by its suggested format, or where it lies so and not by rows.
bool is_channels_last(const Tensor& t);
// Whether t is in that of the two layouts, without gaps.
bool lies_in_layout(const Tensor& t, bool channels_last);
// t in one of the two layouts; a copy where it is in neither, or in the other.
Tensor in_layout(const Tensor& t, bool channels_last);
// `result`, recorded, in the layout of `like`: a copy where that has its channels innermost and the result has not.
Tensor as_laid_out(const Tensor& like, const Tensor& result);
// A result in outline.
Tensor outline_in_layout(IntSpan sizes, DType dtype, Device device, bool channels_last);

} // namespace ts
