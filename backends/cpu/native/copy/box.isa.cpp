#include "box.h"
#include "half_rows.h"
#include "int64_rows.h"
#include "stream.h"

#include <cstdlib>
#include <cstring>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using tesserack::cpu::convert_row; // of halves and of int64, which the compiler does not vectorise

// Out of line, so that each pair of types has one vectorised loop.
template <typename D, typename S>
__attribute__((noinline)) void convert_row(D* __restrict dst, const S* __restrict src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = convert<D>(src[i]);
}

// Walks the shorter stride innermost: whole cache lines, whatever the orientation.
inline bool rows_are_nearer(int64_t row_stride, int64_t col_stride) {
  return row_stride != 0 && std::llabs(row_stride) < std::llabs(col_stride);
}

// out[r * out_stride + c] = in[c * in_stride + r]: blocks of 4 x 4 words (2 x 2 double words) in registers.
template <typename U>
void transpose_block(U* out, int64_t out_stride, const U* in, int64_t in_stride, int64_t rows, int64_t cols) {
  constexpr int64_t side = sizeof(U) == 4 ? 4 : sizeof(U) == 8 ? 2 : 1;
  if constexpr (side == 1) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) out[r * out_stride + c] = in[c * in_stride + r];
    return;
  } else {
    typedef U V __attribute__((vector_size(16)));
    typedef std::conditional_t<sizeof(U) == 8, int64_t, int32_t> I;
    const int64_t whole_rows = rows / side * side, whole_cols = cols / side * side;
    for (int64_t c = 0; c < whole_cols; c += side)
      for (int64_t r = 0; r < whole_rows; r += side) {
        V v[side], w[side];
        for (int k = 0; k < side; ++k) std::memcpy(&v[k], in + (c + k) * in_stride + r, sizeof(V));
        if constexpr (side == 4) {
          typedef I M __attribute__((vector_size(16)));
          const V a = __builtin_shuffle(v[0], v[1], M{0, 4, 1, 5}), b = __builtin_shuffle(v[2], v[3], M{0, 4, 1, 5});
          const V d = __builtin_shuffle(v[0], v[1], M{2, 6, 3, 7}), e = __builtin_shuffle(v[2], v[3], M{2, 6, 3, 7});
          w[0] = __builtin_shuffle(a, b, M{0, 1, 4, 5});
          w[1] = __builtin_shuffle(a, b, M{2, 3, 6, 7});
          w[2] = __builtin_shuffle(d, e, M{0, 1, 4, 5});
          w[3] = __builtin_shuffle(d, e, M{2, 3, 6, 7});
        } else {
          typedef I M __attribute__((vector_size(16)));
          w[0] = __builtin_shuffle(v[0], v[1], M{0, 2});
          w[1] = __builtin_shuffle(v[0], v[1], M{1, 3});
        }
        for (int k = 0; k < side; ++k) std::memcpy(out + (r + k) * out_stride + c, &w[k], sizeof(V));
      }
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r) out[r * out_stride + c] = in[c * in_stride + r];
  }
}

constexpr int64_t kTile = 1024; // elements staged at once

typedef uint32_t Word __attribute__((may_alias)); // elements of any type, moved
typedef uint64_t DoubleWord __attribute__((may_alias));

// Every other element, as the parts of complex numbers lie, every third or fourth, as coordinates and colours do: a
// distance that the compiler knows, for vectors.
template <int Step>
__attribute__((noinline)) void gather_every(Word* __restrict dst, const Word* __restrict src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = src[Step * i];
}
template <int Step>
__attribute__((noinline)) void gather_every(DoubleWord* __restrict dst, const DoubleWord* __restrict src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = src[Step * i];
}
template <size_t N, int Step> void gather_rows(char* to, const char* from, const Box& box) {
  for (int64_t r = 0; r < box.rows; ++r, to += box.cols * N, from += box.row_stride * static_cast<int64_t>(N)) {
    if constexpr (N == 4)
      gather_every<Step>(reinterpret_cast<Word*>(to), reinterpret_cast<const Word*>(from), box.cols);
    else if constexpr (N == 8)
      gather_every<Step>(reinterpret_cast<DoubleWord*>(to), reinterpret_cast<const DoubleWord*>(from), box.cols);
  }
}

