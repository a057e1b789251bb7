// The float32 matrix product after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008),
// with two shortcuts: a right factor used for few rows is read where it lies, and one that lies transposed is then
// multiplied by scalar products.
#include "aligned_buffer.h"
#include "copy/strips.h"
#include "matmul.h"
#include "sgemm_tile.h"

#include <algorithm>
#include <cstring>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool tiled_gemm_takes(const Gemm& gemm);
bool gemm_by_dots(const Gemm& gemm);
void tiled_gemm(const Gemm& gemm);
int64_t gemm_panels(int64_t n, int64_t k);
void pack_gemm_panels(const Matrix& b, int64_t n, int64_t k, float* to);
void gemm_by_panels(const Gemm& gemm, const float* panels);

#ifdef TESSERACK_CPU_SIMD_F32

namespace sgemm_detail {
namespace {

using sgemm::kDotCols;
using sgemm::kDotRows;
using sgemm::kTileCols;
using sgemm::kTileRows;
using sgemm::kWideRows;
using simd::kLanes;

// Of a packed block of B. It need not stay in the L2 cache: panels arrive from the L3 cache in time.
constexpr int64_t kDepth = simd::kRegisters == 32 ? 384 : 512, kCols = simd::kRegisters == 32 ? 512 : 1024;
constexpr int64_t kEven = 8;
constexpr int64_t kPackAhead = 16;               // rows of B
constexpr int64_t kUnpackedRows = 3 * kTileRows; // up to here packing B costs more than it saves
// Elements of B that stay in the L2 cache as they lie.
constexpr int64_t kBlockStays = (simd::kRegisters == 32 ? 128 : 80) * 1024;
// A stride of B by which all its rows fall into two sets of the L1 cache: with its eight ways, AVX2's machines lose a
// fifth.
constexpr int64_t kCrowded = 512;
constexpr int64_t kDotUpTo = 8 * kDotRows, kDotFrom = 16 * kLanes; // rows; depth, unless a single strip will do

// An operand, or a part of one.
struct Source {
  const float* data;
  int64_t row, col; // strides
  const float* at(int64_t i, int64_t j) const { return data + i * row + j * col; }
};

Source source(const Matrix& m) { return {reinterpret_cast<const float*>(m.data), m.row_stride, m.col_stride}; }

// --- packing -----------------------------------------------------------------------------------------------------

// kTileCols columns (or fewer, then zeros follow) of B, row after row.
void pack_rows(const Source& b, int64_t depth, int64_t cols, float* to) {
  const simd::Mask low = simd::first(std::min(cols, kLanes)), high = simd::first(std::max<int64_t>(0, cols - kLanes));
  for (int64_t p = 0; p < depth; ++p, to += kTileCols) {
    const float* from = b.at(p, 0);
    __builtin_prefetch(b.at(p + kPackAhead, 0));
    simd::store(to, simd::load(from, low));
    simd::store(to + kLanes, cols > kLanes ? simd::load(from + kLanes, high) : simd::zero());
  }
}

// The same from columns that are contiguous.
void pack_columns(const Source& b, int64_t depth, int64_t cols, float* to) {
  for (int64_t p = 0; p < depth; p += kLanes)
    for (int64_t j = 0; j < kTileCols; j += kLanes)
      simd::transpose_block(b.at(p, j), b.col, std::clamp<int64_t>(cols - j, 0, kLanes), std::min(kLanes, depth - p),
                            to + p * kTileCols + j, kTileCols);
}

void pack_any(const Source& b, int64_t depth, int64_t cols, float* to) {
  for (int64_t p = 0; p < depth; ++p, to += kTileCols)
    for (int64_t j = 0; j < kTileCols; ++j) to[j] = j < cols ? *b.at(p, j) : 0.0f;
}

void pack(const Source& b, int64_t depth, int64_t cols, float* to) {
  const auto packer = b.col == 1 ? pack_rows : b.row == 1 ? pack_columns : pack_any;
  for (int64_t j = 0; j < cols; j += kTileCols, to += depth * kTileCols)
    packer({b.at(0, j), b.row, b.col}, depth, std::min(kTileCols, cols - j), to);
}

// A strip of A beside itself: rows stay rows and columns columns, but close together. Returns the strip to use.
Source copy_strip(const Source& a, int64_t rows, int64_t depth, AlignedBuffer& buffer) {
  if (a.row == 1) {
    float* to = buffer.get(depth * kLanes);
    const simd::Mask mask = simd::first(std::min(rows, kLanes));
    for (int64_t p = 0; p < depth; ++p) simd::store(to + p * kLanes, simd::load(a.at(0, p), mask));
    return {to, 1, kLanes};
  }
  const int64_t step = depth + kLanes; // no power of two, by which all rows would fall into one set of the cache
  float* to = buffer.get(rows * step);
  for (int64_t i = 0; i < rows; ++i) {
    if (a.col == 1)
      std::memcpy(to + i * step, a.at(i, 0), static_cast<size_t>(depth) * sizeof(float));
    else
      for (int64_t p = 0; p < depth; ++p) to[i * step + p] = *a.at(i, p);
  }
  return {to, step, 1};
}

// Asks for the rows that copy_strip takes next.
void prefetch_strip(const Source& a, int64_t rows, int64_t depth) {
  if (a.col != 1) return;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t p = 0; p < depth; p += sgemm::kLine) __builtin_prefetch(a.at(i, p), 0, 2);
}

// --- the product -------------------------------------------------------------------------------------------------

struct Product {
  int64_t m, n, k;
  Source a, b;
  float* c;
  int64_t c_row, c_col;
  Source start; // data NULL: zeros

