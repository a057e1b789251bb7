// The gradient of the weight of a convolution of planes: see conv_planes.h. A sum over images and positions for every
// tap, lanes apart until the end.
#include "conv_planes.h"
#include "threads.h"
#include "winograd.h"

#include <mutex>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool planes_conv_weight(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace planes {
namespace {

constexpr int kSums = simd::kRegisters * 3 / 4; // registers of them: output channels by taps of a row of the kernel
constexpr int kMostChannels = 8, kMostTaps = 4;
constexpr int64_t kFits = 1 << 16; // elements of images that are gone through together

class WeightGradient {
public:
  explicit WeightGradient(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), padded_(g_), rows_(padded_.rows_within(kFits)), image_(padded_.elements(rows_)),
        together_(std::clamp<int64_t>(kFits / image_, 1, g_.batch)),
        taps_(g_.in_channels * g_.kernel[1] * g_.kernel[2]) {}

  // False, and nothing is written, if a result is not finite: zeros around the image do not take part in the
  // definition.
  bool run() {
    AlignedBuffer buffer;
    float* const total = buffer.get(g_.out_channels * taps_);
    std::fill_n(total, g_.out_channels * taps_, 0.0f);
    std::mutex adding;
    parallel_for(0, g_.batch, std::max<int64_t>(1, kGrain / image_), [&](int64_t begin, int64_t end) {
      AlignedBuffer sums_buffer, images_buffer;
      float* const sums = sums_buffer.get(g_.out_channels * taps_);
      std::fill_n(sums, g_.out_channels * taps_, 0.0f);
      for (int64_t i = begin; i < end; i += together_)
        add_images(i, std::min(end, i + together_), images_buffer.get(together_ * image_), sums);
      std::lock_guard hold(adding);
      for (int64_t i = 0; i < g_.out_channels * taps_; ++i) total[i] += sums[i];
    });
    if (!finite(total)) return false;
    put(total);
    return true;
  }

private:
  static constexpr int64_t kGrain = 1 << 12; // elements of images worth a thread

  const TiledConv& t_;
  const ConvGeometry& g_;
  Padded padded_;
  int64_t rows_;                    // of output that are gone through together
  int64_t image_, together_, taps_; // elements of an image's padded rows; images; taps of an output channel

  bool finite(const float* total) const {
    float sum = 0;
    for (int64_t i = 0; i < g_.out_channels * taps_; ++i) sum += total[i] * 0.0f;
    return sum == 0;
  }

  void put(const float* total) const {
    for (int64_t o = 0; o < g_.out_channels; ++o)
      for (int64_t c = 0; c < g_.in_channels; ++c)
        for (int64_t p = 0; p < g_.kernel[1] * g_.kernel[2]; ++p, ++total) {
          float& to = t_.weight[o * t_.weight_out + c * t_.weight_in + p * t_.weight_tap];
          to = t_.accumulate ? to + *total : *total;
        }
  }

  void add_images(int64_t first, int64_t end, float* images, float* sums) const {
    for (int64_t top = 0; top < g_.out[1]; top += rows_)
      add_bands(first, end, top, std::min(rows_, g_.out[1] - top), images, sums);
  }

  // Output rows [top, top + rows) of images.
  void add_bands(int64_t first, int64_t end, int64_t top, int64_t rows, float* images, float* sums) const {
    for (int64_t i = first; i < end; ++i)
      padded_.fill(t_.input + i * g_.in_channels * g_.in[1] * g_.in[2], top, rows, images + (i - first) * image_);
    const float* const gradient = t_.output + (first * g_.out_channels * g_.out[1] + top) * g_.out[2];
    each_strip(g_.kernel[2], kMostTaps, [&](int64_t kx, int64_t taps) {
      each_strip(g_.out_channels, std::min<int64_t>(kMostChannels, kSums / taps), [&](int64_t o, int64_t channels) {
        with_count<kMostTaps>(taps, [&](auto wide) {
          with_count<kMostChannels>(channels, [&](auto count) {
            for (int64_t c = 0; c < g_.in_channels; ++c)
              for (int64_t ky = 0; ky < g_.kernel[1]; ++ky) {
                const int64_t row = c * padded_.input_rows(rows) + ky * g_.dilation[1];
                add<count, wide>(images + row * padded_.width() + kx * g_.dilation[2],
                                 gradient + o * g_.out[1] * g_.out[2], end - first, rows,
                                 sums + o * taps_ + (c * g_.kernel[1] + ky) * g_.kernel[2] + kx);
              }
          });
        });
      });
    });
  }

  // Taps side by side of output channels one after another, over images.
  template <int Channels, int Taps>
  void add(const float* input, const float* gradient, int64_t images, int64_t rows, float* to) const {
    Vector sums[Channels][Taps];
#pragma GCC unroll 8
    for (int o = 0; o < Channels; ++o)
#pragma GCC unroll 4
      for (int k = 0; k < Taps; ++k) sums[o][k] = simd::zero();
    const int64_t plane = g_.out[1] * g_.out[2], whole = g_.out[2] / kLanes * kLanes, step = g_.dilation[2];
    const simd::Mask last = simd::first(g_.out[2] - whole);
    const auto add_register = [&](const float* x, const float* g, auto... mask) {
      Vector taps[Taps];
#pragma GCC unroll 4
      for (int k = 0; k < Taps; ++k) taps[k] = simd::load(x + k * step);
#pragma GCC unroll 8
      for (int o = 0; o < Channels; ++o) {
        const Vector dy = simd::load(g + o * plane, mask...);
#pragma GCC unroll 4
        for (int k = 0; k < Taps; ++k) sums[o][k] = simd::fma(dy, taps[k], sums[o][k]);
      }
    };
    for (int64_t i = 0; i < images; ++i, input += image_, gradient += g_.out_channels * plane)
      for (int64_t y = 0; y < rows; ++y) {
        const float* const x = input + y * g_.stride[1] * padded_.width();
        const float* const g = gradient + y * g_.out[2];
        for (int64_t j = 0; j < whole; j += kLanes) add_register(x + j, g + j);
        if (whole < g_.out[2]) add_register(x + whole, g + whole, last);
      }
#pragma GCC unroll 8
    for (int o = 0; o < Channels; ++o) {
      float lanes[4];
      const auto sum = [&](int k) { return k < Taps ? sums[o][k] : simd::zero(); };
      _mm_storeu_ps(lanes, simd::sums(sum(0), sum(1), sum(2), sum(3)));
      for (int k = 0; k < Taps; ++k) to[o * taps_ + k] += lanes[k];
    }
  }
};

} // namespace
} // namespace planes

bool planes_conv_weight(const TiledConv& conv) { return planes::WeightGradient(conv).run(); }

#else

bool planes_conv_weight(const TiledConv&) { return false; }

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
