// Convolution as matrix products over patches, some output positions at a time so that patches stay in the cache.
#include "conv.h"
#include "dtype_switch.h"
#include "isa_pick.h"
#include "matmul/matmul.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {

// conv/conv_depth.isa.cpp: false, and the output is anything, without AVX2 and where a result is not finite.
TS_ISA_FUNCTION(bool, channelwise_conv,
                (const ConvGeometry& geometry, const float* input, const float* weight, const float* bias,
                 float* output, bool mirrored));

namespace {

constexpr int64_t kPatchElements = 1 << 18; // of one block of patches
constexpr int64_t kGatherGrain = 1 << 15;   // elements worth a thread

template <class T> class ByPatches {
public:
  ByPatches(const ConvGeometry& geometry, int32_t dtype, const ConvTensors& tensors)
      : g_(geometry), dtype_(dtype), t_(tensors), patch_(g_.patch()), positions_(g_.positions()),
        in_group_(g_.in_channels / g_.groups), out_group_(g_.out_channels / g_.groups), direct_(g_.is_pointwise()) {
    block_ = direct_ ? positions_
                     : std::clamp<int64_t>(kPatchElements / std::max<int64_t>(1, patch_), 16,
                                           std::max<int64_t>(16, positions_));
    in_channel_ = g_.channels_last ? 1 : g_.in_positions();
    in_position_ = g_.channels_last ? g_.in_channels : 1;
    out_channel_ = g_.channels_last ? 1 : positions_;
    out_position_ = g_.channels_last ? g_.out_channels : 1;
    step_ = g_.stride[2] * in_position_;
  }

  void run(onednn::Conv kind) {
    // A weight's gradient is a sum over the images.
    const int64_t jobs = kind == onednn::Conv::backward_weight ? g_.groups : g_.batch * g_.groups;
    const auto range = [&](int64_t begin, int64_t end) {
      std::vector<T> patches(direct_ ? 0 : static_cast<size_t>(patch_ * block_));
      for (int64_t job = begin; job < end; ++job) {
        if (kind == onednn::Conv::forward)
          forward(job / g_.groups, job % g_.groups, patches);
        else if (kind == onednn::Conv::backward_input)
          backward_input(job / g_.groups, job % g_.groups, patches);
        else
          backward_weight(job, patches);
      }
    };
    // Few jobs share threads inside each product instead.
    jobs < max_threads() ? range(0, jobs) : parallel_for(0, jobs, 1, range);
  }

private:
  const ConvGeometry& g_;
  int32_t dtype_;
  const ConvTensors& t_;
  int64_t patch_, positions_, in_group_, out_group_, block_;
  bool direct_;                                                   // the input itself is what patches would be
  int64_t in_channel_, in_position_, out_channel_, out_position_; // strides
  int64_t step_;                                                  // between inputs of neighbouring output columns

  T* input(int64_t image, int64_t group) const {
    return reinterpret_cast<T*>(t_.input) + image * g_.in_channels * g_.in_positions() +
           group * in_group_ * in_channel_;
  }
  Matrix weight(int64_t group) const {
    return {t_.weight + group * out_group_ * patch_ * static_cast<int64_t>(sizeof(T)), patch_, 1};
  }
  Matrix output(int64_t image, int64_t group, int64_t position) const {
    T* data = reinterpret_cast<T*>(t_.output) + image * g_.out_channels * positions_ +
              group * out_group_ * out_channel_ + position * out_position_;
    return {reinterpret_cast<char*>(data), out_channel_, out_position_};
  }
  Matrix input_matrix(int64_t image, int64_t group) const {
    return {reinterpret_cast<char*>(input(image, group)), in_channel_, in_position_};
  }
  static Matrix matrix(std::vector<T>& data, int64_t row_stride, int64_t col_stride) {
    return {reinterpret_cast<char*>(data.data()), row_stride, col_stride};
  }
  static Matrix transposed(const Matrix& m) { return {m.data, m.col_stride, m.row_stride}; }

  // c (rows, cols) = a @ b + addend; a column-major c is computed as its transpose.
  void product(int64_t rows, int64_t cols, int64_t depth, const Matrix& a, const Matrix& b, const Matrix& c,
               const Matrix& addend) const {
    if (c.col_stride == 1 || c.row_stride != 1) return run_gemm({dtype_, rows, cols, depth, a, b, c, addend});
    run_gemm({dtype_, cols, rows, depth, transposed(b), transposed(a), transposed(c), transposed(addend)});
  }

  void forward(int64_t image, int64_t group, std::vector<T>& patches) const {
    Matrix bias{};
    if (t_.bias) bias = {t_.bias + group * out_group_ * static_cast<int64_t>(sizeof(T)), 1, 0};
    if (direct_)
      return product(out_group_, positions_, patch_, weight(group), input_matrix(image, group), output(image, group, 0),
                     bias);
    for (int64_t p = 0; p < positions_; p += block_) {
      const int64_t count = std::min(block_, positions_ - p);
      gather(input(image, group), p, count, patches.data());
      product(out_group_, count, patch_, weight(group), matrix(patches, count, 1), output(image, group, p), bias);
    }
  }

  void backward_input(int64_t image, int64_t group, std::vector<T>& patches) const {
    if (direct_)
      return product(patch_, positions_, out_group_, transposed(weight(group)), output(image, group, 0),
                     input_matrix(image, group), {});
    T* target = input(image, group);
    for (int64_t i = 0; i < g_.in_positions(); ++i)
      for (int64_t c = 0; c < in_group_; ++c) target[i * in_position_ + c * in_channel_] = T{0};
    for (int64_t p = 0; p < positions_; p += block_) {
      const int64_t count = std::min(block_, positions_ - p);
      product(patch_, count, out_group_, transposed(weight(group)), output(image, group, p), matrix(patches, count, 1),
              {});
      for (int64_t row = 0; row < patch_; ++row) {
        const T* from = patches.data() + row * count;
        each_run(row, p, count, [&](int64_t col, int64_t to, int64_t length) {
          for (int64_t i = 0; i < length; ++i) target[to + i * step_] += from[col + i];
        });
      }
    }
  }

  void backward_weight(int64_t group, std::vector<T>& patches) const {
    const Matrix sum = weight(group);
    for (int64_t image = 0; image < g_.batch; ++image) {
      if (direct_) {
        product(out_group_, patch_, positions_, output(image, group, 0), transposed(input_matrix(image, group)), sum,
                image == 0 ? Matrix{} : sum);
        continue;
      }
      for (int64_t p = 0; p < positions_; p += block_) {
        const int64_t count = std::min(block_, positions_ - p);
        gather(input(image, group), p, count, patches.data());
        product(out_group_, patch_, count, output(image, group, p), matrix(patches, 1, count), sum,
                image == 0 && p == 0 ? Matrix{} : sum);
      }
    }
  }

  // The patches of output positions first .. first + count - 1: a row for each element of a patch.
  void gather(const T* from, int64_t first, int64_t count, T* patches) const {
    parallel_for(0, patch_, std::max<int64_t>(1, kGatherGrain / count), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* to = patches + row * count;
        std::fill(to, to + count, T{0}); // what stays so is padding
        each_run(row, first, count, [&](int64_t col, int64_t at, int64_t length) {
          if (step_ == 1) return static_cast<void>(std::copy_n(from + at, length, to + col));
          for (int64_t i = 0; i < length; ++i) to[col + i] = from[at + i * step_];
        });
      }
    });
  }

  // f(column, input offset, length) for the runs of a row of patches inside the input; elements lie step_ apart.
  template <class F> void each_run(int64_t row, int64_t first, int64_t count, const F& f) const {
    const int64_t kw = row % g_.kernel[2], kh = row / g_.kernel[2] % g_.kernel[1];
    const int64_t kd = row / g_.kernel[2] / g_.kernel[1] % g_.kernel[0];
    const int64_t channel = row / g_.kernel[2] / g_.kernel[1] / g_.kernel[0] * in_channel_;
    int64_t ow = first % g_.out[2], oh = first / g_.out[2] % g_.out[1], od = first / g_.out[2] / g_.out[1];
    for (int64_t col = 0; col < count;) {
      const int64_t d = od * g_.stride[0] - g_.padding[0] + kd * g_.dilation[0];
      const int64_t h = oh * g_.stride[1] - g_.padding[1] + kh * g_.dilation[1];
      const int64_t w = ow * g_.stride[2] - g_.padding[2] + kw * g_.dilation[2];
      const int64_t here = std::min(g_.out[2] - ow, count - col);
      if (d >= 0 && d < g_.in[0] && h >= 0 && h < g_.in[1]) {
        const int64_t begin = std::min(here, steps_to(-w)), end = std::min(here, steps_to(g_.in[2] - w));
        const int64_t line = channel + (d * g_.in[1] + h) * g_.in[2] * in_position_;
        if (begin < end) f(col + begin, line + (w + begin * g_.stride[2]) * in_position_, end - begin);
      }
      col += here;
      ow = 0;
      if (++oh == g_.out[1]) oh = 0, ++od;
    }
  }

  // Output columns until the input is `distance` further on.
  int64_t steps_to(int64_t distance) const { return distance <= 0 ? 0 : (distance + g_.stride[2] - 1) / g_.stride[2]; }
};

