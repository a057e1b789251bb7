// A matrix product after Goto: panels of both operands are packed so that the inner kernel reads them in order.
#include "copy/box.h"
#include "dtype_switch.h"
#include "matmul.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void packed_gemm(const Gemm& gemm, bool accumulate);
float dot_half(int32_t dtype, int64_t n, const void* a, const void* b);
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
  template <class V> static void accumulate(V& sum, const V& a, const V& b) { sum = static_cast<V>(sum + a * b); }
};
struct Logic { // of truth values 0 and 1
  template <class V> static void accumulate(V& sum, const V& a, const V& b) { sum = static_cast<V>(sum | (a & b)); }
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

// A row of c or a column, whose elements are not worth packing: by scalar products where what they read lies in runs,
// by rows of b else.
template <class T, class Rule> bool multiply_thin(const Gemm& g, bool accumulate) {
  if (g.m != 1 && g.n != 1) return false;
  const T *a = reinterpret_cast<const T*>(g.a.data), *b = reinterpret_cast<const T*>(g.b.data);
  T* const c = reinterpret_cast<T*>(g.c.data);
  if (g.m == 1 && g.n > 1 && g.b.col_stride == 1 && g.c.col_stride == 1) {
    if (!accumulate) std::fill(c, c + g.n, T{0});
    for (int64_t p = 0; p < g.k; ++p) {
      const T scale = a[p * g.a.col_stride], *const row = b + p * g.b.row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < g.n; ++j) Rule::accumulate(c[j], scale, row[j]);
    }
    return true;
  }
  if (g.a.col_stride != 1 || g.b.row_stride != 1) return false;
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      const T *const left = a + i * g.a.row_stride, *const right = b + j * g.b.col_stride;
      T sum{0};
      for (int64_t p = 0; p < g.k; ++p) Rule::accumulate(sum, left[p], right[p]);
      T& to = c[i * g.c.row_stride + j * g.c.col_stride];
      if (accumulate) Rule::accumulate(sum, to, T{1});
      to = sum;
    }
  return true;
}

template <class T, class Rule> void multiply(const Gemm& g, bool accumulate) {
  if constexpr (std::is_integral_v<T>)
    if (multiply_thin<T, Rule>(g, accumulate)) return;
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
  const auto load_row = loader<float>(dtype_of<Half>());
  if (from.col_stride == 1 && from.row_stride == cols) return load_row(to, from.data, Box{1, rows * cols, 0, 1});
  for (int64_t i = 0; i < rows; ++i, to += cols)
    load_row(to, from.data + i * from.row_stride * int64_t{sizeof(Half)}, Box{1, cols, 0, from.col_stride});
}

template <class Half> void narrow(int64_t rows, int64_t cols, const float* from, const Matrix& to) {
  const auto store_row = storer<float>(dtype_of<Half>());
  if (to.col_stride == 1 && to.row_stride == cols) return store_row(to.data, from, Box{1, rows * cols, 0, 1});
  for (int64_t i = 0; i < rows; ++i, from += cols)
    store_row(to.data + i * to.row_stride * int64_t{sizeof(Half)}, from, Box{1, cols, 0, to.col_stride});
}

// In float32, part after part, by as many sums abreast as hide the latency of adding to one.
template <class Half> float dot(int64_t n, const Half* a, const Half* b) {
  constexpr int64_t kAbreast = 64, kPart = 512;
  const auto load_row = loader<float>(dtype_of<Half>());
  float sums[kAbreast] = {}, left[kPart], right[kPart];
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = std::min(kPart, n - first);
    load_row(left, reinterpret_cast<const char*>(a + first), Box{1, count, 0, 1});
    load_row(right, reinterpret_cast<const char*>(b + first), Box{1, count, 0, 1});
    int64_t i = 0;
    for (; i + kAbreast <= count; i += kAbreast)
      for (int64_t k = 0; k < kAbreast; ++k) sums[k] += left[i + k] * right[i + k];
    for (int64_t k = 0; i < count; ++i, ++k) sums[k] += left[i] * right[i];
  }
  for (int64_t width = kAbreast / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  return sums[0];
}

} // namespace

namespace TESSERACK_VARIANT {

float dot_half(int32_t dtype, int64_t n, const void* a, const void* b) {
  if (dtype == TS_BFLOAT16) return dot(n, static_cast<const BFloat16*>(a), static_cast<const BFloat16*>(b));
  return dot(n, static_cast<const Float16*>(a), static_cast<const Float16*>(b));
}

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
