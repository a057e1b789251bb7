// Entry point `scan`: inclusive sums, products, maxima and minima along the last dimension.
#include "copy/stream.h"
#include "nn/rows.h"
#include "pointwise/geometry.h"
#include "threads.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kParallelElements = 16384;
constexpr int64_t kTile = 1024;

// float32 sums and products are carried in float64.
template <typename T> using Carry = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <int Op, typename T> inline Carry<T> next(Carry<T> carry, T x) {
  return Op == TS_R_SUM ? carry + static_cast<Carry<T>>(x) : carry * static_cast<Carry<T>>(x);
}

// `to` may be `from`.
template <int Op, typename T>
inline void accumulate(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n, Carry<T>& carry) {
  Carry<T> c = carry;
  for (int64_t i = 0; i < n; ++i) to[i * to_stride] = static_cast<T>(c = next<Op>(c, from[i * from_stride]));
  carry = c;
}

struct Row {
  const char* in;
  char* out;
  int64_t* positions; // may be null
  int64_t in_stride, out_stride, position_stride;
};

// Several rows side by side: one addition waits for the one before it only within its own row.
constexpr int kTogether = 4;
template <int Op, typename T>
inline void accumulate_together(const T* const* from, int64_t from_stride, T* const* to, int64_t to_stride, int64_t n,
                                Carry<T>* carry) {
  Carry<T> c[kTogether];
  for (int k = 0; k < kTogether; ++k) c[k] = carry[k];
  for (int64_t i = 0; i < n; ++i)
    for (int k = 0; k < kTogether; ++k)
      to[k][i * to_stride] = static_cast<T>(c[k] = next<Op>(c[k], from[k][i * from_stride]));
  for (int k = 0; k < kTogether; ++k) carry[k] = c[k];
}

// A number never replaces a NaN: its comparisons are false.
template <bool Largest, typename T> inline bool replaces(T x, T best) {
  return (Largest ? x >= best : x <= best) | (x != x);
}

// The last of equal values wins, and the last NaN. Where nothing of a block replaces the best, as in most of them, it
// is filled at once.
template <bool Largest, typename T>
inline void extreme(T* tile, int64_t n, int64_t first, T& best, int64_t& best_at, const Row& row) {
  constexpr int64_t block = 64 / static_cast<int64_t>(sizeof(T)) * 2;
  int64_t i = 0;
  const auto one = [&] {
    if (best_at < 0 || replaces<Largest>(tile[i], best)) {
      best = tile[i];
      best_at = first + i;
    }
    tile[i] = best;
    if (row.positions != nullptr) row.positions[(first + i) * row.position_stride] = best_at;
    ++i;
  };
  if (n > 0 && best_at < 0) one();
  while (i + block <= n) {
    int any = 0;
    for (int64_t j = 0; j < block; ++j) any |= replaces<Largest>(tile[i + j], best);
    if (any != 0) {
      for (int64_t end = i + block; i < end;) one();
      continue;
    }
    std::fill_n(tile + i, block, best);
    if (row.positions != nullptr && row.position_stride == 1)
      std::fill_n(row.positions + first + i, block, best_at);
    else if (row.positions != nullptr)
      for (int64_t j = 0; j < block; ++j) row.positions[(first + i + j) * row.position_stride] = best_at;
    i += block;
  }
  while (i < n) one();
}