// Channels apart from each other; the gradient of the input is such a convolution of the gradient.
bool conv_by_channel(onednn::Conv kind, const ConvGeometry& g, const ConvTensors& t) {
  constexpr int64_t kMostOutputs = 8; // of an input channel: from there on a product reads patches less often
  if (kind == onednn::Conv::backward_weight || g.groups == 1 || g.groups != g.in_channels || g.channels_last ||
      g.out_channels > kMostOutputs * g.in_channels)
    return false;
  const auto floats = [](char* data) { return reinterpret_cast<float*>(data); };
  if (kind == onednn::Conv::forward)
    return pick_channelwise_conv()(g, floats(t.input), floats(t.weight), floats(t.bias), floats(t.output), false);
  if (g.out_channels != g.in_channels) return false;
  ConvGeometry turned = g;
  for (int d = 0; d < 3; ++d) {
    turned.in[d] = g.out[d], turned.out[d] = g.in[d];
    turned.padding[d] = g.dilation[d] * (g.kernel[d] - 1) - g.padding[d];
    if (g.stride[d] != 1 || turned.padding[d] < 0) return false;
  }
  return pick_channelwise_conv()(turned, floats(t.output), floats(t.weight), nullptr, floats(t.input), true);
}

} // namespace

void conv_by_gemm(onednn::Conv kind, const ConvGeometry& geometry, int32_t dtype, const ConvTensors& tensors) {
  if (dtype == TS_FLOAT64) {
    ByPatches<double>(geometry, dtype, tensors).run(kind);
  } else if (!conv_by_channel(kind, geometry, tensors)) {
    ByPatches<float>(geometry, dtype, tensors).run(kind);
  }
}

} // namespace tesserack::cpu