  float* result(int64_t i, int64_t j) const { return c + i * c_row + j * c_col; }
};

// Rows [i, i + rows) and columns [j, j + cols) from one strip of A and rows of B. The first block of the depth starts
// from the addend, the others from what is there.
void multiply_strip(const Product& g, const Source& a, int64_t i, int64_t rows, const float* b, int64_t b_row,
                    int64_t panel, int64_t j, int64_t cols, int64_t depth, bool first) {
  const bool by_rows = a.col == 1;
  const auto kernel = [&](int64_t registers) {
    return by_rows ? sgemm::kernel<true>(rows, registers) : sgemm::kernel<false>(rows, registers);
  };
  float* const c = g.result(i, j);
  const float* const start = !first ? c : g.start.data ? g.start.at(i, j) : nullptr;
  const simd::Mask all = simd::first(kLanes);
  sgemm::Tile tile{a.data,  by_rows ? a.row : a.col,       nullptr, b_row, nullptr, g.c_row,
                   nullptr, first ? g.start.row : g.c_row, depth,   all,   true,    true};
  const int64_t widest = panel == 0 && rows <= kWideRows ? 4 : 2;
  const sgemm::MultiplyFn run_widest = kernel(widest);
  for (int64_t at = 0; at < cols;) {
    tile.b = panel == 0 ? b + at : b + at / kTileCols * panel;
    tile.c = c + at;
    tile.start = start ? start + at : nullptr;
    const int64_t left = cols - at;
    if (left >= widest * kLanes) {
      run_widest(tile);
      at += widest * kLanes;
      continue;
    }
    const int64_t needed = ceil_div(left, kLanes), registers = needed >= widest ? widest : needed >= 2 ? 2 : 1;
    tile.last = simd::first(std::min(kLanes, left - (registers - 1) * kLanes));
    tile.last_whole = left >= registers * kLanes;
    tile.b_whole = panel != 0 || tile.last_whole;
    kernel(registers)(tile);
    at += registers * kLanes;
  }
}

// Even parts, of whole rounds of the inner loop.
int64_t block_depth(int64_t k) { return std::min(k, ceil_div(ceil_div(k, ceil_div(k, kDepth)), kEven) * kEven); }

// B where it lies.
void multiply_unpacked(const Product& g) {
  static thread_local AlignedBuffer strip;
  // A narrow B stays in the L2 cache as a whole: rows of A are then read from end to end, once.
  const int64_t depth_block = g.n <= kTileCols && g.k * g.n <= kBlockStays ? g.k : block_depth(g.k);
  for (int64_t p = 0; p < g.k; p += depth_block) {
    const int64_t depth = std::min(depth_block, g.k - p);
    each_strip(g.m, kTileRows, [&](int64_t i, int64_t rows) {
      Source a{g.a.at(i, p), g.a.row, g.a.col};
      if (a.row != 1 && a.col != 1) a = copy_strip(a, rows, depth, strip);
      multiply_strip(g, a, i, rows, g.b.at(p, 0), g.b.row, 0, 0, g.n, depth, p == 0);
    });
  }
}

void multiply_packed(const Product& g) {
  static thread_local AlignedBuffer strip, block;
  const int64_t depth_block = block_depth(g.k);
  const int64_t cols_block = ceil_div(ceil_div(g.n, ceil_div(g.n, kCols)), kTileCols) * kTileCols;
  float* packed = block.get(depth_block * ceil_div(std::min(cols_block, g.n), kTileCols) * kTileCols);
  for (int64_t j = 0; j < g.n; j += cols_block) {
    const int64_t cols = std::min(cols_block, g.n - j);
    for (int64_t p = 0; p < g.k; p += depth_block) {
      const int64_t depth = std::min(depth_block, g.k - p);
      pack({g.b.at(p, j), g.b.row, g.b.col}, depth, cols, packed);
      each_strip(g.m, kTileRows, [&](int64_t i, int64_t rows) {
        const Source a = copy_strip({g.a.at(i, p), g.a.row, g.a.col}, rows, depth, strip);
        prefetch_strip({g.a.at(i + rows, p), g.a.row, g.a.col}, std::min(rows, g.m - i - rows), depth);
        multiply_strip(g, a, i, rows, packed, kTileCols, depth * kTileCols, j, cols, depth, p == 0);
      });
    }
  }
}

// With all of B packed beforehand, panel after panel.
void multiply_panels(const Product& g, const float* panels) {
  static thread_local AlignedBuffer strip;
  const int64_t depth_block = block_depth(g.k), panel = g.k * kTileCols;
  const int64_t cols_block = ceil_div(ceil_div(g.n, ceil_div(g.n, kCols)), kTileCols) * kTileCols;
  for (int64_t j = 0; j < g.n; j += cols_block) {
    const int64_t cols = std::min(cols_block, g.n - j);
    for (int64_t p = 0; p < g.k; p += depth_block) {
      const int64_t depth = std::min(depth_block, g.k - p);
      each_strip(g.m, kTileRows, [&](int64_t i, int64_t rows) {
        const Source a = copy_strip({g.a.at(i, p), g.a.row, g.a.col}, rows, depth, strip);
        prefetch_strip({g.a.at(i + rows, p), g.a.row, g.a.col}, std::min(rows, g.m - i - rows), depth);
        multiply_strip(g, a, i, rows, panels + j / kTileCols * panel + p * kTileCols, kTileCols, panel, j, cols, depth,
                       p == 0);
      });
    }
  }
}

// Strips of A and blocks of registers both end here.
constexpr int64_t kTurnedRows = simd::kRegisters == 32 ? 112 : 24;

// c (+ start) = the transpose of rows: `rows` of them, each of `cols` results of a strip's row.
void turn(const Product& g, const float* from, int64_t from_row, int64_t j, int64_t rows, bool first) {
  alignas(64) float block[kLanes * kLanes];
  for (int64_t r = 0; r < rows; r += kLanes) {
    const int64_t width = std::min(kLanes, rows - r);
    const simd::Mask mask = simd::first(width);
    for (int64_t i = 0; i < g.m; i += kLanes) {
      const int64_t height = std::min(kLanes, g.m - i);
      simd::transpose_block(from + r * from_row + i, from_row, width, height, block, kLanes);
      for (int64_t q = 0; q < height; ++q) {
        float* const c = g.result(i + q, j + r);
        const float* const start = !first ? c : g.start.data ? g.start.at(i + q, j + r) : nullptr;
        const simd::Vector sums = simd::load(block + q * kLanes);
        simd::store(c, start ? simd::add(sums, simd::load(start, mask)) : sums, mask);
      }
    }
  }
}

// B, whose columns are contiguous, as the left factor where it lies: few results are turned in place of all of B.
void multiply_turned(const Product& g) {
  static thread_local AlignedBuffer right, results;
  const int64_t depth_block = block_depth(g.k), step = ceil_div(g.m, kLanes) * kLanes;
  float* const rows = right.get(depth_block * ceil_div(g.m, kTileCols) * kTileCols);
  float* const turned = results.get(kTurnedRows * step);
  for (int64_t p = 0; p < g.k; p += depth_block) {
    const int64_t depth = std::min(depth_block, g.k - p);
    pack({g.a.at(0, p), g.a.col, g.a.row}, depth, g.m, rows);
    for (int64_t j = 0; j < g.n; j += kTurnedRows) {
      const int64_t here = std::min(kTurnedRows, g.n - j);
      const Product part{here, g.m, depth, {}, {}, turned, step, 1, {}};
      each_strip(here, kTileRows, [&](int64_t i, int64_t strip) {
        multiply_strip(part, {g.b.at(p, j + i), g.b.col, 1}, i, strip, rows, kTileCols, depth * kTileCols, 0, g.m,
                       depth, true);
      });
      turn(g, turned, step, j, here, p == 0);
    }
  }
}

// --- scalar products: rows of A with columns of B, both contiguous --------------------------------------------------

template <int R> void dot_rows(const Product& g, int64_t i, int64_t j) {
  const int64_t cols = std::min<int64_t>(kDotCols, g.n - j);
  const float* b[kDotCols];
  for (int64_t q = 0; q < kDotCols; ++q) b[q] = g.b.at(0, j + std::min(q, cols - 1));
  const bool plain = cols == kDotCols && g.c_col == 1 && !g.start.data;
  sgemm::dot<R>(g.a.at(i, 0), g.a.row, b, g.k, [&](int64_t row, __m128 sums) {
    if (plain) return _mm_storeu_ps(g.result(i + row, j), sums);
    alignas(16) float four[4];
    _mm_store_ps(four, sums);
    for (int64_t q = 0; q < cols; ++q)
      *g.result(i + row, j + q) = four[q] + (g.start.data ? *g.start.at(i + row, j + q) : 0.0f);
  });
}

template <int R> void dot_strip(const Product& g, int64_t i, int64_t rows, int64_t j) {
  if (rows == R) return dot_rows<R>(g, i, j);
  if constexpr (R > 1) dot_strip<R - 1>(g, i, rows, j);
}

void multiply_by_dots(const Product& g) {
  for (int64_t j = 0; j < g.n; j += kDotCols)
    each_strip(g.m, kDotRows, [&](int64_t i, int64_t rows) { dot_strip<kDotRows>(g, i, rows, j); });
}

// --- which ---------------------------------------------------------------------------------------------------------

Product product(const Gemm& g) {
  return {g.m,
          g.n,
          g.k,
          source(g.a),
          source(g.b),
          reinterpret_cast<float*>(g.c.data),
          g.c.row_stride,
          g.c.col_stride,
          source(g.addend)};
}

Product transposed(const Product& g) {
  const auto flip = [](const Source& s) { return Source{s.data, s.col, s.row}; };
  return {g.n, g.m, g.k, flip(g.b), flip(g.a), g.c, g.c_col, g.c_row, flip(g.start)};
}

// What is shorter than a register is added up in turn, as PyTorch adds it: places in pictures are such products.
bool dots_suit(const Product& g) {
  return g.a.col == 1 && g.b.row == 1 && g.k >= kLanes && (g.m <= kDotRows || (g.m <= kDotUpTo && g.k >= kDotFrom));
}

bool flipped_dots_suit(const Product& g) { return g.n < g.m && dots_suit(transposed(g)); }

// Rows that nearly fill registers: one or two, 0.8 to 1 of the time of packing (Sapphire Rapids, weights in the L2
// cache; Zen 3: 0.75 to 0.95), with AVX2 up to six where the weight comes from further away (Zen 3: 0.82 to 0.92).
bool turning_suits(const Product& g) {
  constexpr int64_t kSpare = 3, kFrom = 48, kFarFrom = 1 << 18; // lanes; depth; elements of the weight
  const int64_t registers = simd::kRegisters == 16 && g.n * g.k >= kFarFrom ? 6 : 2;
  return g.b.row == 1 && g.m <= registers * kLanes && ceil_div(g.m, kLanes) * kLanes - g.m <= kSpare &&
         g.k >= std::max(kFrom, 2 * g.m);
}

bool tiles_suit(const Product& g) { return g.c_col == 1 && (!g.start.data || g.start.col == 1); }

} // namespace
} // namespace sgemm_detail

