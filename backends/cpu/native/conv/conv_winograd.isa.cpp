// Float32 convolution with 3 x 3 weights by F(2x2, 3x3): transformed tiles times transformed weights are 16 matrix
// products, done for a block of tiles that stays in the L2 cache. Weights are transformed by every call: a panel at a
// time that costs no more than to read a kept one, 16 / 9 as large. ResNet-18 kept 67 MiB, and was not quicker (Zen 5).
#include "matmul/sgemm_tile.h"
#include "threads.h"
#include "winograd_tiles.h"

#include <atomic>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool winograd_takes(const ConvGeometry& geometry);
bool winograd_conv(const TiledConv& conv);

#ifdef TESSERACK_CPU_SIMD_F32

namespace winograd {
namespace {

using sgemm::kTileCols;
using sgemm::kTileRows;

constexpr int64_t kFits = 1 << 16;       // elements of a block's transformed input
constexpr int64_t kSharedFits = 1 << 20; // of all of it, where that goes through the weights a panel at a time
constexpr int64_t kWeightsFit = 1 << 20; // elements of weights that are transformed together, and forgotten
constexpr int64_t kTilesFrom = 24;       // in a block, be there as many channels as there will
constexpr int64_t kChannels = 16;        // whose weights are transformed at a time
constexpr int64_t kPackGrain = 1 << 13;  // transformed weights worth a thread
constexpr int64_t kJobsPerThread = 4;

class Convolution {
public:
  explicit Convolution(const TiledConv& conv)
      : t_(conv), g_(conv.geometry), depth_(round_up(g_.in_channels, kLanes)),
        panels_(ceil_div(g_.out_channels, kTileCols)), weights_plane_(g_.in_channels * kTileCols + sgemm::kLine),
        panel_(kPoints * weights_plane_), most_(std::max(kTilesFrom, kFits / (kPoints * depth_))), segments_(g_, most_),
        block_(segments_of_a_block()), sums_plane_(block_ * segments_.width() * kTileCols + sgemm::kLine) {}

  // False if a result is not finite.
  bool run() {
    const int64_t tiles = segments_.tiles_before(segments_.count());
    const bool few = tiles <= g_.out_channels && kPoints * tiles * depth_ <= kSharedFits;
    few ? run_by_panels(tiles) : run_by_blocks();
    return finite_;
  }

private:
  const TiledConv& t_;
  const ConvGeometry& g_;
  int64_t depth_;  // of a transformed tile, in elements
  int64_t panels_; // of output channels
  // From point to point: a cache line more than the elements, or all would fall into one set of the L1 cache.
  int64_t weights_plane_;
  int64_t panel_; // elements of one of transformed weights
  int64_t most_;
  Segments segments_;
  int64_t block_; // segments
  int64_t sums_plane_;
  std::atomic<bool> finite_ = true;

  void transform_panels(int64_t first, int64_t last, float* to) const {
    parallel_for(first, last, std::max<int64_t>(1, kPackGrain / panel_), [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) transform_weights(panel, to + (panel - first) * panel_);
    });
  }

  struct Transformed {
    float* data; // (16, tiles, depth_)
    int64_t plane;
    Transformed from(int64_t tile, int64_t depth) const { return {data + tile * depth, plane}; }
  };
  int64_t plane_of(int64_t tiles) const { return tiles * depth_ + sgemm::kLine; }

  int64_t segments_of_a_block() const {
    const int64_t jobs = kJobsPerThread * max_threads();
    return std::clamp<int64_t>(segments_.count() / jobs, 1, std::max<int64_t>(1, most_ / segments_.width()));
  }

  // Each thread takes blocks of tiles through panels of weights, which are transformed first, some at a time.
  void run_by_blocks() {
    const int64_t together = std::clamp<int64_t>(kWeightsFit / panel_, 1, panels_);
    AlignedBuffer weights_buffer;
    for (int64_t first = 0; first < panels_; first += together) {
      const int64_t last = std::min(panels_, first + together);
      float* const weights = weights_buffer.get(together * panel_);
      transform_panels(first, last, weights);
      run_by_blocks(weights, first, last);
    }
  }

  // Panels [first, last), whose weights are given.
  void run_by_blocks(const float* weights, int64_t first, int64_t last) {
    parallel_for(0, segments_.count(), block_, [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      AlignedBuffer buffer;
      const int64_t plane = plane_of(block_ * segments_.width());
      const Transformed input{buffer.get(kPoints * plane), plane};
      for (int64_t i = begin; i < end; i += block_) {
        const int64_t block_end = std::min(end, i + block_);
        worker.transform(i, block_end, input);
        for (int64_t panel = first; panel < last; ++panel)
          worker.multiply(input, weights + (panel - first) * panel_, panel, i, block_end);
      }
      if (!worker.finite()) finite_ = false;
    });
  }