// dst[r * cols + c] = src[r * row_stride + c * col_stride] for elements of N bytes.
template <size_t N> __attribute__((noinline)) void gather_box(void* to, const void* from, const Box& box) {
  char* dst = static_cast<char*>(to);
  const char* src = static_cast<const char*>(from);
  const int64_t rows = box.rows, cols = box.cols, rs = box.row_stride * N, cs = box.col_stride * N;
  if (rows > 1 && rows_are_nearer(rs, cs)) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) std::memcpy(dst + (r * cols + c) * N, src + r * rs + c * cs, N);
  } else if ((N == 4 || N == 8) && box.col_stride >= 2 && box.col_stride <= 4) {
    box.col_stride == 2   ? gather_rows<N, 2>(dst, src, box)
    : box.col_stride == 3 ? gather_rows<N, 3>(dst, src, box)
                          : gather_rows<N, 4>(dst, src, box);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) std::memcpy(dst + (r * cols + c) * N, src + r * rs + c * cs, N);
  }
}

// dst[r * row_stride + c * col_stride] = src[r * cols + c] for elements of N bytes.
template <size_t N> __attribute__((noinline)) void scatter_box(void* to, const void* from, const Box& box) {
  char* dst = static_cast<char*>(to);
  const char* src = static_cast<const char*>(from);
  const int64_t rows = box.rows, cols = box.cols, rs = box.row_stride * N, cs = box.col_stride * N;
  if (rows > 1 && rows_are_nearer(rs, cs)) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) std::memcpy(dst + r * rs + c * cs, src + (r * cols + c) * N, N);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) std::memcpy(dst + r * rs + c * cs, src + (r * cols + c) * N, N);
  }
}

template <typename T> __attribute__((noinline)) void fill_row(T* dst, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = value;
}

// Calls part(dense offset, strided offset, box of at most kTile elements) for pieces of whole rows, or of one row.
template <typename F> void in_tiles(const Box& box, const F& part) {
  const int64_t width = box.cols < kTile ? box.cols : kTile, height = width > 0 ? kTile / width : 1;
  for (int64_t r = 0; r < box.rows; r += height)
    for (int64_t c = 0; c < box.cols; c += width) {
      const int64_t rows = box.rows - r < height ? box.rows - r : height;
      const int64_t cols = box.cols - c < width ? box.cols - c : width;
      part(r * box.cols + c, r * box.row_stride + c * box.col_stride, Box{rows, cols, box.row_stride, box.col_stride});
    }
}

// Strided elements are first brought together, so that there is one conversion loop for each pair of types.
template <typename S, typename T> void load_box(T* dst, const char* from, const Box& box) {
  const S* src = reinterpret_cast<const S*>(from);
  const int64_t rows = box.rows, cols = box.cols, rs = box.row_stride, cs = box.col_stride;
  if (cs == 1) {
    const int64_t together = rs == cols ? rows : 1;
    for (int64_t r = 0; r < rows; r += together) convert_row(dst + r * cols, src + r * rs, together * cols);
  } else if (cs == 0) {
    for (int64_t r = 0; r < rows; ++r) fill_row(dst + r * cols, convert<T>(src[r * rs]), cols);
  } else if constexpr (std::is_same_v<S, T>) {
    if (rows > 1 && rs == 1) return transpose_block(dst, cols, src, cs, rows, cols);
    gather_box<sizeof(S)>(dst, src, box);
  } else {
    alignas(64) S tile[kTile];
    in_tiles(box, [&](int64_t dense, int64_t strided, const Box& part) {
      gather_box<sizeof(S)>(tile, src + strided, part);
      convert_row(dst + dense, tile, part.rows * part.cols);
    });
  }
}

template <typename D, typename T> void store_box(char* to, const T* src, const Box& box) {
  D* dst = reinterpret_cast<D*>(to);
  const int64_t rows = box.rows, cols = box.cols, rs = box.row_stride, cs = box.col_stride;
  if (cs == 1) {
    const int64_t together = rs == cols ? rows : 1;
    for (int64_t r = 0; r < rows; r += together) convert_row(dst + r * rs, src + r * cols, together * cols);
  } else if constexpr (std::is_same_v<D, T>) {
    scatter_box<sizeof(D)>(dst, src, box);
  } else {
    alignas(64) D tile[kTile];
    in_tiles(box, [&](int64_t dense, int64_t strided, const Box& part) {
      convert_row(tile, src + dense, part.rows * part.cols);
      scatter_box<sizeof(D)>(dst + strided, tile, part);
    });
  }
}

