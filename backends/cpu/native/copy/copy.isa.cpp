// Entry point `copy_cast`.
#include "copy.h"

#include "measured.h"
#include "pointwise/program.h"
#include "stream.h"
#include "threads.h"
#include "transpose.h"

#include <tesserack/narrow.hpp>

#include <array>
#include <cstring>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kBoxElements = 1024;
constexpr int64_t kParallelBytes = int64_t{1} << 18;

bool one_run(const Space& space, int k) {
  return space.nd == 2 && space.size[0] == 1 && (space.operands[k].stride[1] == 1 || space.size[1] == 1);
}

template <typename F> void for_boxes(const Space& space, const Tiling& tiling, F&& body) {
  const int64_t bytes = tiling.rows * tiling.cols * space.operands[0].item;
  parallel_for(0, tiling.count(), kParallelBytes / bytes + 1, [&](int64_t first, int64_t last) {
    BoxWalk walk(space, tiling, first);
    for (int64_t box = first; box < last; ++box) {
      body(walk);
      if (box + 1 < last) walk.next();
    }
  });
}

void move_run(char* to, const char* from, int64_t bytes) {
  const MeasuredPass measured(reinterpret_cast<uintptr_t>(&move_run), 2 * bytes, ways_on_offer(2 * bytes) & ~kAsking);
  const bool streamed = measured.way() == kStreamed, backwards = starts_at_the_end();
  parallel_for(0, bytes, kParallelBytes, [&](int64_t begin, int64_t end) {
    if (end - begin <= kParallelBytes) return plain_copy(to + begin, from + begin, end - begin);
    in_steps(begin, end, kParallelBytes, backwards, [&](int64_t first, int64_t last) {
      (streamed ? stream_copy : plain_copy)(to + first, from + first, last - first);
    });
    stream_fence();
  });
}

#ifdef TESSERACK_CPU_SIMD_F32
// A matrix that lies by columns, by rows, by lines of the caches.
bool transpose_matrix(const Space& space) {
  const Operand &to = space.operands[0], &from = space.operands[1];
  const int64_t rows = space.size[0], cols = space.size[1];
  if (space.nd != 2 || to.item != 4 || to.stride[1] != 1 || from.stride[0] != 1) return false;
  if (rows < kTransposeBand || cols < kTransposeBand || to.stride[0] < 0 || from.stride[1] <= 0) return false;
  float* const out = reinterpret_cast<float*>(to.base);
  const float* const in = reinterpret_cast<const float*>(from.base);
  const int64_t bytes = 2 * rows * cols * to.item, to_row = to.stride[0], from_col = from.stride[1];
  const bool by_lines = reinterpret_cast<uintptr_t>(out) % 64 == 0 && to_row % kTransposeLine == 0;
  const unsigned ways = by_lines ? ways_on_offer(bytes) & ~kAsking : kPlain;
  const MeasuredPass measured(reinterpret_cast<uintptr_t>(&transpose_matrix), bytes, ways);
  const auto band = measured.way() == kStreamed ? transpose_band<true> : transpose_band<false>;
  const int64_t bands = (rows + kTransposeBand - 1) / kTransposeBand;
  parallel_for(0, bands, kParallelBytes / (kTransposeBand * cols * to.item) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t r = b * kTransposeBand;
      band(out + r * to_row, to_row, in + r, from_col, std::min(kTransposeBand, rows - r), cols);
    }
    stream_fence();
  });
  return true;
}
#else
bool transpose_matrix(const Space&) { return false; }
#endif

