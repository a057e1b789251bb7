// conv1d, conv2d, conv3d and their transposes, in the signatures of torch.nn.functional.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/nn/conv_shape.h"
#include <cstring>

namespace ts {
namespace {

const Op conv_layers_convolution_op("convolution"), conv_layers_backward_input_op("convolution_backward_input");

// (C, spatial...) is a batch of one. RuntimeError for other ranks.
Tensor batched(const Tensor& input, size_t n, const char* op) {
  size_t rank = input.sizes().size();
  TS_CHECK(rank == n + 1 || rank == n + 2, op, ": Expected ", n + 1, "D (unbatched) or ", n + 2,
           "D (batched) input, but got input of size: ", input.sizes());
  return rank == n + 2 ? input : ops::unsqueeze(input, int64_t{0});
}
Tensor unbatched_as(const Tensor& out, const Tensor& input) {
  return out.ndim() == input.ndim() ? out : ops::select(out, int64_t{0}, int64_t{0});
}

template <size_t N> const char* conv_name() { return N == 1 ? "conv1d" : N == 2 ? "conv2d" : "conv3d"; }
template <size_t N> const char* transpose_name() {
  return N == 1 ? "conv_transpose1d" : N == 2 ? "conv_transpose2d" : "conv_transpose3d";
}

template <size_t N>
Tensor conv(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
            IntSpan dilation, int64_t groups) {
  const char* op = conv_name<N>();
  TS_CHECK(weight.sizes().size() == N + 2, op, ": expected a ", N + 2,
           "D weight (out, in / groups, kernel...), got shape ", weight.sizes());
  if (input.sizes().size() == N + 2)
    return conv_layers_convolution_op(input, weight, bias, per_dim(stride, N, op, "stride"),
                                      per_dim(padding, N, op, "padding"), per_dim(dilation, N, op, "dilation"), groups);
  Tensor x = batched(input, N, op);
  return unbatched_as(conv_layers_convolution_op(x, weight, bias, per_dim(stride, N, op, "stride"),
                                                 per_dim(padding, N, op, "padding"),
                                                 per_dim(dilation, N, op, "dilation"), groups),
                      input);
}

// 'same' pads dilation * (kernel - 1) in all, the odd one at the end: pad both sides by the larger half and drop the
// first result where that is one too many.
template <size_t N>
Tensor conv_same(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan dilation,
                 int64_t groups) {
  const char* op = conv_name<N>();
  Dims steps = per_dim(stride, N, op, "stride"), dilations = per_dim(dilation, N, op, "dilation"), padding(N, 0);
  TS_CHECK(weight.sizes().size() == N + 2, op, ": expected a ", N + 2, "D weight, got shape ", weight.sizes());
  for (size_t d = 0; d < N; ++d) {
    TS_CHECK(steps[d] == 1, op, ": padding='same' is not supported for strided convolutions, got stride ", stride);
    TS_CHECK(dilations[d] > 0 && dilations[d] < int64_t{1} << 40, op, ": dilation should be greater than zero, got ",
             dilation);
    padding[d] = (dilations[d] * (weight.sizes()[d + 2] - 1) + 1) / 2;
  }
  Tensor x = batched(input, N, op);
  Tensor out = conv_layers_convolution_op(x, weight, bias, steps, padding, dilations, groups);
  for (size_t d = 0; d < N; ++d) {
    int64_t dim = static_cast<int64_t>(d) + 2, extra = out.size(dim) - x.size(dim);
    if (extra > 0) out = ops::narrow(out, dim, extra, x.size(dim));
  }
  return unbatched_as(out, input);
}

template <size_t N>
Tensor conv_named(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, const char* padding,
                  IntSpan dilation, int64_t groups) {
  if (std::strcmp(padding, "same") == 0) return conv_same<N>(input, weight, bias, stride, dilation, groups);
  TS_CHECK(std::strcmp(padding, "valid") == 0, conv_name<N>(), ": Invalid padding string: '", padding,
           "', should be one of 'valid', 'same'");
  int64_t none[] = {0};
  return conv<N>(input, weight, bias, stride, none, dilation, groups);
}

template <size_t N>
Dims transposed_sizes(IntSpan input, IntSpan weight, const ConvShape& s, IntSpan output_padding, const char* op) {
  TS_CHECK(weight.size() == N + 2, op, ": expected a ", N + 2, "D weight (in, out / groups, kernel...), got shape ",
           weight);
  TS_CHECK(input[1] == weight[0] && weight[0] % s.groups == 0, op, ": Given transposed=1, weight of size ", weight,
           ", expected input", input, " to have ", weight[0], " channels (a multiple of groups ", s.groups,
           "), but got ", input[1], " channels instead");
  Dims sizes = {input[0], weight[1] * s.groups};
  for (size_t d = 0; d < N; ++d) {
    TS_CHECK(output_padding[d] >= 0 && (output_padding[d] < s.stride[d] || output_padding[d] < s.dilation[d]), op,
             ": output padding must be smaller than either stride or dilation, but got output_padding ",
             output_padding[d], ", stride ", s.stride[d], ", dilation ", s.dilation[d]);
    __int128 size = static_cast<__int128>(input[d + 2] - 1) * s.stride[d] - 2 * s.padding[d] +
                    static_cast<__int128>(s.dilation[d]) * (weight[d + 2] - 1) + output_padding[d] + 1;
    TS_CHECK(size > 0 && size < (__int128{1} << 60), op, ": calculated output size ", static_cast<int64_t>(size),
             " in spatial dimension ", d, " is too small or too large for input ", input, " and weight ", weight);
    sizes.push_back(static_cast<int64_t>(size));
  }
  return sizes;
}

// Padding of the output by a stride or more makes room for positions that no input stands at: zeros.
Tensor with_positions_beyond(const Tensor& x, IntSpan sizes) {
  static const Op constant_pad_nd("constant_pad_nd");
  Dims pad;
  bool any = false;
  for (size_t d = sizes.size(); d-- > 2;) {
    pad.push_back(0);
    pad.push_back(sizes[d] - x.sizes()[d]);
    any = any || pad.back() > 0;
  }
  return any ? constant_pad_nd(x, pad, Scalar(0)) : x;
}

template <size_t N>
Tensor conv_transpose(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
                      IntSpan output_padding, int64_t groups, IntSpan dilation) {
  const char* op = transpose_name<N>();
  Tensor x = batched(input, N, op);
  ConvShape s = conv_shape(stride, padding, dilation, groups, N, op);
  Dims extra = per_dim(output_padding, N, op, "output_padding");
  Dims sizes = transposed_sizes<N>(x.sizes(), weight.sizes(), s, extra, op);
  x = with_positions_beyond(x, conv_output_sizes(sizes, weight.sizes(), s, op));
  Tensor out = conv_layers_backward_input_op(x, weight, sizes, s.stride, s.padding, s.dilation, groups);
  if (bias.defined()) {
    TS_CHECK(bias.ndim() == 1 && bias.numel() == sizes[1], op, ": expected bias to be 1-dimensional with ", sizes[1],
             " elements, but got bias of size ", bias.sizes());
    Dims per_channel(N + 1, 1);
    per_channel[0] = sizes[1];
    out = ops::add(out, ops::reshape(bias, per_channel));
  }
  return unbatched_as(out, input);
}

} // namespace

TS_OPERATORS(conv_layers) {
  constexpr const char* kConvDoc =
      "Convolution of input (N, in, spatial...) or (in, spatial...) with weight (out, in / groups, kernel...), plus "
      "bias (out). "
      "padding: numbers, 'valid' (none) or 'same' (output as large as the input, stride 1).";
  constexpr const char* kTransposeDoc = "Transposed convolution, the gradient of a convolution by its input: weight "
                                        "(in, out / groups, kernel...), bias (out).";
  def("conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] dilation=1, "
      "int groups=1) -> Tensor")
      .facts("autocast:lower")
      .body<conv<1>>()
      .in("nn.functional")
      .function_only()
      .doc(kConvDoc);
  def("conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, str padding='valid', int[1] "
      "dilation=1, int groups=1) -> Tensor")
      .body<conv_named<1>>()
      .in("nn.functional")
      .function_only()
      .doc(kConvDoc);
  def("conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, "
      "int groups=1) -> Tensor")
      .facts("autocast:lower")
      .body<conv<2>>()
      .in("nn.functional")
      .function_only()
      .doc(kConvDoc);
  def("conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, str padding='valid', int[2] "
      "dilation=1, int groups=1) -> Tensor")
      .body<conv_named<2>>()
      .in("nn.functional")
      .function_only()
      .doc(kConvDoc);
  def("conv3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] dilation=1, "
      "int groups=1) -> Tensor")
      .facts("autocast:lower")
      .body<conv<3>>()
      .in("nn.functional")
      .function_only()
      .doc(kConvDoc);
  def("conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, str padding='valid', int[3] "
      "dilation=1, int groups=1) -> Tensor")
      .body<conv_named<3>>()
      .in("nn.functional")
      .function_only()
      .doc(kConvDoc);
  def("conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] "
      "output_padding=0, int groups=1, int[1] dilation=1) -> Tensor")
      .facts("autocast:lower")
      .body<conv_transpose<1>>()
      .in("nn.functional")
      .function_only()
      .doc(kTransposeDoc);
  def("conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] "
      "output_padding=0, int groups=1, int[2] dilation=1) -> Tensor")
      .facts("autocast:lower")
      .body<conv_transpose<2>>()
      .in("nn.functional")
      .function_only()
      .doc(kTransposeDoc);
  def("conv_transpose3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] "
      "output_padding=0, int groups=1, int[3] dilation=1) -> Tensor")
      .facts("autocast:lower")
      .body<conv_transpose<3>>()
      .in("nn.functional")
      .function_only()
      .doc(kTransposeDoc);
}

} // namespace ts
