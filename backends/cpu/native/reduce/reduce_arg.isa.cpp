#include "reduce_arg.h"

#include "fold.h"
#include "reduce_space.h"

#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kParallelElements = 32768;
constexpr int64_t kTile = 1024;

template <typename T> struct Best {
  T value;
  int64_t at;
};

template <bool Largest, typename T> inline bool better(T x, T best) {
  return (Largest ? x > best : x < best) | ((x != x) & (best == best));
}

// The extreme of a tile first, vectorised; its position only when it beats what is there.
template <bool Largest, typename T> void scan_tile(Best<T>& best, const T* p, int64_t n, int64_t first) {
  using Fold = std::conditional_t<Largest, MaxFold<T>, MinFold<T>>;
  const T extreme = fold_run<Fold>(p, n);
  if (best.at >= 0 && !better<Largest>(extreme, best.value)) return;
  constexpr int64_t kLook = 16; // compared at once
  const auto found = [&](int64_t i) { return (p[i] == extreme) | (p[i] != p[i]); };
  int64_t i = 0;
  for (int any = 0; i + kLook < n; i += kLook) {
    for (int64_t j = 0; j < kLook; ++j) any |= found(i + j);
    if (any != 0) break;
  }
  while (i < n - 1 && !found(i)) ++i;
  best = {extreme, first + i};
}

template <bool Largest, typename T>
Best<T> best_of_one(const ReduceSpace& space, const char* base, LoadFn<T> load, int64_t first, int64_t last) {
  const int64_t item = space.reduced.operands[0].item, size = space.run_size(), stride = space.run_stride();
  const bool direct = space.reduced.operands[0].dtype == dtype_of<T>() && stride == 1;
  Best<T> best{T(0), -1};
  alignas(64) T tile[kTile];
  for (int64_t r = first; r < last;) {
    int64_t n = size - r % size;
    if (n > last - r) n = last - r;
    if (n > kTile) n = kTile;
    const char* at = base + space.reduced_offset(r) * item;
    if (!direct) load(tile, at, Box{1, n, 0, stride});
    scan_tile<Largest>(best, direct ? reinterpret_cast<const T*>(at) : tile, n, r);
    r += n;
  }
  return best;
}

template <bool Largest, typename T> void positions_by_runs(const ReduceSpace& space) {
  const Operand &in = space.kept.operands[0], &out = space.kept.operands[1];
  const LoadFn<T> load = loader<T>(in.dtype);
  const StoreFn<int64_t> store = storer<int64_t>(out.dtype);
  const int64_t splits = count_splits(space.n_kept, space.n_reduced, 1);
  std::vector<Best<T>> found(static_cast<size_t>(space.n_kept * splits));
  const int64_t work = space.n_reduced / splits + 1;
  parallel_for(0, space.n_kept * splits, kParallelElements / work + 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t split = i % splits;
      found[static_cast<size_t>(i)] =
          best_of_one<Largest, T>(space, in.base + space.kept_offset(0, i / splits) * in.item, load,
                                  space.n_reduced * split / splits, space.n_reduced * (split + 1) / splits);
    }
  });
  for (int64_t unit = 0; unit < space.n_kept; ++unit) {
    Best<T> best = found[static_cast<size_t>(unit * splits)];
    for (int64_t s = 1; s < splits; ++s) {
      const Best<T>& other = found[static_cast<size_t>(unit * splits + s)];
      if (better<Largest>(other.value, best.value)) best = other;
    }
    store(out.base + space.kept_offset(1, unit) * out.item, &best.at, Box{1, 1, 0, 0});
  }
}

template <bool Largest, typename T>
void update_columns(T* __restrict value, int64_t* __restrict at, const T* __restrict row, int64_t r, int64_t cols) {
  for (int64_t j = 0; j < cols; ++j) {
    const bool take = better<Largest>(row[j], value[j]);
    value[j] = take ? row[j] : value[j];
    at[j] = take ? r : at[j];
  }
}

template <bool Largest, typename T> void positions_by_columns(const ReduceSpace& space) {
  constexpr int64_t kColumns = 512;
  const Operand &in = space.kept.operands[0], &out = space.kept.operands[1];
  const LoadFn<T> load = loader<T>(in.dtype);
  const StoreFn<int64_t> store = storer<int64_t>(out.dtype);
  const int64_t cols = space.kept.cols(), blocks = ceil_div(cols, kColumns);
  const int64_t across = in.stride[space.kept.nd - 1], out_stride = out.stride[space.kept.nd - 1];
  const bool direct = in.dtype == dtype_of<T>() && across == 1;
  parallel_for(0, space.n_kept / cols * blocks, kParallelElements / space.n_reduced + 1,
               [&](int64_t first, int64_t last) {
                 alignas(64) T value[kColumns], tile[kColumns];
                 int64_t at[kColumns];
                 for (int64_t unit = first; unit < last; ++unit) {
                   const int64_t start = unit / blocks * cols + unit % blocks * kColumns;
                   const int64_t left = cols - unit % blocks * kColumns, n = left < kColumns ? left : kColumns;
                   const char* base = in.base + space.kept_offset(0, start) * in.item;
                   for (int64_t r = 0; r < space.n_reduced; ++r) {
                     const char* row = base + space.reduced_offset(r) * in.item;
                     if (r == 0) {
                       load(value, row, Box{1, n, 0, across});
                       for (int64_t j = 0; j < n; ++j) at[j] = 0;
                       continue;
                     }
                     if (!direct) load(tile, row, Box{1, n, 0, across});
                     update_columns<Largest>(value, at, direct ? reinterpret_cast<const T*>(row) : tile, r, n);
                   }
                   store(out.base + space.kept_offset(1, start) * out.item, at, Box{1, n, 0, out_stride});
                 }
               });
}

template <bool Largest, typename T> void positions(const ReduceSpace& space) {
  // Short rows, many of them, are columns too: loads by strides cost less than a call for each row.
  constexpr int64_t kShort = 32;
  if (space.by_columns() || (space.n_reduced <= kShort && space.kept.cols() >= kShort))
    positions_by_columns<Largest, T>(space);
  else
    positions_by_runs<Largest, T>(space);
}

} // namespace

void reduce_positions(const backend::Call& call, int n_reduced_dims, bool largest) {
  const ReduceSpace space(call, n_reduced_dims, true);
  with_compute(natural_compute(call.in(0).dtype()), [&]<typename T>() {
    if (largest)
      positions<true, T>(space);
    else
      positions<false, T>(space);
  });
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
