// The gradient of 3 x 3 weights by the adjoint of F(2x2, 3x3): per block of tiles, 16 products of transformed gradients
// with transformed inputs are added up.
#include "matmul/sgemm_tile.h"
#include "threads.h"
#include "winograd_tiles.h"

#include <atomic>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool winograd_conv_weight(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace winograd {
namespace {

using sgemm::kTileCols;
using sgemm::kTileRows;

constexpr int64_t kTiles = 256;     // of a block: a panel of inputs and a strip of gradients fit the L1 cache
constexpr int64_t kTilesFrom = 64;  // in a block, be there as many channels as there will
constexpr int64_t kFits = 1 << 21;  // elements of a block's inputs and gradients, in the L3 cache
constexpr int64_t kGrain = 1 << 13; // elements worth a thread

class WeightGradient {
public:
  explicit WeightGradient(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), segments_(g_, most()),
        block_(std::clamp<int64_t>(most() / segments_.width(), 1, std::max<int64_t>(1, segments_.count()))),
        tiles_(block_ * segments_.width()), panels_(ceil_div(g_.in_channels, kTileCols)),
        gradient_row_(round_up(g_.out_channels, kLanes) + sgemm::kLine), panel_(tiles_ * kTileCols),
        sums_row_(panels_ * kTileCols), input_plane_(panels_ * panel_ + sgemm::kLine),
        gradient_plane_(tiles_ * gradient_row_ + sgemm::kLine), inputs_(input_buffer_.get(kPoints * input_plane_)),
        gradients_(gradient_buffer_.get(kPoints * gradient_plane_)),
        sums_(sums_buffer_.get(kPoints * g_.out_channels * sums_row_)) {}

  // False if a result is not finite.
  bool run() {
    for (int64_t first = 0; first < segments_.count(); first += block_) {
      const int64_t count = std::min(block_, segments_.count() - first);
      parallel_for(0, count, std::max<int64_t>(1, kGrain / (segments_.width() * kPoints * gradient_row_)),
                   [&](int64_t begin, int64_t end) { transform(first, begin, end); });
      const int64_t tiles = segments_.tiles_before(first + count) - segments_.tiles_before(first);
      parallel_for(0, kPoints * panels_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) multiply(i / panels_, i % panels_, tiles, first > 0);
      });
    }
    return store();
  }

private:
  const TiledConv& t_;
  const ConvGeometry& g_;
  Segments segments_;
  int64_t block_, tiles_; // segments and tiles of a block
  int64_t panels_;        // of kTileCols input channels
  int64_t gradient_row_, panel_, sums_row_;
  int64_t input_plane_, gradient_plane_;
  AlignedBuffer input_buffer_, gradient_buffer_, sums_buffer_;
  float* inputs_;    // (16, panels, tiles, kTileCols)
  float* gradients_; // (16, tiles, out_channels)
  float* sums_;      // (16, out_channels, in_channels)

  int64_t most() const {
    return std::clamp(kFits / (kPoints * (g_.in_channels + g_.out_channels)), kTilesFrom, kTiles);
  }

  // Segments [begin, end) of the block that begins with segment `first`.
  void transform(int64_t first, int64_t begin, int64_t end) {
    TileReader<kReach> input(inputs_of(t_));
    TileReader<kStep> gradient(outputs_of(t_));
    for (int64_t i = begin; i < end; ++i) {
      const Segment s = segments_.at(first + i);
      input.seek(s.image, s.y - g_.padding[1], s.x - g_.padding[2], s.tiles);
      gradient.seek(s.image, s.y, s.x, s.tiles);
      for (int64_t k = 0; k < s.tiles; ++k) {
        const int64_t tile = segments_.tiles_before(first + i) - segments_.tiles_before(first) + k;
        each_register(input.tile(k), g_.in_channels, [&](int64_t c, const auto& at) {
          transform_input(at, inputs_ + c / kTileCols * panel_ + tile * kTileCols + c % kTileCols, input_plane_);
        });
        each_register(gradient.tile(k), g_.out_channels, [&](int64_t c, const auto& at) {
          transform_gradient(at, gradients_ + tile * gradient_row_ + c, gradient_plane_);
        });
      }
    }
  }

  void multiply(int64_t point, int64_t panel, int64_t tiles, bool onto) {
    sgemm::Tile tile{.a = gradients_ + point * gradient_plane_,
                     .a_step = gradient_row_,
                     .b = inputs_ + point * input_plane_ + panel * panel_,
                     .b_row = kTileCols,
                     .c = sums_ + point * g_.out_channels * sums_row_ + panel * kTileCols,
                     .c_row = sums_row_,
                     .start = nullptr,
                     .start_row = sums_row_,
                     .depth = tiles,
                     .last = simd::first(kLanes),
                     .last_whole = true,
                     .b_whole = true};
    each_strip(g_.out_channels, kTileRows, [&](int64_t, int64_t rows) {
      if (onto) tile.start = tile.c;
      sgemm::kernel<false>(rows, 2)(tile);
      tile.a += rows;
      tile.c += rows * sums_row_;
    });
  }

  bool store() {
    std::atomic<bool> finite = true;
    const int64_t plane = g_.out_channels * sums_row_, grain = std::max<int64_t>(1, kGrain / sums_row_);
    parallel_for(0, g_.out_channels, grain, [&](int64_t begin, int64_t end) {
      FiniteCheck check;
      for (int64_t o = begin; o < end; ++o)
        for (int64_t c = 0; c < g_.in_channels; c += kLanes) {
          Vector g[9];
          transform_weight_gradient(sums_ + o * sums_row_ + c, plane, g);
          store(o, c, g, check);
        }
      if (!check.passed()) finite = false;
    });
    return finite;
  }

  void store(int64_t o, int64_t c, const Vector (&g)[9], FiniteCheck& check) {
    const int64_t channels = std::min(kLanes, g_.in_channels - c);
    float* const to = t_.weight + o * t_.weight_out + c * t_.weight_in;
    for (int64_t p = 0; p < 9; ++p) {
      float lanes[kLanes];
      simd::store(lanes, g[p]);
      check.see(simd::load(lanes, simd::first(channels)));
      for (int64_t i = 0; i < channels; ++i) {
        float& weight = to[i * t_.weight_in + p * t_.weight_tap];
        weight = (t_.accumulate ? weight : 0.0f) + lanes[i];
      }
    }
  }
};

} // namespace
} // namespace winograd

bool winograd_conv_weight(const TiledConv& conv) { return winograd::WeightGradient(conv).run(); }

#else

bool winograd_conv_weight(const TiledConv&) { return false; }

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