  // Few tiles and many weights: each thread takes panels of weights through all tiles, which are transformed first.
  void run_by_panels(int64_t tiles) {
    AlignedBuffer input_buffer;
    const int64_t plane = plane_of(tiles);
    const Transformed input{input_buffer.get(kPoints * plane), plane};
    parallel_for(0, segments_.count(), block_, [&](int64_t begin, int64_t end) {
      Worker(*this).transform(begin, end, input.from(segments_.tiles_before(begin), depth_));
    });
    parallel_for(0, panels_, 1, [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      AlignedBuffer buffer;
      for (int64_t panel = begin; panel < end; ++panel) {
        float* const weights = buffer.get(panel_);
        transform_weights(panel, weights);
        for (int64_t i = 0; i < segments_.count(); i += block_)
          worker.multiply(input.from(segments_.tiles_before(i), depth_), weights, panel, i,
                          std::min(segments_.count(), i + block_));
      }
      if (!worker.finite()) finite_ = false;
    });
  }

  void transform_weights(int64_t panel, float* to) const {
    float taps[kChannels][9][kTileCols] = {};
    for (int64_t first = 0; first < g_.in_channels; first += kChannels) {
      const int64_t channels = std::min(kChannels, g_.in_channels - first);
      read_weights(panel, first, channels, taps);
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t j = 0; j < kTileCols; j += kLanes) {
          Vector g[9];
#pragma GCC unroll 9
          for (int p = 0; p < 9; ++p) g[p] = simd::load(taps[c][p] + j);
          transform_weight(g, to + (first + c) * kTileCols + j, weights_plane_);
        }
    }
  }