// The same for a sum of float32 as kTogether runs side by side, each from the sum of those before it: in float64 the
// order of additions does not show.
constexpr int64_t kRunsFrom = 64;
inline void accumulate_runs(float* tile, int64_t n, double& carry) {
  const int64_t part = n / kTogether;
  double starts[kTogether];
  for (int k = 0; k < kTogether; ++k) {
    starts[k] = carry;
    double sums[8] = {};
    int64_t i = k * part;
    for (; i + 8 <= (k + 1) * part; i += 8)
      for (int j = 0; j < 8; ++j) sums[j] += static_cast<double>(tile[i + j]);
    for (; i < (k + 1) * part; ++i) sums[0] += static_cast<double>(tile[i]);
    carry += ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
  float* const parts[kTogether] = {tile, tile + part, tile + 2 * part, tile + 3 * part};
  accumulate_together<TS_R_SUM, float>(parts, 1, parts, 1, part, starts);
  float* const rest = tile + kTogether * part;
  accumulate<TS_R_SUM, float>(rest, 1, rest, 1, n - kTogether * part, carry);
}

#if defined(__AVX512F__)
#define TESSERACK_CPU_SUM_RUNS 1
// Eight at a time: three shifted additions make their own sums, then the carry joins. In float64 the order of additions
// does not show.
inline int64_t accumulate_registers(const float* from, float* to, int64_t n, double& carry) {
  const __m512i one = _mm512_setr_epi64(0, 0, 1, 2, 3, 4, 5, 6), two = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 4, 5),
                four = _mm512_setr_epi64(0, 1, 2, 3, 0, 1, 2, 3), last = _mm512_set1_epi64(7);
  const auto sums = [&](__m512d x) {
    x = _mm512_add_pd(x, _mm512_maskz_permutexvar_pd(0xfe, one, x));
    x = _mm512_add_pd(x, _mm512_maskz_permutexvar_pd(0xfc, two, x));
    return _mm512_add_pd(x, _mm512_maskz_permutexvar_pd(0xf0, four, x));
  };
  __m512d before = _mm512_set1_pd(carry);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512d low = sums(_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from + i)));
    const __m512d high = sums(_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from + i + 8)));
    const __m512d middle = _mm512_add_pd(before, _mm512_maskz_permutexvar_pd(0xff, last, low));
    _mm256_storeu_ps(to + i, _mm512_maskz_cvtpd_ps(0xff, _mm512_add_pd(before, low)));
    _mm256_storeu_ps(to + i + 8, _mm512_maskz_cvtpd_ps(0xff, _mm512_add_pd(middle, high)));
    before = _mm512_add_pd(middle, _mm512_maskz_permutexvar_pd(0xff, last, high));
  }
  carry = _mm512_cvtsd_f64(before);
  return i;
}
#elif defined(__AVX2__)
#define TESSERACK_CPU_SUM_RUNS 1
// The same, four at a time.
inline int64_t accumulate_registers(const float* from, float* to, int64_t n, double& carry) {
  const __m256d zero = _mm256_setzero_pd();
  const auto sums = [&](__m256d x) {
    x = _mm256_add_pd(x, _mm256_blend_pd(_mm256_permute4x64_pd(x, 0x90), zero, 1));
    return _mm256_add_pd(x, _mm256_permute2f128_pd(x, x, 0x08));
  };
  __m256d before = _mm256_set1_pd(carry);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256d low = sums(_mm256_cvtps_pd(_mm_loadu_ps(from + i)));
    const __m256d high = sums(_mm256_cvtps_pd(_mm_loadu_ps(from + i + 4)));
    const __m256d middle = _mm256_add_pd(before, _mm256_permute4x64_pd(low, 0xff));
    _mm_storeu_ps(to + i, _mm256_cvtpd_ps(_mm256_add_pd(before, low)));
    _mm_storeu_ps(to + i + 4, _mm256_cvtpd_ps(_mm256_add_pd(middle, high)));
    before = _mm256_add_pd(middle, _mm256_permute4x64_pd(high, 0xff));
  }
  carry = _mm256_cvtsd_f64(before);
  return i;
}
#endif

#ifdef TESSERACK_CPU_SUM_RUNS
// A row of float32 that lies in one run, read and written where it lies.
inline void sum_run(const float* from, float* to, int64_t n, double carry) {
  constexpr int64_t part = 256;
  for (int64_t i = 0; i < n; i += part) {
    const int64_t count = n - i < part ? n - i : part;
    Soon<float>{from + i + 2 * part, to + i + 2 * part}.ask(0, part);
    for (int64_t j = accumulate_registers(from + i, to + i, count, carry); j < count; ++j)
      to[i + j] = static_cast<float>(carry += static_cast<double>(from[i + j]));
  }
}

// One long row by all threads: chunks are summed first, then each is scanned from the sum of those before it.
constexpr int64_t kSharedFrom = 1 << 18, kChunk = 1 << 15;
inline double sum_of(const float* from, int64_t n) {
  double sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Soon<float>{from + i + 512, nullptr}.ask(0, 16);
    for (int j = 0; j < 16; ++j) sums[j] += static_cast<double>(from[i + j]);
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(from[i]);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  return sums[0];
}
void scan_shared(const float* from, float* to, int64_t n) {
  const int64_t chunks = ceil_div(n, kChunk);
  const auto size = [&](int64_t chunk) { return std::min(kChunk, n - chunk * kChunk); };
  std::vector<double> starts(static_cast<size_t>(chunks) + 1, 0.0);
  parallel_for(0, chunks - 1, 1, [&](int64_t first, int64_t end) {
    for (int64_t c = first; c < end; ++c) starts[static_cast<size_t>(c) + 1] = sum_of(from + c * kChunk, size(c));
  });
  for (size_t c = 1; c < starts.size(); ++c) starts[c] += starts[c - 1];
  parallel_for(0, chunks, 1, [&](int64_t first, int64_t end) {
    for (int64_t c = first; c < end; ++c)
      sum_run(from + c * kChunk, to + c * kChunk, size(c), starts[static_cast<size_t>(c)]);
  });
}
#endif

