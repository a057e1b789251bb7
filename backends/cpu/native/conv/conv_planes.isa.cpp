// Forward convolution of planes, and the gradient of the input, which is one: see conv_planes.h.
#include "conv_planes.h"
#include "threads.h"
#include "winograd.h"

#include <atomic>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool planes_take(const ConvGeometry& geometry);
bool planes_conv(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace planes {
namespace {

constexpr int kMostChannels = simd::kRegisters / 4; // of output, side by side: two registers of sums for each
constexpr int64_t kFits = 1 << 14;                  // elements of a band of input

// Registers of a row's positions side by side, for so many channels of output.
constexpr int registers(int channels) { return channels <= 2 ? 4 : 2; }

class Convolution {
public:
  explicit Convolution(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), padded_(g_), taps_(g_.in_channels * g_.kernel[1] * g_.kernel[2]),
        rows_(padded_.rows_within(kFits)), bands_(ceil_div(g_.out[1], rows_)),
        weights_(buffer_.get(g_.out_channels * taps_)) {
    each_strip(g_.out_channels, kMostChannels, [&](int64_t first, int64_t channels) { pack(first, channels); });
  }

  // False if a result is not finite: zeros around the image do not take part in the definition.
  bool run() {
    parallel_for(0, g_.batch * bands_, 1, [&](int64_t begin, int64_t end) {
      AlignedBuffer buffer;
      float* const band = buffer.get(padded_.elements(rows_));
      winograd::FiniteCheck check;
      for (int64_t i = begin; i < end; ++i) multiply(i / bands_, i % bands_ * rows_, band, check);
      if (!check.passed()) finite_ = false;
    });
    return finite_;
  }

private:
  const TiledConv& t_;
  const ConvGeometry& g_;
  Padded padded_;
  int64_t taps_, rows_, bands_;
  AlignedBuffer buffer_;
  float* weights_; // by strips of output channels, which are innermost
  std::atomic<bool> finite_ = true;

  void pack(int64_t first, int64_t channels) const {
    float* to = weights_ + first * taps_;
    for (int64_t c = 0; c < g_.in_channels; ++c)
      for (int64_t p = 0; p < g_.kernel[1] * g_.kernel[2]; ++p)
        for (int64_t o = first; o < first + channels; ++o)
          *to++ = t_.weight[o * t_.weight_out + c * t_.weight_in + p * t_.weight_tap];
  }

  void multiply(int64_t image, int64_t top, float* band, winograd::FiniteCheck& check) const {
    const int64_t rows = std::min(rows_, g_.out[1] - top), plane = g_.out[1] * g_.out[2];
    padded_.fill(t_.input + image * g_.in_channels * g_.in[1] * g_.in[2], top, rows, band);
    each_strip(g_.out_channels, kMostChannels, [&](int64_t first, int64_t channels) {
      float* const output = t_.output + (image * g_.out_channels + first) * plane + top * g_.out[2];
      with_count<kMostChannels>(channels, [&](auto count) {
        constexpr int kMost = registers(decltype(count)::value);
        for (int64_t y = 0; y < rows; ++y)
          each_strip(padded_.vectors(), kMost, [&](int64_t x, int64_t width) {
            with_count<kMost>(width, [&](auto wide) {
              sum<count, wide>(band + y * g_.stride[1] * padded_.width() + x * kLanes, padded_.input_rows(rows), first,
                               output + y * g_.out[2] + x * kLanes, g_.out[2] - x * kLanes, check);
            });
          });
      });
    });
  }

  // `left` positions of a row, or as many as Width registers hold, of output channels from `first` on.
  template <int Channels, int Width>
  void sum(const float* input, int64_t input_rows, int64_t first, float* output, int64_t left,
           winograd::FiniteCheck& check) const {
    Vector sums[Channels][Width];
#pragma GCC unroll 8
    for (int o = 0; o < Channels; ++o)
#pragma GCC unroll 4
      for (int v = 0; v < Width; ++v) sums[o][v] = t_.bias ? simd::broadcast(t_.bias + first + o) : simd::zero();
    const float* weight = weights_ + first * taps_;
    for (int64_t c = 0; c < g_.in_channels; ++c)
      for (int64_t ky = 0; ky < g_.kernel[1]; ++ky) {
        const float* row = input + (c * input_rows + ky * g_.dilation[1]) * padded_.width();
        for (int64_t kx = 0; kx < g_.kernel[2]; ++kx, row += g_.dilation[2], weight += Channels) {
          Vector x[Width];
#pragma GCC unroll 4
          for (int v = 0; v < Width; ++v) x[v] = simd::load(row + v * kLanes);
#pragma GCC unroll 8
          for (int o = 0; o < Channels; ++o) {
            const Vector w = simd::broadcast(weight + o);
#pragma GCC unroll 4
            for (int v = 0; v < Width; ++v) sums[o][v] = simd::fma(w, x[v], sums[o][v]);
          }
        }
      }
    const int64_t plane = g_.out[1] * g_.out[2];
    const simd::Mask last = simd::first(std::min(kLanes, left - (Width - 1) * kLanes));
#pragma GCC unroll 8
    for (int o = 0; o < Channels; ++o)
#pragma GCC unroll 4
      for (int v = 0; v < Width; ++v) {
        check.see(sums[o][v]);
        float* const to = output + o * plane + v * kLanes;
        v + 1 < Width ? simd::store(to, sums[o][v]) : simd::store(to, sums[o][v], last);
      }
  }
};

} // namespace
} // namespace planes

// The gradient of the weight has the same bounds. From 16 output channels on oneDNN's blocks are full, and quicker.
bool planes_take(const ConvGeometry& g) {
  constexpr int64_t kMostTaps = 512, kInputsUpTo = 64, kOutputsUpTo = 15, kRowsFrom = 4;
  if (g.channels_last || g.groups != 1 || g.in[0] != 1 || g.out[0] != 1 || g.kernel[0] != 1 || g.padding[0] != 0)
    return false;
  const int64_t lanes = ceil_div(g.out[2], planes::kLanes) * planes::kLanes;
  const bool fills_registers = 8 * g.out[2] >= 5 * lanes;
  return g.out_channels <= kOutputsUpTo && g.in_channels <= kInputsUpTo && fills_registers && g.stride[2] == 1 &&
         g.out[1] >= kRowsFrom && g.patch() <= kMostTaps;
}

bool planes_conv(const TiledConv& conv) { return planes::Convolution(conv).run(); }

#else

bool planes_take(const ConvGeometry&) { return false; }
bool planes_conv(const TiledConv&) { return false; }

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
