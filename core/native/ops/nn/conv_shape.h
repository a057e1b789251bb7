// Geometry of convolutions: parameters given once or per dimension, output sizes, windows of a padded input.
#pragma once
#include "tensor/geometry.h"
#include <span>

namespace ts {

struct ConvShape {
  Dims stride, padding, dilation; // one element per spatial dim
  int64_t groups = 1;
};

// A single number stands for every spatial dim. RuntimeError naming op and argument otherwise.
Dims per_dim(IntSpan values, size_t n, const char* op, const char* argument);
// Validated parameters; strides and dilations are positive.
ConvShape conv_shape(IntSpan stride, IntSpan padding, IntSpan dilation, int64_t groups, size_t n, const char* op);
// Sizes (N, O, spatial...) of convolution(input, weight). RuntimeError when the shapes do not fit.
Dims conv_output_sizes(IntSpan input, IntSpan weight, const ConvShape& s, const char* op);

// A zero-padded contiguous copy of the spatial dims (those after the first two).
Tensor padded_copy(const Tensor& input, const ConvShape& s, double fill);
// The padded input as windows (N, C, kernel..., output...): overlapping, strides only.
Tensor window_view(const Tensor& padded, const ConvShape& s, IntSpan kernel, IntSpan output);
// The inverse of window_view as a sum: (N, C, kernel..., output...) added up into the input's sizes.
Tensor sum_windows(const Tensor& windows, const ConvShape& s, IntSpan kernel, IntSpan input_sizes);
void sum_windows_into(const Tensor& out, const Tensor& windows, const ConvShape& s, IntSpan kernel);

} // namespace ts