// Same dtype: bytes are moved, never interpreted, so that NaN payloads survive.
void move_space(const Space& space) {
  Operand &to = space.operands[0], &from = space.operands[1];
  if (one_run(space, 0) && one_run(space, 1)) return move_run(to.base, from.base, space.size[1] * to.item);
  if (transpose_matrix(space)) return;
  // Long rows stay whole: the mover copies them at once.
  const bool rows = to.stride[space.nd - 1] == 1 && from.stride[space.nd - 1] == 1;
  const Tiling tiling = make_tiling(space, rows ? 16 * kBoxElements : kBoxElements);
  const MoveFn move = mover(to.item);
  for_boxes(space, tiling, [&](const BoxWalk& walk) {
    move(walk.at(0), walk.box(0), walk.at(1), walk.row_stride(1), walk.col_stride(1));
  });
}

// The compute type to convert in: the destination's own where it holds every source value, so that elements go straight
// there; else the one that does.
int32_t cast_dtype(int32_t to, int32_t from) {
  const bool whole = backend::is_integral(from) || from == TS_BOOL;
  const int64_t bytes = backend::dtype_size(from);
  if (to == TS_FLOAT32 && whole && bytes <= 2) return to;
  if (to == TS_FLOAT64 && (!whole || bytes <= 4)) return to;
  if (to == TS_INT64 && whole && from != TS_UINT64) return to;
  return natural_compute(from);
}

// Through a compute type that holds every source value; a source of that very type is stored from in place.
template <typename T> void cast_space(const Space& space) {
  const Tiling tiling = make_tiling(space, kBoxElements);
  const Operand &to = space.operands[0], &from = space.operands[1];
  const LoadFn<T> load = loader<T>(from.dtype);
  const StoreFn<T> store = storer<T>(to.dtype);
  const bool whole_rows = tiling.col_blocks == 1, one_row = tiling.rows == 1;
  const int last = space.nd - 1;
  const auto dense = [&](const Operand& a) {
    return a.dtype == dtype_of<T>() && a.stride[last] == 1 &&
           (one_row || (whole_rows && a.stride[last - 1] == space.cols()));
  };
  const bool from_dense = dense(from), to_dense = dense(to);
  for_boxes(space, tiling, [&](const BoxWalk& walk) {
    alignas(64) T tile[kBoxElements];
    if (to_dense) return load(reinterpret_cast<T*>(walk.at(0)), walk.at(1), walk.box(1));
    const T* values = tile;
    if (from_dense)
      values = reinterpret_cast<const T*>(walk.at(1));
    else
      load(tile, walk.at(1), walk.box(1));
    store(walk.at(0), values, walk.box(0));
  });
}

