// Float32 convolution of channels-last images by the tiles of the matrix product. The taps of a kernel's row lie side
// by side in an image's row, so neighbouring output positions are rows of A, a stride apart and overlapping, that need
// no copies but for the padding.
#include "../conv.h"
#include "../threads.h"
#include "aligned_buffer.h"
#include "sgemm_tile.h"

#include <algorithm>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool tiled_conv_takes(const ConvGeometry& geometry);
void tiled_conv(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace conv_detail {
namespace {

using sgemm::kTileRows;
using simd::kLanes;

constexpr int64_t kTileCols = 2 * kLanes;
constexpr int64_t kBand = 1 << 15;      // elements of padded input that stay in the L2 cache with the weights
constexpr int64_t kPackGrain = 1 << 15; // weights worth a thread
constexpr int64_t kJobsPerThread = 4;
// Multiply-adds of one tap, output channels and output positions from which on a tile pays.
constexpr int64_t kTapFrom = 16, kColsFrom = 8, kPositionsFrom = 256;
constexpr int64_t kRowsFrom = 4; // of a tile

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

class TiledConvolution {
public:
  explicit TiledConvolution(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), in_group_(g_.in_channels / g_.groups), out_group_(g_.out_channels / g_.groups),
        taps_(g_.kernel[0] * g_.kernel[1] * g_.kernel[2]), panels_(ceil_div(out_group_, kTileCols)),
        panel_(taps_ * in_group_ * kTileCols), row_(((g_.out[2] - 1) * g_.stride[2] + reach(2)) * g_.in_channels),
        packed_(buffer_.get(g_.groups * panels_ * panel_)) {
    // Side by side, the taps of a row of the kernel are one run of weights.
    merged_ = g_.groups == 1 && g_.dilation[2] == 1;
    const bool padded = g_.padding[0] != 0 || g_.padding[1] != 0 || g_.padding[2] != 0;
    in_place_ = !padded && row_ <= g_.in[2] * g_.in_channels;
    const int64_t jobs = kJobsPerThread * max_threads(), images = g_.batch * g_.out[0];
    const int64_t rows = std::max<int64_t>(1, (kBand / row_ - reach(1)) / g_.stride[1] + 1);
    band_ = std::min({g_.out[1], rows, std::max<int64_t>(1, images * g_.out[1] / jobs)});
  }

  void run() {
    const int64_t grain = std::max<int64_t>(1, kPackGrain / panel_);
    parallel_for(0, g_.groups * panels_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) pack(panel / panels_, panel % panels_);
    });
    const int64_t bands = ceil_div(g_.out[1], band_);
    parallel_for(0, g_.batch * g_.out[0] * bands, 1, [&](int64_t begin, int64_t end) {
      AlignedBuffer buffer;
      float* padded = in_place_ ? nullptr : buffer.get(g_.kernel[0] * band_rows(band_) * row_);
      for (int64_t job = begin; job < end; ++job) {
        const int64_t first = job % bands * band_;
        multiply(job / bands / g_.out[0], job / bands % g_.out[0], first, std::min(band_, g_.out[1] - first), padded);
      }
    });
  }

private:
  const TiledConv& t_;
  const ConvGeometry& g_;
  int64_t in_group_, out_group_, taps_;
  int64_t panels_, panel_; // of packed weights in a group, and a panel's elements
  int64_t row_;            // elements of a padded row of input
  int64_t band_;           // output rows done together
  bool merged_, in_place_;
  AlignedBuffer buffer_;
  float* packed_;

  // Input positions that one output position covers.
  int64_t reach(int d) const { return (g_.kernel[d] - 1) * g_.dilation[d] + 1; }
  int64_t band_rows(int64_t rows) const { return (rows - 1) * g_.stride[1] + reach(1); }

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

  const float* image_row(int64_t image, int64_t depth, int64_t row) const {
    return t_.input + ((image * g_.in[0] + depth) * g_.in[1] + row) * g_.in[2] * g_.in_channels;
  }
  float* output_row(int64_t image, int64_t depth, int64_t row) const {
    return t_.output + ((image * g_.out[0] + depth) * g_.out[1] + row) * g_.out[2] * g_.out_channels;
  }
  int64_t input_at(int d, int64_t out, int64_t tap) const {
    return out * g_.stride[d] - g_.padding[d] + tap * g_.dilation[d];
  }

  // The kernel's taps along d that read inside the image for one output.
  Range taps_inside(int d, int64_t out) const {
    const int64_t at = input_at(d, out, 0), step = g_.dilation[d];
    const int64_t end = at >= g_.in[d] ? 0 : std::min(g_.kernel[d], ceil_div(g_.in[d] - at, step));
    return {at >= 0 ? 0 : std::min(end, ceil_div(-at, step)), end};
  }

  // A row of input with its padding.
  void pad(const float* from, float* to) const {
    const int64_t before = std::min(g_.padding[2] * g_.in_channels, row_);
    const int64_t present = std::min(g_.in[2] * g_.in_channels, row_ - before);
    std::fill_n(to, before, 0.0f);
    std::copy_n(from, present, to + before);
    std::fill(to + before + present, to + row_, 0.0f);
  }

  // Output rows [first, first + rows) at `depth` of one image.
  void multiply(int64_t image, int64_t depth, int64_t first, int64_t rows, float* padded) const {
    const int64_t top = input_at(1, first, 0), height = band_rows(rows);
    const Range slices = taps_inside(0, depth);
    for (int64_t z = slices.begin; z < slices.end && !in_place_; ++z)
      for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, g_.in[1] - top); ++y)
        pad(image_row(image, input_at(0, depth, z), top + y), padded + (z * height + y) * row_);
    const auto row_of_a = [&](int64_t z, int64_t y) {
      return in_place_ ? image_row(image, input_at(0, depth, z), top + y) : padded + (z * height + y) * row_;
    };
    for (int64_t panel = 0; panel < g_.groups * panels_; ++panel) {
      for (int64_t r = 0; r < rows && slices.count() == 0; ++r)
        multiply_row(panel, 0, {0, 0}, nullptr, output_row(image, depth, first + r), false);
      for (int64_t z = slices.begin; z < slices.end; ++z) {
        for (int64_t r = 0; r < rows; ++r) {
          const Range taps = taps_inside(1, first + r);
          const float* a = taps.count() == 0 ? nullptr : row_of_a(z, r * g_.stride[1] + taps.begin * g_.dilation[1]);
          multiply_row(panel, z, taps, a, output_row(image, depth, first + r), z > slices.begin);
        }
      }
    }
  }

  // One row of output, of one panel's channels: the rows `taps` of the kernel's slice z times rows of input from a on.
  void multiply_row(int64_t panel, int64_t z, Range taps, const float* a, float* c, bool accumulate) const {
    const int64_t group = panel / panels_, first = panel % panels_ * kTileCols,
                  cols = std::min(kTileCols, out_group_ - first);
    const int64_t channel = group * out_group_ + first, tap = in_group_ * kTileCols, taps_row = g_.kernel[2] * tap;
    const float* b = packed_ + panel * panel_ + (z * g_.kernel[1] + taps.begin) * taps_row;
    if (a) a += group * in_group_;
    const int64_t registers = ceil_div(cols, kLanes);
    sgemm::Tile tile{a,
                     g_.stride[2] * g_.in_channels,
                     b,
                     kTileCols,
                     c + channel,
                     g_.out_channels,
                     nullptr,
                     0,
                     0,
                     simd::first(cols - (registers - 1) * kLanes),
                     cols == registers * kLanes,
                     true};
    const auto strips = [&](bool onto) {
      tile.start = onto ? tile.c : t_.bias ? t_.bias + channel : nullptr;
      tile.start_row = onto ? g_.out_channels : 0;
      multiply_strips(tile, registers);
    };
    const int64_t line = (in_place_ ? g_.in[2] * g_.in_channels : row_) * g_.dilation[1];
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
    const int64_t strips = ceil_div(g_.out[2], kTileRows), rows = g_.out[2] / strips, taller = g_.out[2] % strips;
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t here = rows + (s < taller);
      sgemm::kernel<true>(here, registers)(tile);
      if (tile.runs != 0) tile.a += here * tile.a_step;
      tile.c += here * tile.c_row;
      if (tile.start) tile.start += here * tile.start_row;
    }
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
