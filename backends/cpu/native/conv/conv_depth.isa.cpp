// Float32 convolution of channels apart from each other, in up to three dims: neighbouring positions of a row share a
// register. For what oneDNN has no kernel: each of its channels is a single row of a matrix product else.
#include "aligned_buffer.h"
#include "conv.h"
#include "math/simd_f32.h"
#include "pointwise/geometry.h"
#include "threads.h"
#include "winograd.h"

#include <algorithm>
#include <atomic>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool channelwise_conv(const ConvGeometry& geometry, const float* input, const float* weight, const float* bias,
                      float* output, bool mirrored);

#ifdef TESSERACK_CPU_SIMD_F32

namespace {

using simd::kLanes;
using simd::Vector;

constexpr int64_t kMost = 4;        // registers of a row's positions
constexpr int64_t kFits = 1 << 16;  // elements of padded input at once, if more than an output plane's
constexpr int64_t kGrain = 1 << 14; // multiply-adds worth a thread

// Input and output lie plane by plane; a weight that is `mirrored` is read from its last tap on.
class Channels {
public:
  Channels(const ConvGeometry& g, const float* input, const float* weight, const float* bias, float* output,
           bool mirrored)
      : g_(g), input_(input), weight_(weight), bias_(bias), output_(output), mirrored_(mirrored),
        taps_(g.kernel[0] * g.kernel[1] * g.kernel[2]), vectors_(ceil_div(g.out[2], kLanes)),
        phase_(vectors_ * kLanes + reach(2) / g.stride[2]), row_(phase_ * g.stride[2]),
        rows_((g.out[1] - 1) * g.stride[1] + reach(1) + 1),
        planes_(std::clamp<int64_t>((kFits / (rows_ * row_) - reach(0) - 1) / g.stride[0] + 1, 1, g.out[0])) {}

  // False if a result is not finite: zeros around the image do not take part in the definition.
  bool run() {
    const int64_t slabs = ceil_div(g_.out[0], planes_), work = planes_ * g_.out[1] * g_.out[2] * taps_;
    std::atomic<bool> finite = true;
    parallel_for(0, g_.batch * g_.in_channels * slabs, std::max<int64_t>(1, kGrain / work),
                 [&](int64_t job, int64_t last) {
                   AlignedBuffer buffer;
                   float* const padded = buffer.get(((planes_ - 1) * g_.stride[0] + reach(0) + 1) * rows_ * row_);
                   winograd::FiniteCheck check;
                   for (; job < last; ++job) slab(job / slabs, job % slabs * planes_, padded, check);
                   if (!check.passed()) finite = false;
                 });
    return finite;
  }

private:
  const ConvGeometry& g_;
  const float *input_, *weight_, *bias_;
  float* output_;
  bool mirrored_;
  int64_t taps_, vectors_, phase_, row_, rows_, planes_;

  // From the first input of an output position to its last one.
  int64_t reach(int d) const { return (g_.kernel[d] - 1) * g_.dilation[d]; }

  // Rows under output planes [top, top + count) with zeros around them; every stride-th element of a row lie together.
  void fill(const float* from, int64_t top, int64_t count, float* to) const {
    const int64_t stride = g_.stride[2], depth = (count - 1) * g_.stride[0] + reach(0) + 1;
    const int64_t first = top * g_.stride[0] - g_.padding[0];
    std::fill_n(to, depth * rows_ * row_, 0.0f);
    for (int64_t z = std::max<int64_t>(0, -first), end = std::min(depth, g_.in[0] - first); z < end; ++z)
      for (int64_t y = g_.padding[1], stop = std::min(rows_, g_.in[1] + g_.padding[1]); y < stop; ++y) {
        const float* const line = from + ((first + z) * g_.in[1] + y - g_.padding[1]) * g_.in[2] - g_.padding[2];
        float* const row = to + (z * rows_ + y) * row_;
        for (int64_t r = 0; r < stride; ++r) {
          const int64_t begin = std::max<int64_t>(0, ceil_div(g_.padding[2] - r, stride));
          const int64_t left = g_.in[2] + g_.padding[2] - r;
          const int64_t until = left <= 0 ? 0 : std::min(phase_, ceil_div(left, stride));
          if (stride == 1 && begin < until)
            std::copy(line + begin, line + until, row + begin);
          else
            for (int64_t i = begin; i < until; ++i) row[r * phase_ + i] = line[r + i * stride];
        }
      }
  }

