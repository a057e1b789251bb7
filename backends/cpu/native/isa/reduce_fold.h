// How `reduce` walks its input for any fold: runs, columns, or one dense block.
#ifndef TESSERACK_CPU_REDUCE_FOLD_H
#define TESSERACK_CPU_REDUCE_FOLD_H

#include "fold.h"
#include "reduce_space.h"
#include "stream.h"

#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int64_t kParallelElements = 32768;
constexpr int64_t kTile = 1024;

inline int64_t grain_for(int64_t work) { return work >= kParallelElements ? 1 : kParallelElements / work; }

// One output: runs of the reduced space, contiguous or staged.
template <typename Fold, typename T>
__attribute__((noinline)) typename Fold::Wide fold_one(const ReduceSpace& space, const char* base, LoadFn<T> load,
                                                       int64_t first, int64_t last) {
  using Wide = typename Fold::Wide;
  const int64_t item = space.reduced.operands[0].item, size = space.run_size(), stride = space.run_stride();
  const bool direct = space.reduced.operands[0].dtype == dtype_of<T>() && stride == 1;
  Wide wide = static_cast<Wide>(Fold::start());
  for (int64_t r = first; r < last;) {
    const int64_t in_run = size - r % size, left = last - r;
    const int64_t n = in_run < left ? in_run : left;
    const char* at = base + space.reduced_offset(r) * item;
    if (direct) {
      wide = Fold::merge(wide, fold_long<Fold>(reinterpret_cast<const T*>(at), n));
    } else {
      alignas(64) T tile[kTile];
      for (int64_t i = 0; i < n; i += kTile) {
        const int64_t part = n - i < kTile ? n - i : kTile;
        load(tile, at + i * stride * item, Box{1, part, 0, stride});
        wide = Fold::merge(wide, fold_long<Fold>(tile, part));
      }
    }
    r += n;
  }
  return wide;
}

template <typename Fold, typename T> void reduce_runs(const ReduceSpace& space) {
  using Wide = typename Fold::Wide;
  const Operand &in = space.kept.operands[0], &out = space.kept.operands[1];
  const LoadFn<T> load = loader<T>(in.dtype);
  const StoreFn<Wide> store = storer<Wide>(out.dtype);
  const int64_t units = space.n_kept, splits = count_splits(units, space.n_reduced, 1);
  const auto write = [&](int64_t unit, Wide value) {
    store(out.base + space.kept_offset(1, unit) * out.item, &value, Box{1, 1, 0, 0});
  };
  const auto part = [&](int64_t unit, int64_t split) {
    const char* base = in.base + space.kept_offset(0, unit) * in.item;
    return fold_one<Fold, T>(space, base, load, space.n_reduced * split / splits,
                             space.n_reduced * (split + 1) / splits);
  };
  if (splits == 1)
    return parallel_for(0, units, grain_for(space.n_reduced), [&](int64_t first, int64_t last) {
      for (int64_t unit = first; unit < last; ++unit) write(unit, part(unit, 0));
    });
  std::vector<Wide> partial(static_cast<size_t>(units * splits));
  const bool backwards = starts_at_the_end();
  parallel_for(0, units * splits, 1, [&](int64_t first, int64_t last) {
    in_steps(first, last, 1, backwards,
             [&](int64_t i, int64_t) { partial[static_cast<size_t>(i)] = part(i / splits, i % splits); });
  });
  for (int64_t unit = 0; unit < units; ++unit) {
    Wide wide = partial[static_cast<size_t>(unit * splits)];
    for (int64_t s = 1; s < splits; ++s) wide = Fold::merge(wide, partial[static_cast<size_t>(unit * splits + s)]);
    write(unit, wide);
  }
}

constexpr int64_t kColumns = 512;  // accumulators of one unit
constexpr int64_t kRowsInAcc = 64; // rows folded in Acc before they move to Wide

// Accumulators of up to kColumns columns.
template <typename Fold, typename T> class Columns {
public:
  using Acc = typename Fold::Acc;
  using Wide = typename Fold::Wide;

  Columns(const ReduceSpace& space, LoadFn<T> load, int64_t cols) : space_(space), load_(load), cols_(cols) {
    for (int64_t j = 0; j < cols; ++j) wide[j] = static_cast<Wide>(Fold::start());
  }

  __attribute__((noinline)) void fold(const char* base, int64_t first, int64_t last) {
    const Operand& in = space_.reduced.operands[0];
    const int64_t size = space_.run_size(), stride = space_.run_stride();
    const int64_t across = space_.kept.operands[0].stride[space_.kept.nd - 1];
    const bool direct = in.dtype == dtype_of<T>() && across == 1;
    for (int64_t r = first; r < last;) {
      const int64_t in_run = size - r % size, left = last - r;
      const int64_t n = in_run < left ? in_run : left;
      const char* at = base + space_.reduced_offset(r) * in.item;
      if (direct)
        fold_run_of_rows(reinterpret_cast<const T*>(at), stride, n);
      else
        fold_staged(at, stride, across, in.item, n);
      r += n;
    }
  }

  Wide wide[kColumns];

private:
  void fold_staged(const char* at, int64_t stride, int64_t across, int64_t item, int64_t rows) {
    alignas(64) T tile[kTile];
    const int64_t block = kTile / cols_;
    for (int64_t r = 0; r < rows; r += block) {
      const int64_t n = rows - r < block ? rows - r : block;
      load_(tile, at + r * stride * item, Box{n, cols_, stride, across});
      fold_run_of_rows(tile, cols_, n);
    }
  }

  // Narrow dense rows are taken several at a time as one long row, folded together afterwards.
  __attribute__((noinline)) void fold_run_of_rows(const T* p, int64_t stride, int64_t rows) {
    const int64_t together = stride == cols_ && cols_ < 64 ? kColumns / cols_ : 1;
    const int64_t width = cols_ * together;
    alignas(64) Acc acc[kColumns];
    int64_t r = 0;
    while (r + together <= rows) {
      const int64_t groups = (rows - r) / together, n = groups < kRowsInAcc ? groups : kRowsInAcc;
      for (int64_t j = 0; j < width; ++j) acc[j] = Fold::start();
      fold_rows<Fold>(acc, p + r * stride, stride * together, n, width);
      for (int64_t g = 0; g < together; ++g)
        for (int64_t j = 0; j < cols_; ++j) wide[j] = Fold::merge(wide[j], static_cast<Wide>(acc[g * cols_ + j]));
      r += n * together;
    }
    if (r == rows) return;
    for (int64_t j = 0; j < cols_; ++j) acc[j] = Fold::start();
    fold_rows<Fold>(acc, p + r * stride, stride, rows - r, cols_);
    for (int64_t j = 0; j < cols_; ++j) wide[j] = Fold::merge(wide[j], static_cast<Wide>(acc[j]));
  }

  const ReduceSpace& space_;
  LoadFn<T> load_;
  int64_t cols_;
};

