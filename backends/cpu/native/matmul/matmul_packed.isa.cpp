// A matrix product after Goto: panels of both operands are packed so that the inner kernel reads them in order.
#include "dtype_switch.h"
#include "matmul.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void packed_gemm(const Gemm& gemm, bool accumulate);
void widen_half(int32_t dtype, int64_t rows, int64_t cols, const Matrix& from, float* to);
void narrow_half(int32_t dtype, int64_t rows, int64_t cols, const float* from, const Matrix& to);

} // namespace TESSERACK_VARIANT

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kTileRows = 8;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kTileRows = 4;
#else
constexpr int kVectorBytes = 16, kTileRows = 4;
#endif
constexpr int64_t kDepth = 256, kRowsBlock = 96; // of a packed block of A, which stays in the L2 cache

struct Arithmetic {
  template <class V> static void accumulate(V& sum, const V& a, const V& b) { sum += a * b; }
};
struct Logic { // of truth values 0 and 1
  template <class V> static void accumulate(V& sum, const V& a, const V& b) { sum |= a & b; }
};

template <class T> struct Tile {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  static constexpr int64_t lanes = kVectorBytes / sizeof(T), cols = 2 * lanes;
};

// Panels of `width` rows (or columns), each stored depth by depth, the last one padded with zeros.
template <class T>
void pack(const T* from, int64_t count, int64_t step, int64_t depth, int64_t depth_step, int64_t width, T* to) {
  for (int64_t panel = 0; panel < count; panel += width, from += width * step) {
    const int64_t present = std::min(width, count - panel);
    for (int64_t p = 0; p < depth; ++p, to += width) {
      const T* line = from + p * depth_step;
      for (int64_t i = 0; i < present; ++i) to[i] = line[i * step];
      for (int64_t i = present; i < width; ++i) to[i] = T{0};
    }
  }
}

// One tile of C from a panel of each operand.
template <class T, class Rule> void multiply_tile(const T* a, const T* b, int64_t depth, T* tile) {
  using Vector = typename Tile<T>::Vector;
  Vector sums[kTileRows][2] = {};
  for (int64_t p = 0; p < depth; ++p, a += kTileRows, b += Tile<T>::cols) {
    Vector left, right;
    std::memcpy(&left, b, sizeof left);
    std::memcpy(&right, b + Tile<T>::lanes, sizeof right);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const Vector scale = Vector{} + a[i];
      Rule::accumulate(sums[i][0], scale, left);
      Rule::accumulate(sums[i][1], scale, right);
    }
  }
  std::memcpy(tile, sums, sizeof sums);
}

template <class T, class Rule>
void store_tile(const T* tile, int64_t rows, int64_t cols, T* c, int64_t row_stride, int64_t col_stride, bool add) {
  for (int64_t i = 0; i < rows; ++i, tile += Tile<T>::cols, c += row_stride) {
    for (int64_t j = 0; j < cols; ++j) {
      T value = add ? c[j * col_stride] : T{0};
      if constexpr (std::is_same_v<Rule, Logic>) {
        value = static_cast<T>(value | tile[j]);
      } else {
        value = static_cast<T>(value + tile[j]);
      }
      c[j * col_stride] = value;
    }
  }
}