  // Input channels [first, first + channels) of a panel's output channels.
  void read_weights(int64_t panel, int64_t first, int64_t channels, float (&taps)[kChannels][9][kTileCols]) const {
    const float* const from = t_.weight + panel * kTileCols * t_.weight_out + first * t_.weight_in;
    if (t_.weight_tap == 1 && t_.weight_in == 9) // one run in every output channel
      return read_runs(panel, from, 9 * channels, taps[0][0], kTileCols);
    for (int64_t p = 0; p < 9; ++p) {
      const float* const at = from + p * t_.weight_tap;
      if (t_.weight_in == 1) {
        read_runs(panel, at, channels, taps[0][p], 9 * kTileCols);
        continue;
      }
      const int64_t cols = std::min(kTileCols, g_.out_channels - panel * kTileCols);
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t j = 0; j < cols; ++j) taps[c][p][j] = at[c * t_.weight_in + j * t_.weight_out];
    }
  }
  // `count` weights that lie side by side, of each output channel of a panel: the channels come side by side.
  void read_runs(int64_t panel, const float* from, int64_t count, float* to, int64_t to_row) const {
    const int64_t cols = std::min(kTileCols, g_.out_channels - panel * kTileCols);
    for (int64_t i = 0; i < count; i += kLanes)
      for (int64_t j = 0; j < kTileCols; j += kLanes)
        simd::transpose_block(from + j * t_.weight_out + i, t_.weight_out, std::clamp<int64_t>(cols - j, 0, kLanes),
                              std::min(kLanes, count - i), to + i * to_row + j, to_row);
  }

  // A thread's place for sums, and its way through images.
  class Worker {
  public:
    explicit Worker(const Convolution& conv)
        : c_(conv), g_(conv.g_), input_(inputs_of(conv.t_)), output_(outputs_of(conv.t_)) {}

    bool finite() const { return check_.passed(); }

    // The input of segments [first, end).
    void transform(int64_t first, int64_t end, const Transformed& to) {
      for (int64_t i = first; i < end; ++i) {
        const Segment s = c_.segments_.at(i);
        const int64_t before = c_.segments_.tiles_before(i) - c_.segments_.tiles_before(first);
        input_.seek(s.image, s.y - g_.padding[1], s.x - g_.padding[2], s.tiles);
        for (int64_t k = 0; k < s.tiles; ++k)
          each_register(input_.tile(k), g_.in_channels, [&](int64_t c, const auto& at) {
            transform_input(at, to.data + (before + k) * c_.depth_ + c, to.plane);
          });
      }
    }

    // A panel of the outputs of segments [first, end), at most a block.
    void multiply(const Transformed& input, const float* weights, int64_t panel, int64_t first, int64_t end) {
      sums_ = sums_buffer_.get(kPoints * c_.sums_plane_);
      const auto before = [&](int64_t i) { return c_.segments_.tiles_before(i) - c_.segments_.tiles_before(first); };
      for (int64_t point = 0; point < kPoints; ++point)
        multiply(input.data + point * input.plane, weights + point * c_.weights_plane_, sums_ + point * c_.sums_plane_,
                 before(end));
      for (int64_t i = first; i < end; ++i) {
        const Segment s = c_.segments_.at(i);
        g_.channels_last ? store_segment(panel, s, before(i)) : store_planes(panel, s, before(i));
      }
    }

  private:
    const Convolution& c_;
    const ConvGeometry& g_;
    TileReader<kReach> input_;
    Images output_;
    AlignedBuffer sums_buffer_, lines_buffer_;
    float* sums_ = nullptr; // (16, tiles, kTileCols)
    FiniteCheck check_;

    void multiply(const float* input, const float* weights, float* to, int64_t tiles) {
      sgemm::Tile tile{.a = input,
                       .a_step = c_.depth_,
                       .b = weights,
                       .b_row = kTileCols,
                       .c = to,
                       .c_row = kTileCols,
                       .start = nullptr,
                       .start_row = 0,
                       .depth = g_.in_channels,
                       .last = simd::first(kLanes),
                       .last_whole = true,
                       .b_whole = true};
      each_strip(tiles, kTileRows, [&](int64_t, int64_t rows) {
        sgemm::kernel<true>(rows, 2)(tile);
        tile.a += rows * c_.depth_;
        tile.c += rows * kTileCols;
      });
    }

    // put(y, x, channel of the panel, values, mask) for a tile's outputs.
    template <class Put> void outputs(int64_t panel, int64_t tile, const Put& put) {
      const float* const bias = c_.t_.bias ? c_.t_.bias + panel * kTileCols : nullptr;
      const int64_t channels = std::min(kTileCols, g_.out_channels - panel * kTileCols);
      for (int64_t j = 0; j < channels; j += kLanes) {
        const simd::Mask mask = simd::first(std::min(kLanes, channels - j));
        const Vector start = bias ? simd::load(bias + j, mask) : simd::zero();
        Vector y[2][2];
        transform_output(sums_ + tile * kTileCols + j, c_.sums_plane_, y);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const Vector value = y[i / 2][i % 2] + start;
          check_.see(value);
          put(i / 2, i % 2, j, value, mask);
        }
      }
    }

    void store_segment(int64_t panel, const Segment& s, int64_t first) {
      for (int64_t i = 0; i < s.tiles; ++i) {
        const int64_t left = s.x + i * kStep;
        float* const to = output_.pixel(s.image, s.y, left) + panel * kTileCols;
        const bool below = s.y + 1 < g_.out[1], beside = left + 1 < g_.out[2];
        outputs(panel, first + i, [&](int y, int x, int64_t j, Vector value, simd::Mask mask) {
          if ((y == 0 || below) && (x == 0 || beside))
            simd::store(to + (y * g_.out[2] + x) * g_.out_channels + j, value, mask);
        });
      }
    }

    void store_planes(int64_t panel, const Segment& s, int64_t first) {
      const int64_t line = round_up(s.tiles * kStep, kLanes) * kTileCols;
      float* const lines = lines_buffer_.get(kStep * line);
      for (int64_t i = 0; i < s.tiles; ++i)
        outputs(panel, first + i, [&](int y, int x, int64_t j, Vector value, simd::Mask) {
          simd::store(lines + y * line + (i * kStep + x) * kTileCols + j, value);
        });
      const int64_t positions = std::min(s.tiles * kStep, g_.out[2] - s.x);
      for (int64_t y = 0; y < std::min(kStep, g_.out[1] - s.y); ++y)
        for (int64_t x = 0; x < positions; x += kLanes)
          scatter(lines + y * line + x * kTileCols, panel, s.image, (s.y + y) * g_.out[2] + s.x + x, positions - x);
    }

    // Up to kLanes positions of a panel's channels to their planes.
    void scatter(const float* from, int64_t panel, int64_t image, int64_t position, int64_t positions) const {
      const int64_t channels = std::min(kTileCols, g_.out_channels - panel * kTileCols),
                    plane = output_.height * output_.width;
      const simd::Mask mask = simd::first(std::min(kLanes, positions));
      for (int64_t j = 0; j < channels; j += kLanes)
        simd::transpose_block(from + j, kTileCols, kLanes, std::min(kLanes, channels - j),
                              output_.plane(image, panel * kTileCols + j) + position, plane, mask);
    }
  };
};

} // namespace
} // namespace winograd

// The gradient of the weight has the same bounds.
bool winograd_takes(const ConvGeometry& g) {
  constexpr int64_t kStep = winograd::kStep;
  constexpr int64_t kChannelsFrom = 16, kTilesFrom = 16, kWeightsUpTo = 1 << 20;
  for (int d = 1; d < 3; ++d)
    if (g.kernel[d] != 3 || g.stride[d] != 1 || g.dilation[d] != 1) return false;
  if (g.groups != 1 || g.in[0] != 1 || g.out[0] != 1 || g.kernel[0] != 1 || g.padding[0] != 0) return false;
  const int64_t tiles = ceil_div(g.out[1], kStep) * ceil_div(g.out[2], kStep);
  const bool fills_tiles = 2 * tiles * kStep * kStep <= 3 * g.out[1] * g.out[2];
  return fills_tiles && g.batch * tiles >= kTilesFrom && std::min(g.in_channels, g.out_channels) >= kChannelsFrom &&
         g.in_channels * g.out_channels <= kWeightsUpTo;
}

bool winograd_conv(const TiledConv& conv) { return winograd::Convolution(conv).run(); }

#else

bool winograd_takes(const ConvGeometry&) { return false; }
bool winograd_conv(const TiledConv&) { return false; }

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