// How the elements of rows are read and written: as they lie if both are of the compute type, else by tiles.
template <typename T> struct Access {
  LoadFn<T> load;
  StoreFn<T> store;
  int64_t in_item, out_item;
  bool reads, writes; // are of the compute type

  Access(int32_t in, int32_t out)
      : load(loader<T>(in)), store(storer<T>(out)), in_item(backend::dtype_size(in)),
        out_item(backend::dtype_size(out)), reads(in == dtype_of<T>()), writes(out == dtype_of<T>()) {}
};
template <typename T> const T* source(const Row& row) { return reinterpret_cast<const T*>(row.in); }
template <typename T> T* target(const Row& row) { return reinterpret_cast<T*>(row.out); }

template <int Op, typename T> void scan_row(const Row& row, int64_t n, const Access<T>& access) {
  Carry<T> carry = Op == TS_R_SUM ? 0 : 1;
  if constexpr (Op == TS_R_SUM || Op == TS_R_PROD)
    if (access.reads && access.writes) {
#ifdef TESSERACK_CPU_SUM_RUNS
      if constexpr (Op == TS_R_SUM && std::is_same_v<T, float>)
        if (row.in_stride == 1 && row.out_stride == 1) return sum_run(source<T>(row), target<T>(row), n, 0.0);
#endif
      if (Op != TS_R_SUM || !std::is_same_v<T, float> || n < kRunsFrom)
        return accumulate<Op>(source<T>(row), row.in_stride, target<T>(row), row.out_stride, n, carry);
    }
  alignas(64) T tile[kTile];
  T best{};
  int64_t best_at = -1;
  const bool in_place = access.writes && row.out_stride == 1;
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t part = n - i < kTile ? n - i : kTile;
    T* const at = in_place ? target<T>(row) + i : tile;
    access.load(at, row.in + i * row.in_stride * access.in_item, Box{1, part, 0, row.in_stride});
    if constexpr (Op == TS_R_SUM && std::is_same_v<T, float>)
      part >= kRunsFrom ? accumulate_runs(at, part, carry) : accumulate<Op, T>(at, 1, at, 1, part, carry);
    else if constexpr (Op == TS_R_SUM || Op == TS_R_PROD)
      accumulate<Op, T>(at, 1, at, 1, part, carry);
    else
      extreme<Op == TS_R_MAX>(at, part, i, best, best_at, row);
    if (!in_place) access.store(row.out + i * row.out_stride * access.out_item, at, Box{1, part, 0, row.out_stride});
  }
}

template <int Op, typename T> void scan_rows_together(const Row* rows, int64_t n, const Access<T>& access) {
  Carry<T> carry[kTogether];
  for (Carry<T>& c : carry) c = Op == TS_R_SUM ? 0 : 1;
  const T* from[kTogether];
  T* to[kTogether];
  if (access.reads && access.writes) {
    for (int k = 0; k < kTogether; ++k) from[k] = source<T>(rows[k]), to[k] = target<T>(rows[k]);
    return accumulate_together<Op, T>(from, rows->in_stride, to, rows->out_stride, n, carry);
  }
  constexpr int64_t kPart = kTile / kTogether;
  alignas(64) T tile[kTile];
  for (int k = 0; k < kTogether; ++k) from[k] = to[k] = tile + k * kPart;
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t part = n - i < kPart ? n - i : kPart;
    for (int k = 0; k < kTogether; ++k)
      access.load(to[k], rows[k].in + i * rows[k].in_stride * access.in_item, Box{1, part, 0, rows[k].in_stride});
    accumulate_together<Op, T>(from, 1, to, 1, part, carry);
    for (int k = 0; k < kTogether; ++k)
      access.store(rows[k].out + i * rows[k].out_stride * access.out_item, to[k], Box{1, part, 0, rows[k].out_stride});
  }
}

// Rows next to each other as columns of a box, each with a carry of its own: for rows that lie across the memory, and
// for short ones.
constexpr int64_t kColumns = 512, kShort = 32;
constexpr int64_t kStagedColumns = 64; // through tiles, so that each column's part is written as a run
constexpr int64_t kRowsAhead = 2;      // asked for