template <class T, class Rule> void multiply(const Gemm& g, bool accumulate) {
  constexpr int64_t tile_cols = Tile<T>::cols, cols_block = 8 * tile_cols;
  const T *a = reinterpret_cast<const T*>(g.a.data), *b = reinterpret_cast<const T*>(g.b.data);
  T* c = reinterpret_cast<T*>(g.c.data);
  const int64_t depth_block = std::min(kDepth, g.k);
  const auto panels = [](int64_t count, int64_t width) { return (count + width - 1) / width * width; };
  std::vector<T> a_block(static_cast<size_t>(panels(std::min(kRowsBlock, g.m), kTileRows) * depth_block));
  std::vector<T> b_block(static_cast<size_t>(panels(std::min(cols_block, g.n), tile_cols) * depth_block));
  alignas(64) T tile[kTileRows * tile_cols];
  for (int64_t jc = 0; jc < g.n; jc += cols_block) {
    const int64_t cols = std::min(cols_block, g.n - jc);
    for (int64_t pc = 0; pc < g.k; pc += depth_block) {
      const int64_t depth = std::min(depth_block, g.k - pc);
      pack(b + pc * g.b.row_stride + jc * g.b.col_stride, cols, g.b.col_stride, depth, g.b.row_stride, tile_cols,
           b_block.data());
      for (int64_t ic = 0; ic < g.m; ic += kRowsBlock) {
        const int64_t rows = std::min(kRowsBlock, g.m - ic);
        pack(a + ic * g.a.row_stride + pc * g.a.col_stride, rows, g.a.row_stride, depth, g.a.col_stride, kTileRows,
             a_block.data());
        for (int64_t jr = 0; jr < cols; jr += tile_cols) {
          for (int64_t ir = 0; ir < rows; ir += kTileRows) {
            multiply_tile<T, Rule>(a_block.data() + ir * depth, b_block.data() + jr * depth, depth, tile);
            store_tile<T, Rule>(tile, std::min<int64_t>(kTileRows, rows - ir), std::min(tile_cols, cols - jr),
                                c + (ic + ir) * g.c.row_stride + (jc + jr) * g.c.col_stride, g.c.row_stride,
                                g.c.col_stride, accumulate || pc > 0);
          }
        }
      }
    }
  }
}

template <class Half> void widen(int64_t rows, int64_t cols, const Matrix& from, float* to) {
  const Half* source = reinterpret_cast<const Half*>(from.data);
  for (int64_t i = 0; i < rows; ++i, to += cols) {
    const Half* row = source + i * from.row_stride;
    if (from.col_stride == 1) {
      for (int64_t j = 0; j < cols; ++j) to[j] = load(row[j]);
    } else {
      for (int64_t j = 0; j < cols; ++j) to[j] = load(row[j * from.col_stride]);
    }
  }
}

template <class Half> void narrow(int64_t rows, int64_t cols, const float* from, const Matrix& to) {
  Half* target = reinterpret_cast<Half*>(to.data);
  for (int64_t i = 0; i < rows; ++i, from += cols) {
    Half* row = target + i * to.row_stride;
    if (to.col_stride == 1) {
      for (int64_t j = 0; j < cols; ++j) row[j] = store<Half>(from[j]);
    } else {
      for (int64_t j = 0; j < cols; ++j) row[j * to.col_stride] = store<Half>(from[j]);
    }
  }
}

} // namespace

namespace TESSERACK_VARIANT {

void packed_gemm(const Gemm& gemm, bool accumulate) {
  switch (gemm.dtype) {
  case TS_BOOL: return multiply<uint8_t, Logic>(gemm, accumulate);
  case TS_UINT8:
  case TS_INT8: return multiply<uint8_t, Arithmetic>(gemm, accumulate);
  case TS_UINT16:
  case TS_INT16: return multiply<uint16_t, Arithmetic>(gemm, accumulate);
  case TS_UINT32:
  case TS_INT32: return multiply<uint32_t, Arithmetic>(gemm, accumulate);
  case TS_UINT64:
  case TS_INT64: return multiply<uint64_t, Arithmetic>(gemm, accumulate);
  case TS_FLOAT32: return multiply<float, Arithmetic>(gemm, accumulate);
  case TS_FLOAT64: return multiply<double, Arithmetic>(gemm, accumulate);
  default: backend::fail(TS_ERROR, "matmul: no kernel for dtype %s", backend::dtype_name(gemm.dtype));
  }
}

void widen_half(int32_t dtype, int64_t rows, int64_t cols, const Matrix& from, float* to) {
  if (dtype == TS_BFLOAT16) return widen<BFloat16>(rows, cols, from, to);
  widen<Float16>(rows, cols, from, to);
}

void narrow_half(int32_t dtype, int64_t rows, int64_t cols, const float* from, const Matrix& to) {
  if (dtype == TS_BFLOAT16) return narrow<BFloat16>(rows, cols, from, to);
  narrow<Float16>(rows, cols, from, to);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