template <typename Fold, typename T> void reduce_columns(const ReduceSpace& space) {
  using Wide = typename Fold::Wide;
  const Operand &in = space.kept.operands[0], &out = space.kept.operands[1];
  const LoadFn<T> load = loader<T>(in.dtype);
  const StoreFn<Wide> store = storer<Wide>(out.dtype);
  const int64_t cols = space.kept.cols(), blocks = ceil_div(cols, kColumns), width = ceil_div(cols, blocks);
  const int64_t units = space.n_kept / cols * blocks, splits = count_splits(units, space.n_reduced, width);
  const int64_t out_stride = out.stride[space.kept.nd - 1];
  const auto start_of = [&](int64_t unit) { return unit / blocks * cols + unit % blocks * width; };
  const auto width_of = [&](int64_t unit) {
    const int64_t left = cols - unit % blocks * width;
    return left < width ? left : width;
  };
  const auto fold = [&](Columns<Fold, T>& columns, int64_t unit, int64_t split) {
    columns.fold(in.base + space.kept_offset(0, start_of(unit)) * in.item, space.n_reduced * split / splits,
                 space.n_reduced * (split + 1) / splits);
  };
  const auto write = [&](int64_t unit, const Wide* values) {
    store(out.base + space.kept_offset(1, start_of(unit)) * out.item, values, Box{1, width_of(unit), 0, out_stride});
  };
  if (splits == 1)
    return parallel_for(0, units, grain_for(space.n_reduced * width), [&](int64_t first, int64_t last) {
      for (int64_t unit = first; unit < last; ++unit) {
        if (width_of(unit) <= 0) continue;
        Columns<Fold, T> columns(space, load, width_of(unit));
        fold(columns, unit, 0);
        write(unit, columns.wide);
      }
    });
  std::vector<Wide> partial(static_cast<size_t>(units * splits * width));
  parallel_for(0, units * splits, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (width_of(i / splits) <= 0) continue;
      Columns<Fold, T> columns(space, load, width_of(i / splits));
      fold(columns, i / splits, i % splits);
      for (int64_t j = 0; j < width_of(i / splits); ++j) partial[static_cast<size_t>(i * width + j)] = columns.wide[j];
    }
  });
  for (int64_t unit = 0; unit < units; ++unit) {
    if (width_of(unit) <= 0) continue;
    Wide* total = &partial[static_cast<size_t>(unit * splits * width)];
    for (int64_t s = 1; s < splits; ++s)
      for (int64_t j = 0; j < width_of(unit); ++j) total[j] = Fold::merge(total[j], total[s * width + j]);
    write(unit, total);
  }
}

// Small and contiguous: no geometry at all.
template <typename Fold, typename T> bool reduce_dense(const backend::Call& call, int n_reduced_dims) {
  using Wide = typename Fold::Wide;
  const ts_tensor *in = call.in(0).raw(), *out = call.out(0).raw();
  if ((in->flags & out->flags & TS_T_CONTIGUOUS) == 0 || in->dtype != dtype_of<T>()) return false;
  if (in->numel > kParallelElements || n_reduced_dims < 1 || n_reduced_dims > in->ndim) return false;
  const int64_t n = in->numel / out->numel;
  if (n * out->numel != in->numel) return false;
  const T* p = backend::Tensor(in).data<T>();
  char* to = backend::Tensor(out).bytes();
  if (out->dtype == dtype_of<T>()) {
    for (int64_t i = 0; i < out->numel; ++i)
      reinterpret_cast<T*>(to)[i] = static_cast<T>(fold_long<Fold>(p + i * n, n));
    return true;
  }
  const StoreFn<Wide> store = storer<Wide>(out->dtype);
  for (int64_t i = 0; i < out->numel; ++i) {
    const Wide value = fold_long<Fold>(p + i * n, n);
    store(to + i * backend::dtype_size(out->dtype), &value, Box{1, 1, 0, 0});
  }
  return true;
}

template <typename Fold, typename T> void reduce_with(const backend::Call& call, int n_reduced_dims) {
  if (reduce_dense<Fold, T>(call, n_reduced_dims)) return;
  const ReduceSpace space(call, n_reduced_dims, false);
  if (space.by_columns())
    reduce_columns<Fold, T>(space);
  else
    reduce_runs<Fold, T>(space);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_REDUCE_FOLD_H