template <int Op, typename T> struct ColumnCarry {
  alignas(64) Carry<T> sums[kColumns];
  void start(int64_t cols) { std::fill_n(sums, cols, Carry<T>(Op == TS_R_SUM ? 0 : 1)); }
  void step(const T* from, T* to, int64_t* positions, int64_t, int64_t cols) {
    (void)positions;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) to[j] = static_cast<T>(sums[j] = next<Op>(sums[j], from[j]));
  }
};
template <bool Largest, typename T> struct ColumnBest {
  alignas(64) T best[kColumns];
  alignas(64) int64_t at[kColumns];
  void start(int64_t) {}
  void step(const T* from, T* to, int64_t* positions, int64_t i, int64_t cols) {
    if (i == 0) {
      std::copy_n(from, cols, best);
      std::fill_n(at, cols, int64_t{0});
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const bool found = replaces<Largest>(from[j], best[j]);
      to[j] = best[j] = found ? from[j] : best[j];
      at[j] = found ? i : at[j];
    }
    if (positions != nullptr) std::copy_n(at, cols, positions);
  }
};
template <int Op, typename T>
using Column = std::conditional_t<Op == TS_R_SUM || Op == TS_R_PROD, ColumnCarry<Op, T>, ColumnBest<Op == TS_R_MAX, T>>;

// How far apart neighbouring rows are.
struct Across {
  int64_t in, out, positions;
};

template <int Op, typename T>
void scan_columns(const Row& first, int64_t n, int64_t cols, const Across& across, const Access<T>& access) {
  Column<Op, T> column;
  column.start(cols);
  const bool direct = across.in == 1 && across.out == 1 && access.reads && access.writes &&
                      (first.positions == nullptr || across.positions == 1);
  for (int64_t i = 0; direct && i < n; ++i) {
    const T* from = source<T>(first) + i * first.in_stride;
    T* to = target<T>(first) + i * first.out_stride;
    Soon<T>{from + kRowsAhead * first.in_stride, to + kRowsAhead * first.out_stride}.ask(0, static_cast<int>(cols));
    column.step(from, to, first.positions ? first.positions + i * first.position_stride : nullptr, i, cols);
  }
  if (direct) return;
  alignas(64) T tile[kTile];
  alignas(64) int64_t places[kTile];
  static const StoreFn<int64_t> store_places = storer<int64_t>(TS_INT64);
  const int64_t block = std::max(int64_t{1}, kTile / cols);
  for (int64_t i = 0; i < n; i += block) {
    const int64_t rows = std::min(block, n - i);
    access.load(tile, first.in + i * first.in_stride * access.in_item, Box{rows, cols, first.in_stride, across.in});
    for (int64_t r = 0; r < rows; ++r)
      column.step(tile + r * cols, tile + r * cols, first.positions ? places + r * cols : nullptr, i + r, cols);
    access.store(first.out + i * first.out_stride * access.out_item, tile,
                 Box{rows, cols, first.out_stride, across.out});
    if (first.positions)
      store_places(reinterpret_cast<char*>(first.positions + i * first.position_stride), places,
                   Box{rows, cols, first.position_stride, across.positions});
  }
}

// Rows of a few elements one after another, all of the compute type.
template <int Op, int N, typename T> void scan_packed(const T* from, T* to, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    Carry<T> c = Op == TS_R_SUM ? 0 : 1;
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) to[r * N + i] = static_cast<T>(c = next<Op>(c, from[r * N + i]));
  }
}

