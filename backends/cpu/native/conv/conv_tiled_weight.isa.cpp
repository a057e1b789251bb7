// The gradient of a float32 convolution's weight over channels-last images, by the tiles of the matrix product: output
// channels times the taps of a kernel's row, which lie side by side in the image, summed over the rows of a band.
#include "conv_band.h"
#include "matmul/sgemm_tile.h"
#include "threads.h"

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool tiled_conv_weight_takes(const ConvGeometry& geometry);
void tiled_conv_weight(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace conv_detail {
namespace {

using sgemm::kTileCols;
using sgemm::kTileRows;
using simd::kLanes;

constexpr int64_t kStoreGrain = 1 << 15, kWorkGrain = 1 << 17; // weights and multiply-adds worth a thread
// Output channels, taps of a row of the kernel and a row of output from which on a tile pays.
constexpr int64_t kRowsFrom = 4, kColsFrom = 24, kWidthFrom = 7;

class TiledWeightGradient {
public:
  explicit TiledWeightGradient(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), bands_(g_, conv.input, 1), in_group_(g_.in_channels / g_.groups),
        out_group_(g_.out_channels / g_.groups), rows_(g_.kernel[0] * g_.kernel[1]),
        patch_(rows_ * g_.kernel[2] * in_group_), merged_(g_.groups == 1 && g_.dilation[2] == 1),
        run_(in_group_ * (merged_ ? g_.kernel[2] : 1)), panels_(ceil_div(run_, kTileCols)),
        sums_(buffer_.get(g_.out_channels * patch_)) {}

  void run() {
    std::fill_n(sums_, g_.out_channels * patch_, 0.0f);
    const int64_t runs = merged_ ? rows_ : rows_ * g_.kernel[2];
    const int64_t work = g_.batch * g_.positions() * g_.out_channels * kTileCols; // of a panel, in multiply-adds
    parallel_for(0, runs * panels_, std::max<int64_t>(1, kWorkGrain / work), [&](int64_t begin, int64_t end) {
      AlignedBuffer padded, strip;
      for (int64_t i = 0; i < bands_.count(); ++i) {
        const Band band = bands_.at(i);
        const float* filled = bands_.fill(band, padded);
        for (int64_t group = 0; group < g_.groups; ++group)
          each_channel_strip(group, band, strip, [&](const float* a, int64_t channel, int64_t rows) {
            for (int64_t panel = begin; panel < end; ++panel)
              multiply(band, filled, panel / panels_, panel % panels_, a, channel, rows);
          });
      }
    });
    store();
  }

private:
  const TiledConv& t_;
  const ConvGeometry& g_;
  Bands bands_;
  int64_t in_group_, out_group_;
  int64_t rows_;  // of the kernel
  int64_t patch_; // weights of an output channel
  bool merged_;
  int64_t run_, panels_; // weights side by side in an image's row; tiles they take
  AlignedBuffer buffer_;
  float* sums_; // (out_channels, taps, in_group)

  // Strips of output channels of a band of gradients, closer together, position after position.
  template <class Body>
  void each_channel_strip(int64_t group, const Band& band, AlignedBuffer& buffer, const Body& body) const {
    const int64_t positions = band.rows * g_.out[2];
    float* const to = buffer.get(positions * kLanes);
    const float* const from =
        t_.output + ((band.image * g_.out[0] + band.depth) * g_.out[1] + band.first) * g_.out[2] * g_.out_channels;
    each_strip(out_group_, kTileRows, [&](int64_t begin, int64_t rows) {
      const int64_t channel = group * out_group_ + begin;
      const simd::Mask mask = simd::first(rows);
      for (int64_t p = 0; p < positions; ++p)
        simd::store(to + p * kLanes, simd::load(from + p * g_.out_channels + channel, mask));
      body(to, channel, rows);
    });
  }

  // Output rows of the band under which tap y is inside the image.
  Range rows_inside(const Band& band, int64_t y) const {
    Range rows{0, band.rows};
    const auto inside = [&](int64_t r) {
      const Range taps = bands_.taps_inside(1, band.first + r);
      return taps.begin <= y && y < taps.end;
    };
    while (rows.begin < rows.end && !inside(rows.begin)) ++rows.begin;
    while (rows.begin < rows.end && !inside(rows.end - 1)) --rows.end;
    return rows;
  }

  void multiply(const Band& band, const float* filled, int64_t run, int64_t panel, const float* a, int64_t channel,
                int64_t rows) const {
    const int64_t row = merged_ ? run : run / g_.kernel[2], x = merged_ ? 0 : run % g_.kernel[2];
    const int64_t z = row / g_.kernel[1], y = row % g_.kernel[1], group = channel / out_group_;
    const Range slices = bands_.taps_inside(0, band.depth), inside = rows_inside(band, y);
    if (z < slices.begin || z >= slices.end || inside.count() == 0) return;
    const int64_t cols = std::min(kTileCols, run_ - panel * kTileCols), registers = ceil_div(cols, kLanes);
    const int64_t at = group * in_group_ + x * g_.dilation[2] * g_.in_channels + panel * kTileCols;
    float* const c = sums_ + channel * patch_ + run * run_ + panel * kTileCols;
    const bool whole = cols == registers * kLanes;
    sgemm::kernel<false>(rows, registers)({.a = a + inside.begin * g_.out[2] * kLanes,
                                           .a_step = kLanes,
                                           .b = bands_.row(band, filled, z, y, inside.begin) + at,
                                           .b_row = g_.stride[2] * g_.in_channels,
                                           .c = c,
                                           .c_row = patch_,
                                           .start = c,
                                           .start_row = patch_,
                                           .depth = g_.out[2],
                                           .last = simd::first(cols - (registers - 1) * kLanes),
                                           .last_whole = whole,
                                           .b_whole = whole,
                                           .runs = inside.count(),
                                           .a_run = g_.out[2] * kLanes,
                                           .b_run = g_.stride[1] * bands_.line()});
  }

  // From taps then channels to the weight's own order.
  void store() const {
    const int64_t taps = rows_ * g_.kernel[2];
    parallel_for(0, g_.out_channels, std::max<int64_t>(1, kStoreGrain / patch_), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const float* from = sums_ + o * patch_;
        float* to = t_.weight + o * t_.weight_out;
        for (int64_t c = 0; c < in_group_; ++c)
          for (int64_t p = 0; p < taps; ++p) {
            float& weight = to[c * t_.weight_in + p * t_.weight_tap];
            weight = (t_.accumulate ? weight : 0.0f) + from[p * in_group_ + c];
          }
      }
    });
  }
};

} // namespace
} // namespace conv_detail

bool tiled_conv_weight_takes(const ConvGeometry& g) {
  using namespace conv_detail;
  const bool merged = g.groups == 1 && g.dilation[2] == 1;
  return g.out[2] >= kWidthFrom && g.in_channels / g.groups * (merged ? g.kernel[2] : 1) >= kColsFrom &&
         g.out_channels / g.groups >= kRowsFrom;
}

void tiled_conv_weight(const TiledConv& conv) { conv_detail::TiledWeightGradient(conv).run(); }

#else

bool tiled_conv_weight_takes(const ConvGeometry&) { return false; }
void tiled_conv_weight(const TiledConv&) {}

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