struct Bytes16 {
  uint64_t low, high;
};

template <typename U> void move_box(char* to, const Box& box, const char* from, int64_t srs, int64_t scs) {
  U* dst = reinterpret_cast<U*>(to);
  const U* src = reinterpret_cast<const U*>(from);
  const int64_t rows = box.rows, cols = box.cols, rs = box.row_stride, cs = box.col_stride;
  if (cs == 1 && scs == 1) {
    for (int64_t r = 0; r < rows; ++r) copy_row(dst + r * rs, src + r * srs, cols * static_cast<int64_t>(sizeof(U)));
  } else if (cs == 1 && scs == 0) {
    for (int64_t r = 0; r < rows; ++r) {
      const U value = src[r * srs];
      for (int64_t c = 0; c < cols; ++c) dst[r * rs + c] = value;
    }
  } else if (cs == 1 && scs == -1) {
    for (int64_t r = 0; r < rows; ++r) {
      const U* const first = src + r * srs;
#pragma GCC ivdep
      for (int64_t c = 0; c < cols; ++c) dst[r * rs + c] = first[-c];
    }
  } else if (cs == 1 && srs == 1 && rows * cols <= kTile) {
    // Through a dense tile: writing a few columns of many rows at once would fight over a few sets of the L1 cache.
    alignas(64) U tile[kTile];
    transpose_block(tile, cols, src, scs, rows, cols);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(dst + r * rs, tile + r * cols, static_cast<size_t>(cols) * sizeof(U));
  } else if (rows > 1 && rows_are_nearer(srs, scs)) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) dst[r * rs + c * cs] = src[r * srs + c * scs];
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) dst[r * rs + c * cs] = src[r * srs + c * scs];
  }
}

} // namespace

template <> LoadFn<uint8_t> loader(int32_t dtype) {
  return dtype == TS_BOOL ? &load_box<Bool, uint8_t> : &load_box<uint8_t, uint8_t>;
}
template <> LoadFn<int8_t> loader(int32_t dtype) {
  return dtype == TS_BOOL ? &load_box<Bool, int8_t> : &load_box<int8_t, int8_t>;
}
template <> LoadFn<int16_t> loader(int32_t dtype) {
  return dtype == TS_BOOL ? &load_box<Bool, int16_t> : &load_box<int16_t, int16_t>;
}
template <> StoreFn<uint8_t> storer(int32_t dtype) {
  return dtype == TS_BOOL ? &store_box<Bool, uint8_t> : &store_box<uint8_t, uint8_t>;
}
template <> StoreFn<int8_t> storer(int32_t dtype) {
  return dtype == TS_BOOL ? &store_box<Bool, int8_t> : &store_box<int8_t, int8_t>;
}
template <> StoreFn<int16_t> storer(int32_t dtype) {
  return dtype == TS_BOOL ? &store_box<Bool, int16_t> : &store_box<int16_t, int16_t>;
}

template <typename T> LoadFn<T> loader(int32_t dtype) {
  return with_storage(dtype, []<typename S>() -> LoadFn<T> { return &load_box<S, T>; });
}
template <typename T> StoreFn<T> storer(int32_t dtype) {
  return with_storage(dtype, []<typename D>() -> StoreFn<T> { return &store_box<D, T>; });
}

MoveFn mover(int64_t item) {
  switch (item) {
  case 1: return &move_box<uint8_t>;
  case 2: return &move_box<uint16_t>;
  case 4: return &move_box<uint32_t>;
  case 8: return &move_box<uint64_t>;
  default: return &move_box<Bytes16>;
  }
}

template LoadFn<float> loader<float>(int32_t);
template LoadFn<double> loader<double>(int32_t);
template LoadFn<int32_t> loader<int32_t>(int32_t);
template LoadFn<int64_t> loader<int64_t>(int32_t);
template LoadFn<uint64_t> loader<uint64_t>(int32_t);
template StoreFn<float> storer<float>(int32_t);
template StoreFn<double> storer<double>(int32_t);
template StoreFn<int32_t> storer<int32_t>(int32_t);
template StoreFn<int64_t> storer<int64_t>(int32_t);
template StoreFn<uint64_t> storer<uint64_t>(int32_t);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
