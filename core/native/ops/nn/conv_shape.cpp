#include "ops/nn/conv_shape.h"
#include "dispatch/op_handles.h"
#include "ops/common/raw.h"
#include <algorithm>

namespace ts {
namespace {

Dims padded_sizes(IntSpan input, const ConvShape& s) {
  Dims sizes(input);
  for (size_t d = 0; d < s.padding.size(); ++d) {
    int64_t& size = sizes[d + 2];
    TS_CHECK(!__builtin_add_overflow(size, 2 * s.padding[d], &size), "convolution: padded size of ", input,
             " overflows");
  }
  return sizes;
}

// The part of a padded tensor that the input fills.
Tensor interior(const Tensor& padded, const ConvShape& s, IntSpan sizes) {
  int64_t offset = 0;
  for (size_t d = 0; d < s.padding.size(); ++d) offset += s.padding[d] * padded.strides()[d + 2];
  return alias(padded, sizes, padded.strides(), padded->byte_offset + offset * padded.item_size());
}

// The elements of a padded tensor that one kernel position meets, (N, C, output...).
Tensor tap(const Tensor& padded, const ConvShape& s, IntSpan position, IntSpan output) {
  Dims sizes(padded.sizes()), strides(padded.strides());
  int64_t offset = 0;
  for (size_t d = 0; d < output.size(); ++d) {
    offset += position[d] * s.dilation[d] * padded.strides()[d + 2];
    sizes[d + 2] = output[d];
    strides[d + 2] *= s.stride[d];
  }
  return alias(padded, sizes, strides, padded->byte_offset + offset * padded.item_size());
}

// The slice of (N, C, kernel..., output...) at one kernel position.
Tensor slice_of(const Tensor& windows, IntSpan position) {
  size_t n = position.size();
  Dims sizes(windows.sizes().first(2)), strides(windows.strides().first(2));
  int64_t offset = 0;
  for (size_t d = 0; d < n; ++d) {
    offset += position[d] * windows.strides()[2 + d];
    sizes.push_back(windows.sizes()[2 + n + d]);
    strides.push_back(windows.strides()[2 + n + d]);
  }
  return alias(windows, sizes, strides, windows->byte_offset + offset * windows.item_size());
}

bool advance(Dims& position, IntSpan limits) {
  for (size_t d = position.size(); d-- > 0;) {
    if (++position[d] < limits[d]) return true;
    position[d] = 0;
  }
  return false;
}

} // namespace

Dims per_dim(IntSpan values, size_t n, const char* op, const char* argument) {
  if (values.size() == 1) return Dims(n, values[0]);
  TS_CHECK(values.size() == n, op, ": expected ", argument, " to be a single integer value or a list of ", n,
           " values, but got ", values);
  return Dims(values);
}

ConvShape conv_shape(IntSpan stride, IntSpan padding, IntSpan dilation, int64_t groups, size_t n, const char* op) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  ConvShape s{per_dim(stride, n, op, "stride"), per_dim(padding, n, op, "padding"),
              per_dim(dilation, n, op, "dilation"), groups};
  for (size_t d = 0; d < n; ++d) {
    TS_CHECK(s.stride[d] > 0 && s.stride[d] < kLimit, op, ": non-positive or too large stride is not supported, got ",
             stride);
    TS_CHECK(s.dilation[d] > 0 && s.dilation[d] < kLimit, op, ": dilation should be greater than zero, got ", dilation);
    TS_CHECK(s.padding[d] >= 0 && s.padding[d] < kLimit, op, ": negative or too large padding is not supported, got ",
             padding);
  }
  TS_CHECK(groups > 0, op, ": expected groups to be a positive number, got ", groups);
  return s;
}

Dims conv_output_sizes(IntSpan input, IntSpan weight, const ConvShape& s, const char* op) {
  TS_CHECK(weight.size() == input.size() && input.size() >= 3 && input.size() <= 5, op,
           ": expected an input (N, C, spatial...) and a weight of as many dimensions, got shapes ", input, " and ",
           weight);
  TS_CHECK(weight[0] % s.groups == 0 && weight[0] >= s.groups, op, ": expected weight to be at least ", s.groups,
           " at dimension 0, and divisible by groups ", s.groups, ", got weight of shape ", weight);
  TS_CHECK(input[1] == weight[1] * s.groups, op, ": Given groups=", s.groups, ", weight of size ", weight,
           ", expected input", input, " to have ", weight[1] * s.groups, " channels, but got ", input[1],
           " channels instead");
  Dims out = {input[0], weight[0]};
  for (size_t d = 0; d < s.stride.size(); ++d) {
    int64_t kernel = weight[d + 2], room = input[d + 2] + 2 * s.padding[d], reach = 0;
    TS_CHECK(kernel > 0, op, ": expected a kernel of positive sizes, got weight of shape ", weight);
    TS_CHECK(!__builtin_mul_overflow(s.dilation[d], kernel - 1, &reach) && reach < room, op,
             ": Calculated padded input size (", room, ") is smaller than the kernel's reach (", s.dilation[d], " * (",
             kernel, " - 1) + 1) in spatial dimension ", d, ": Kernel size can't be greater than actual input size");
    out.push_back((room - reach - 1) / s.stride[d] + 1);
  }
  return out;
}

Tensor padded_copy(const Tensor& input, const ConvShape& s, double fill) {
  Tensor padded = filled(padded_sizes(input.sizes(), s),
                         is_floating(input.dtype()) ? Scalar(fill) : Scalar(static_cast<int64_t>(fill)), input.dtype(),
                         input.device());
  raw_copy(interior(padded, s, input.sizes()), input);
  return padded;
}

Tensor window_view(const Tensor& padded, const ConvShape& s, IntSpan kernel, IntSpan output) {
  Dims sizes(padded.sizes().first(2)), strides(padded.strides().first(2));
  for (size_t d = 0; d < kernel.size(); ++d) {
    sizes.push_back(kernel[d]);
    strides.push_back(padded.strides()[d + 2] * s.dilation[d]);
  }
  for (size_t d = 0; d < output.size(); ++d) {
    sizes.push_back(output[d]);
    strides.push_back(padded.strides()[d + 2] * s.stride[d]);
  }
  return alias(padded, sizes, strides, padded->byte_offset);
}

Tensor sum_windows(const Tensor& windows, const ConvShape& s, IntSpan kernel, IntSpan input_sizes) {
  Tensor out = empty_tensor(input_sizes, windows.dtype(), windows.device());
  if (out.numel()) sum_windows_into(out, windows, s, kernel);
  return out;
}

void sum_windows_into(const Tensor& out, const Tensor& windows, const ConvShape& s, IntSpan kernel) {
  const DType wide = accumulate_type(windows); // halves are added up in float32
  bool as_is = out.dtype() == wide && std::ranges::all_of(s.padding, [](int64_t p) { return p == 0; });
  Tensor padded = as_is ? out : empty_tensor(padded_sizes(out.sizes(), s), wide, windows.device());
  raw_fill(padded, 0);
  Dims output(windows.sizes().last(kernel.size())), position(kernel.size(), 0);
  if (windows.numel()) {
    do ops::add_(tap(padded, s, position, output), slice_of(windows, position));
    while (advance(position, kernel));
  }
  if (!as_is) raw_copy(out, interior(padded, s, out.sizes()));
}

} // namespace ts
