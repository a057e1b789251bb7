// Float32 convolution of channels-last images by the tiles of the matrix product. The taps of a kernel's row lie side
// by side in an image's row, so neighbouring output positions are rows of A, a stride apart and overlapping, that need
// no copies but for the padding.
#include "conv_band.h"
#include "matmul/sgemm_tile.h"
#include "threads.h"

#include <algorithm>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool tiled_conv_takes(const ConvGeometry& geometry);
void tiled_conv(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace conv_detail {
namespace {

using sgemm::kTileCols;
using sgemm::kTileRows;
using simd::kLanes;

constexpr int64_t kPackGrain = 1 << 15; // weights worth a thread
constexpr int64_t kJobsPerThread = 4;
// Multiply-adds of one tap, output channels and output positions from which on a tile pays.
constexpr int64_t kTapFrom = 16, kColsFrom = 8, kPositionsFrom = 256;
constexpr int64_t kRowsFrom = 4; // of a tile

class TiledConvolution {
public:
  explicit TiledConvolution(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), bands_(g_, conv.input, kJobsPerThread * max_threads()),
        in_group_(g_.in_channels / g_.groups), out_group_(g_.out_channels / g_.groups),
        taps_(g_.kernel[0] * g_.kernel[1] * g_.kernel[2]), panels_(ceil_div(out_group_, kTileCols)),
        panel_(taps_ * in_group_ * kTileCols), packed_(buffer_.get(g_.groups * panels_ * panel_)),
        merged_(g_.groups == 1 && g_.dilation[2] == 1) {}

  void run() {
    const int64_t grain = std::max<int64_t>(1, kPackGrain / panel_);
    parallel_for(0, g_.groups * panels_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) pack(panel / panels_, panel % panels_);
    });
    parallel_for(0, bands_.count(), 1, [&](int64_t begin, int64_t end) {
      AlignedBuffer buffer;
      for (int64_t i = begin; i < end; ++i) multiply(bands_.at(i), buffer);
    });
  }

private:
  const TiledConv& t_;
  const ConvGeometry& g_;
  Bands bands_;
  int64_t in_group_, out_group_, taps_;
  int64_t panels_, panel_; // of packed weights in a group, and a panel's elements
  AlignedBuffer buffer_;
  float* packed_;
  bool merged_; // the taps of a row of the kernel are side by side, in the image as in the weights

  // kTileCols output channels (or fewer, then zeros follow): by taps, then input channels.
  void pack(int64_t group, int64_t panel) {
    float* const to = packed_ + (group * panels_ + panel) * panel_;
    const int64_t first = panel * kTileCols, cols = std::min(kTileCols, out_group_ - first);
    if (cols < kTileCols) std::fill_n(to, panel_, 0.0f);
    const float* const from = t_.weight + group * t_.weight_group + first * t_.weight_out;
    for (int64_t c = 0; c < in_group_; ++c) {
      for (int64_t j = 0; j < cols; ++j) {
        const float* tap = from + c * t_.weight_in + j * t_.weight_out;
        for (int64_t p = 0; p < taps_; ++p, tap += t_.weight_tap) to[(p * in_group_ + c) * kTileCols + j] = *tap;
      }
    }
  }

  void multiply(const Band& band, AlignedBuffer& buffer) const {
    const float* filled = bands_.fill(band, buffer);
    const Range slices = bands_.taps_inside(0, band.depth);
    float* const output = t_.output + ((band.image * g_.out[0] + band.depth) * g_.out[1] + band.first) * output_row();
    for (int64_t panel = 0; panel < g_.groups * panels_; ++panel) {
      for (int64_t r = 0; r < band.rows && slices.count() == 0; ++r)
        multiply_row(panel, 0, {0, 0}, nullptr, output + r * output_row(), false);
      for (int64_t z = slices.begin; z < slices.end; ++z) {
        for (int64_t r = 0; r < band.rows; ++r) {
          const Range taps = bands_.taps_inside(1, band.first + r);
          const float* a = taps.count() == 0 ? nullptr : bands_.row(band, filled, z, taps.begin, r);
          multiply_row(panel, z, taps, a, output + r * output_row(), z > slices.begin);
        }
      }
    }
  }
  int64_t output_row() const { return g_.out[2] * g_.out_channels; }

  // One row of output, of one panel's channels: the rows `taps` of the kernel's slice z times rows of input from a on.
  void multiply_row(int64_t panel, int64_t z, Range taps, const float* a, float* c, bool accumulate) const {
    const int64_t group = panel / panels_, first = panel % panels_ * kTileCols,
                  cols = std::min(kTileCols, out_group_ - first);
    const int64_t channel = group * out_group_ + first, tap = in_group_ * kTileCols, taps_row = g_.kernel[2] * tap;
    const float* b = packed_ + panel * panel_ + (z * g_.kernel[1] + taps.begin) * taps_row;
    if (a) a += group * in_group_;
    const int64_t registers = ceil_div(cols, kLanes);
    sgemm::Tile tile{.a = a,
                     .a_step = g_.stride[2] * g_.in_channels,
                     .b = b,
                     .b_row = kTileCols,
                     .c = c + channel,
                     .c_row = g_.out_channels,
                     .start = nullptr,
                     .start_row = 0,
                     .depth = 0,
                     .last = simd::first(cols - (registers - 1) * kLanes),
                     .last_whole = cols == registers * kLanes,
                     .b_whole = true};
    const auto strips = [&](bool onto) {
      tile.start = onto ? tile.c : t_.bias ? t_.bias + channel : nullptr;
      tile.start_row = onto ? g_.out_channels : 0;
      multiply_strips(tile, registers);
    };
    const int64_t line = bands_.line() * g_.dilation[1];
    if (merged_ || taps.count() == 0) {
      tile.depth = g_.kernel[2] * in_group_;
      tile.runs = taps.count(), tile.a_run = line, tile.b_run = taps_row;
      return strips(accumulate);
    }
    tile.depth = in_group_;
    tile.runs = g_.kernel[2], tile.a_run = g_.dilation[2] * g_.in_channels, tile.b_run = tap;
    for (int64_t y = 0; y < taps.count(); ++y, tile.a += line, tile.b += taps_row) strips(accumulate || y > 0);
  }

  // A row of output positions in strips of nearly equal height; the tile given is where it begins.
  void multiply_strips(sgemm::Tile tile, int64_t registers) const {
    each_strip(g_.out[2], kTileRows, [&](int64_t, int64_t here) {
      sgemm::kernel<true>(here, registers)(tile);
      if (tile.runs != 0) tile.a += here * tile.a_step;
      tile.c += here * tile.c_row;
      if (tile.start) tile.start += here * tile.start_row;
    });
  }
};

} // namespace
} // namespace conv_detail

bool tiled_conv_takes(const ConvGeometry& g) {
  using namespace conv_detail;
  const bool merged = g.groups == 1 && g.dilation[2] == 1;
  const int64_t run = g.in_channels / g.groups * (merged ? g.kernel[2] : 1);
  return g.out[2] >= kRowsFrom * ceil_div(g.out[2], kTileRows) && run >= kTapFrom &&
         g.out_channels / g.groups >= kColsFrom && g.batch * g.positions() >= kPositionsFrom;
}

void tiled_conv(const TiledConv& conv) { conv_detail::TiledConvolution(conv).run(); }

#else

bool tiled_conv_takes(const ConvGeometry&) { return false; }
void tiled_conv(const TiledConv&) {}

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