template <int Op, typename T> void scan_rows(const backend::Call& call) {
  const ts_tensor *in = call.in(0).raw(), *out = call.out(0).raw();
  const ts_tensor* positions = call.n_outputs() > 1 ? call.out(1).raw() : nullptr;
  if (positions != nullptr && positions->dtype != TS_INT64)
    backend::fail(TS_ERROR, "scan: expected int64 positions, got %s", backend::dtype_name(positions->dtype));
  if (positions != nullptr && (Op == TS_R_SUM || Op == TS_R_PROD))
    backend::fail(TS_ERROR, "scan: expected one output of a sum or product, got 2");
  const int last = in->ndim - 1;
  const int64_t n = in->ndim == 0 ? 1 : in->sizes[last], rows = in->numel / n;
  const Access<T> access(in->dtype, out->dtype);
  require_dims(call.op(), in->ndim);
  // The dims of the rows, those that lie together as one: rows next to each other are many then.
  Operand operands[3];
  Space space;
  space.nd = std::max(last, 0);
  space.operands = operands;
  for (const ts_tensor* t : {in, out, positions})
    if (t != nullptr) set_operand(operands[space.n_operands++], t);
  std::copy_n(in->sizes, space.nd, space.size);
  normalise(space);
  const auto row = [&](int64_t r) {
    int64_t offset[3] = {};
    for (int d = space.nd - 1; d >= 0; --d) {
      const int64_t at = r % space.size[d];
      for (int k = 0; k < space.n_operands; ++k) offset[k] += at * operands[k].stride[d];
      r /= space.size[d];
    }
    const auto at = [&](int k) { return operands[k].base + offset[k] * operands[k].item; };
    const auto stride = [&](const ts_tensor* t) { return last < 0 ? 1 : t->strides[last]; };
    return Row{at(0),      at(1),       positions != nullptr ? reinterpret_cast<int64_t*>(at(2)) : nullptr,
               stride(in), stride(out), positions != nullptr ? stride(positions) : 0};
  };
  if constexpr (Op == TS_R_SUM || Op == TS_R_PROD)
    if (n >= 2 && n <= 4 && access.reads && access.writes && (in->flags & out->flags & TS_T_CONTIGUOUS) != 0)
      return parallel_for(0, rows, kParallelElements / n, [&](int64_t first, int64_t end) {
        const T* const from = source<T>(row(first));
        T* const to = target<T>(row(first));
        n == 2   ? scan_packed<Op, 2>(from, to, end - first)
        : n == 3 ? scan_packed<Op, 3>(from, to, end - first)
                 : scan_packed<Op, 4>(from, to, end - first);
      });
  const int64_t cols = space.cols();
  const auto step = [&](int k) { return operands[k].stride[space.nd - 1]; };
  if (cols >= kShort && (n <= kShort || std::llabs(step(0)) < std::llabs(in->strides[last]))) {
    const Across across{step(0), step(1), positions ? step(2) : 0};
    const int64_t most = across.in == 1 && across.out == 1 && access.reads && access.writes ? kColumns : kStagedColumns;
    const int64_t blocks = ceil_div(cols, most), width = ceil_div(cols, blocks);
    return parallel_for(0, rows / cols * blocks, kParallelElements / (n * width) + 1, [&](int64_t first, int64_t end) {
      for (int64_t unit = first; unit < end; ++unit) {
        const int64_t start = unit % blocks * width, left = cols - start;
        if (left > 0)
          scan_columns<Op, T>(row(unit / blocks * cols + start), n, left < width ? left : width, across, access);
      }
    });
  }
#ifdef TESSERACK_CPU_SUM_RUNS
  if constexpr (Op == TS_R_SUM && std::is_same_v<T, float>) {
    const Row first = row(0);
    if (rows == 1 && n >= kSharedFrom && in->dtype == TS_FLOAT32 && out->dtype == TS_FLOAT32 && first.in_stride == 1 &&
        first.out_stride == 1 && max_threads() > 1)
      return scan_shared(reinterpret_cast<const float*>(first.in), reinterpret_cast<float*>(first.out), n);
  }
#endif
  parallel_for(0, rows, kParallelElements / n + 1, [&](int64_t first, int64_t end) {
    int64_t r = first;
    // Whole numbers need not wait for each other.
    if constexpr ((Op == TS_R_SUM || Op == TS_R_PROD) && std::is_floating_point_v<T>)
      for (; r + kTogether <= end; r += kTogether) {
        const Row rows_now[kTogether] = {row(r), row(r + 1), row(r + 2), row(r + 3)};
        scan_rows_together<Op, T>(rows_now, n, access);
      }
    for (; r < end; ++r) scan_row<Op, T>(row(r), n, access);
  });
}

void scan(const backend::Call& call) {
  const int op = call.opcode();
  const bool adds = op == TS_R_SUM || op == TS_R_PROD;
  const int32_t dtype = natural_compute(adds ? call.compute_dtype() : call.in(0).dtype());
  if ((call.in(0).raw()->flags & TS_T_SCALAR) != 0)
    backend::fail(TS_ERROR, "scan: expected a stored tensor, got a scalar");
  with_compute(dtype, [&]<typename T>() {
    switch (op) {
    case TS_R_SUM: return scan_rows<TS_R_SUM, T>(call);
    case TS_R_PROD: return scan_rows<TS_R_PROD, T>(call);
    case TS_R_MAX: return scan_rows<TS_R_MAX, T>(call);
    case TS_R_MIN: return scan_rows<TS_R_MIN, T>(call);
    default: backend::fail(TS_ERROR, "scan: expected opcode sum, prod, max or min, got %d", op);
    }
  });
}

} // namespace

TS_KERNEL("scan", scan);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