// The parts of complex numbers apart, and together again. Neighbours have loops of their own, which become vectors.
template <typename C, typename T>
__attribute__((noinline)) void take_row(const C* __restrict from, int64_t step, T* __restrict re, T* __restrict im,
                                        int64_t n) {
  const auto part = [](C value) { return convert<T>(value); };
  if (step == 2)
    for (int64_t i = 0; i < n; ++i) re[i] = part(from[2 * i]), im[i] = part(from[2 * i + 1]);
  else
    for (int64_t i = 0; i < n; ++i) re[i] = part(from[step * i]), im[i] = part(from[step * i + 1]);
}
template <typename C, typename T>
__attribute__((noinline)) void put_row(C* __restrict to, int64_t step, const T* __restrict re, const T* __restrict im,
                                       int64_t n) {
  const auto part = [](T value) { return convert<C>(value); };
  if (step == 2)
    for (int64_t i = 0; i < n; ++i) to[2 * i] = part(re[i]), to[2 * i + 1] = part(im[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[step * i] = part(re[i]), to[step * i + 1] = part(im[i]);
}
template <typename C, typename T> void take_parts(const BoxWalk& walk, T* re, T* im) {
  const C* const from = reinterpret_cast<const C*>(walk.at(1));
  for (int64_t r = 0, at = 0; r < walk.rows(); ++r, at += walk.cols())
    take_row(from + 2 * r * walk.row_stride(1), 2 * walk.col_stride(1), re + at, im + at, walk.cols());
}
template <typename C, typename T> void put_parts(const BoxWalk& walk, const T* re, const T* im) {
  C* const to = reinterpret_cast<C*>(walk.at(0));
  for (int64_t r = 0, at = 0; r < walk.rows(); ++r, at += walk.cols())
    put_row(to + 2 * r * walk.row_stride(0), 2 * walk.col_stride(0), re + at, im + at, walk.cols());
}

// Floats of 8 bits, by way of float32. Not loaders and storers of their own: each would be compiled for every type that
// is computed with.
const float* narrow_values(int32_t dtype) {
  static constexpr auto tables = [] {
    std::array<backend::NarrowTable, TS_NUM_DTYPES - TS_FLOAT8_E4M3FN> all{};
    for (size_t k = 0; k < all.size(); ++k) all[k] = backend::narrow_table(TS_FLOAT8_E4M3FN + static_cast<int32_t>(k));
    return all;
  }();
  return tables[static_cast<size_t>(dtype - TS_FLOAT8_E4M3FN)].data();
}
void take_narrow(const BoxWalk& walk, const float* values, float* to) {
  for (int64_t r = 0; r < walk.rows(); ++r)
    for (int64_t c = 0; c < walk.cols(); ++c)
      *to++ = values[static_cast<uint8_t>(walk.at(1)[r * walk.row_stride(1) + c * walk.col_stride(1)])];
}
void put_narrow(const BoxWalk& walk, int32_t dtype, const float* from) {
  for (int64_t r = 0; r < walk.rows(); ++r)
    for (int64_t c = 0; c < walk.cols(); ++c)
      walk.at(0)[r * walk.row_stride(0) + c * walk.col_stride(0)] =
          static_cast<char>(backend::float_to_narrow(dtype, *from++));
}

bool in_parts(int32_t dtype) { return backend::is_complex(dtype) || backend::is_narrow(dtype); }

// Complex, or a float of 8 bits, on either side. T holds every real part: 64-bit integers pass through float64, as
// elsewhere. It is float where a float of 8 bits takes part.
template <typename T> void cast_complex(const Space& space) {
  const Tiling tiling = make_tiling(space, kBoxElements);
  const int32_t to = space.operands[0].dtype, from = space.operands[1].dtype;
  const LoadFn<T> load = in_parts(from) ? nullptr : loader<T>(from);
  const StoreFn<T> store = in_parts(to) ? nullptr : storer<T>(to);
  for_boxes(space, tiling, [&](const BoxWalk& walk) {
    alignas(64) T re[kBoxElements], im[kBoxElements];
    const int64_t n = walk.rows() * walk.cols();
    if (load) {
      load(re, walk.at(1), walk.box(1));
      std::fill_n(im, n, T{0});
    } else if (from == TS_COMPLEX64) {
      take_parts<float>(walk, re, im);
    } else if (from == TS_COMPLEX32) {
      take_parts<Half>(walk, re, im);
    } else if (from == TS_COMPLEX128) {
      take_parts<double>(walk, re, im);
    } else if constexpr (std::is_same_v<T, float>) {
      take_narrow(walk, narrow_values(from), re);
      std::fill_n(im, n, T{0});
    }
    if constexpr (std::is_same_v<T, float>)
      if (backend::is_narrow(to)) return put_narrow(walk, to, re);
    if (to == TS_COMPLEX64) return put_parts<float>(walk, re, im);
    if (to == TS_COMPLEX32) return put_parts<Half>(walk, re, im);
    if (to == TS_COMPLEX128) return put_parts<double>(walk, re, im);
    if (to == TS_BOOL)
      for (int64_t i = 0; i < n; ++i) re[i] = static_cast<T>(re[i] != 0 || im[i] != 0);
    store(walk.at(0), re, walk.box(0));
  });
}

bool fits_float(int32_t dtype) {
  return dtype == TS_COMPLEX64 || dtype == TS_COMPLEX32 || dtype == TS_FLOAT32 || dtype == TS_FLOAT16 ||
         dtype == TS_BFLOAT16;
}

void copy_cast(const backend::Call& call) {
  const ts_tensor *out = call.out(0).raw(), *in = call.in(0).raw();
  Operand operands[2];
  double value[2] = {0.0, 0.0}; // a scalar source, spread with stride 0
  require_dims("copy_cast", out->ndim);
  set_operand(operands[0], out);
  Space space;
  space.operands = operands;
  space.n_operands = 2;
  space.nd = out->ndim;
  for (int d = 0; d < space.nd; ++d) space.size[d] = out->sizes[d];
  if ((in->flags & TS_T_SCALAR) != 0) {
    write_number(reinterpret_cast<char*>(value), in->dtype, backend::Tensor(in).scalar());
    if (backend::is_integral(in->dtype))
      storer<int64_t>(in->dtype)(reinterpret_cast<char*>(value), &in->scalar.i, Box{1, 1, 0, 0});
    operands[1].base = reinterpret_cast<char*>(value);
    operands[1].dtype = in->dtype;
    operands[1].item = backend::dtype_size(in->dtype);
    for (int d = 0; d < space.nd; ++d) operands[1].stride[d] = 0;
  } else {
    set_operand(operands[1], in);
    if ((in->flags & out->flags & TS_T_CONTIGUOUS) != 0) {
      space.nd = 1;
      space.size[0] = out->numel;
      operands[0].stride[0] = operands[1].stride[0] = 1;
    }
  }
  copy_space(space);
}

__attribute__((noinline)) void truth_of_run(uint8_t* __restrict to, const uint8_t* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] != 0;
}
void truth_of_bytes(const Space& space) {
  uint8_t* const to = reinterpret_cast<uint8_t*>(space.operands[0].base);
  const uint8_t* const from = reinterpret_cast<const uint8_t*>(space.operands[1].base);
  parallel_for(0, space.size[1], kParallelBytes,
               [&](int64_t begin, int64_t end) { truth_of_run(to + begin, from + begin, end - begin); });
}

} // namespace