bool tiled_gemm_takes(const Gemm& gemm) {
  using namespace sgemm_detail;
  const Product g = product(gemm);
  return tiles_suit(g) || tiles_suit(transposed(g));
}

bool gemm_by_dots(const Gemm& gemm) {
  using namespace sgemm_detail;
  const Product g = product(gemm);
  return flipped_dots_suit(g) || dots_suit(g);
}

void tiled_gemm(const Gemm& gemm) {
  using namespace sgemm_detail;
  Product g = product(gemm);
  if (flipped_dots_suit(g)) return multiply_by_dots(transposed(g));
  const bool turned = tiles_suit(g) && turning_suits(g);
  if (dots_suit(g) && !(turned && g.m > kLanes)) return multiply_by_dots(g);
  if (turned) return multiply_turned(g);
  if (!tiles_suit(g) || (g.n == 1 && tiles_suit(transposed(g)))) g = transposed(g);
  const bool crowded = simd::kRegisters == 16 && g.b.row % kCrowded == 0;
  const bool stays = block_depth(g.k) * g.n <= kBlockStays && g.b.row <= 2 * g.n && !crowded;
  g.b.col == 1 && (stays || g.m <= kUnpackedRows) ? multiply_unpacked(g) : multiply_packed(g);
}

int64_t gemm_panels(int64_t n, int64_t k) { return ceil_div(n, sgemm::kTileCols) * sgemm::kTileCols * k; }
void pack_gemm_panels(const Matrix& b, int64_t n, int64_t k, float* to) {
  using namespace sgemm_detail;
  pack(source(b), k, n, to);
}
void gemm_by_panels(const Gemm& gemm, const float* panels) {
  using namespace sgemm_detail;
  multiply_panels(product(gemm), panels);
}

#else

bool tiled_gemm_takes(const Gemm&) { return false; }
bool gemm_by_dots(const Gemm&) { return false; }
void tiled_gemm(const Gemm&) {}
int64_t gemm_panels(int64_t, int64_t) { return 0; }
void pack_gemm_panels(const Matrix&, int64_t, int64_t, float*) {}
void gemm_by_panels(const Gemm&, const float*) {}

#endif

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