  void slab(int64_t plane, int64_t top, float* padded, winograd::FiniteCheck& check) const {
    const int64_t count = std::min(planes_, g_.out[0] - top), many = g_.out_channels / g_.in_channels;
    fill(input_ + plane * g_.in_positions(), top, count, padded);
    for (int64_t k = 0; k < many; ++k) {
      const int64_t channel = plane % g_.in_channels * many + k;
      float* const output = output_ + (plane * many + k) * g_.positions();
      const float* const weight = weight_ + channel * taps_ + (mirrored_ ? taps_ - 1 : 0);
      for (int64_t z = 0; z < count; ++z)
        for (int64_t y = 0; y < g_.out[1]; ++y) {
          const float* const from = padded + (z * g_.stride[0] * rows_ + y * g_.stride[1]) * row_;
          float* const to = output + ((top + z) * g_.out[1] + y) * g_.out[2];
          int64_t v = 0;
          for (; v + kMost <= vectors_; v += kMost) sum<kMost>(from, v * kLanes, channel, weight, to, check);
          for (; v < vectors_; ++v) sum<1>(from, v * kLanes, channel, weight, to, check);
        }
    }
  }

  // Positions from x on of a row of output, as many as Width registers hold.
  template <int64_t Width>
  void sum(const float* from, int64_t x, int64_t channel, const float* weight, float* to,
           winograd::FiniteCheck& check) const {
    Vector sums[Width];
    for (int64_t v = 0; v < Width; ++v) sums[v] = bias_ ? simd::broadcast(bias_ + channel) : simd::zero();
    const int64_t next = mirrored_ ? -1 : 1, stride = g_.stride[2];
    for (int64_t kz = 0; kz < g_.kernel[0]; ++kz)
      for (int64_t ky = 0; ky < g_.kernel[1]; ++ky) {
        const float* const row = from + (kz * g_.dilation[0] * rows_ + ky * g_.dilation[1]) * row_ + x;
        for (int64_t kx = 0; kx < g_.kernel[2]; ++kx, weight += next) {
          const int64_t at = kx * g_.dilation[2];
          const float* const tap = stride == 1 ? row + at : row + at % stride * phase_ + at / stride;
          const Vector w = simd::broadcast(weight);
#pragma GCC unroll 4
          for (int64_t v = 0; v < Width; ++v) sums[v] = simd::fma(w, simd::load(tap + v * kLanes), sums[v]);
        }
      }
    const simd::Mask last = simd::first(std::min(kLanes, g_.out[2] - x - (Width - 1) * kLanes));
    for (int64_t v = 0; v < Width; ++v) {
      check.see(sums[v]);
      v + 1 < Width ? simd::store(to + x + v * kLanes, sums[v]) : simd::store(to + x + v * kLanes, sums[v], last);
    }
  }
};

} // namespace

bool channelwise_conv(const ConvGeometry& geometry, const float* input, const float* weight, const float* bias,
                      float* output, bool mirrored) {
  constexpr double kMostPadded = 1 << 22; // elements under one plane of output: dilation may ask for any number
  double padded = 1;
  for (int d = 0; d < 3; ++d)
    padded *= static_cast<double>(d == 0 ? 1 : geometry.out[d] * geometry.stride[d]) +
              static_cast<double>(geometry.kernel[d]) * static_cast<double>(geometry.dilation[d]);
  if (padded > kMostPadded) return false;
  return Channels(geometry, input, weight, bias, output, mirrored).run();
}

#else

bool channelwise_conv(const ConvGeometry&, const float*, const float*, const float*, float*, bool) { return false; }

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