void write_number(char* at, int32_t dtype, std::complex<double> z) {
  const std::complex<float> narrow(z);
  if (dtype == TS_COMPLEX64) {
    std::memcpy(at, &narrow, sizeof narrow);
  } else if (dtype == TS_COMPLEX128) {
    std::memcpy(at, &z, sizeof z);
  } else if (dtype == TS_COMPLEX32) {
    const Half halves[] = {float_to_half(narrow.real()), float_to_half(narrow.imag())};
    std::memcpy(at, halves, sizeof halves);
  } else if (backend::is_narrow(dtype)) {
    *at = static_cast<char>(backend::float_to_narrow(dtype, narrow.real()));
  } else {
    const double real = dtype == TS_BOOL ? static_cast<double>(z != 0.0) : z.real();
    storer<double>(dtype)(at, &real, Box{1, 1, 0, 0});
  }
}

void copy_space(Space& space) {
  normalise(space);
  const int32_t to = space.operands[0].dtype, from = space.operands[1].dtype;
  if (to == from) return move_space(space);
  const auto is_byte = [](int32_t dtype) { return dtype == TS_BOOL || dtype == TS_UINT8 || dtype == TS_INT8; };
  if (is_byte(to) && is_byte(from) && (to == TS_BOOL || from == TS_BOOL) && one_run(space, 0) && one_run(space, 1))
    return truth_of_bytes(space);
  if (backend::is_narrow(to) || backend::is_narrow(from)) return cast_complex<float>(space);
  if (backend::is_complex(to) || backend::is_complex(from))
    return fits_float(to) && fits_float(from) ? cast_complex<float>(space) : cast_complex<double>(space);
  with_compute(cast_dtype(to, from), [&]<typename T>() { cast_space<T>(space); });
}

constexpr uint64_t kAllDtypes = (uint64_t{1} << TS_NUM_DTYPES) - 1;
TS_KERNEL_AS("copy_cast", copy_cast, kAllDtypes, TS_L_STRIDED);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
