// One fold over one compute type, and the table of it that the walk over a reduction (reduce_walk.h) calls.
#ifndef TESSERACK_CPU_REDUCE_FOLD_H
#define TESSERACK_CPU_REDUCE_FOLD_H

#include "fold.h"
#include "reduce_walk.h"

#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Fold over elements of compute type T; see FoldTable for what each function does.
template <typename Fold, typename T> struct Folding {
  using Acc = typename Fold::Acc;
  using Wide = typename Fold::Wide;
  static_assert(sizeof(Wide) <= sizeof(Cell));

  static void start(Cell* wide, int64_t n) {
    std::fill_n(reinterpret_cast<Wide*>(wide), n, static_cast<Wide>(Fold::start()));
  }

  static void merge(Cell* into, const Cell* from, int64_t n) {
    Wide* a = reinterpret_cast<Wide*>(into);
    const Wide* b = reinterpret_cast<const Wide*>(from);
    for (int64_t j = 0; j < n; ++j) a[j] = Fold::merge(a[j], b[j]);
  }

  static void join(Cell* into, const Cell* from, int64_t n) {
    Wide all = *reinterpret_cast<Wide*>(into);
    for (int64_t j = 0; j < n; ++j) all = Fold::merge(all, reinterpret_cast<const Wide*>(from)[j]);
    *reinterpret_cast<Wide*>(into) = all;
  }

  static void rows(Cell* wide, const Source& from, const char* at, const Box& box) {
    Wide* totals = reinterpret_cast<Wide*>(wide);
    if (from.is_compute_type && box.col_stride == 1)
      return dense_runs(totals, reinterpret_cast<const T*>(at), box.row_stride, box.rows, box.cols);
    if constexpr (widens<Fold, T>)
      if (from.is_float && box.col_stride == 1 && box.cols >= kShortRun) {
        for (int64_t r = 0; r < box.rows; ++r)
          for (int64_t c = 0; c < box.cols; c += kRun) // products of longer runs leave the range, by way of denormals
            totals[r] =
                Fold::merge(totals[r], fold_floats<Fold>(reinterpret_cast<const float*>(at) + r * box.row_stride + c,
                                                         std::min(kRun, box.cols - c)));
        return;
      }
    for (int64_t c = 0; c < box.cols; c += kTile) {
      const int64_t width = std::min(box.cols - c, kTile);
      const Box part{box.rows, width, box.row_stride, box.col_stride};
      staged(from, at + c * box.col_stride * from.item, part,
             [&](const T* tile, int64_t r, int64_t n) { dense_runs(totals + r, tile, width, n, width); });
    }
  }

  static void columns(Cell* wide, const Source& from, const char* at, const Box& box) {
    Wide* totals = reinterpret_cast<Wide*>(wide);
    if (from.is_compute_type && box.col_stride == 1)
      return dense_rows(totals, reinterpret_cast<const T*>(at), box.row_stride, box.rows, box.cols);
    if constexpr (widens<Fold, T>)
      if (from.is_float && box.col_stride == 1 && box.cols >= kShortRun)
        return fold_float_rows<Fold>(totals, reinterpret_cast<const float*>(at), box.row_stride, box.rows, box.cols);
    staged(from, at, box, [&](const T* tile, int64_t, int64_t n) { dense_rows(totals, tile, box.cols, n, box.cols); });
  }

  static void store(AnyFn to, char* at, const Cell* wide, const Box& box) {
    reinterpret_cast<StoreFn<Wide>>(to)(at, reinterpret_cast<const Wide*>(wide), box);
  }

  static const FoldTable& table() {
    static constexpr FoldTable folds = {dtype_of<T>(), sizeof(Wide), load_function, store_function, start,
                                        merge,         join,         rows,          columns,        store};
    return folds;
  }

private:
  static AnyFn load_function(int32_t dtype) { return reinterpret_cast<AnyFn>(loader<T>(dtype)); }
  static AnyFn store_function(int32_t dtype) { return reinterpret_cast<AnyFn>(storer<Wide>(dtype)); }

  static constexpr int64_t kShortRun = 16;  // below which floats are converted in tiles of many rows
  static constexpr int64_t kTile = 4096;    // elements converted at a time, at least kColumns
  static constexpr int64_t kRowsInAcc = 64; // rows folded in Acc before they move to Wide

  // visit(tile, first row, rows) for blocks of a box's rows, loaded one after another.
  template <class Visit> static void staged(const Source& from, const char* at, const Box& box, Visit visit) {
    const auto load = reinterpret_cast<LoadFn<T>>(from.load);
    alignas(64) T tile[kTile];
    const int64_t block = kTile / box.cols;
    for (int64_t r = 0; r < box.rows; r += block) {
      const int64_t n = std::min(box.rows - r, block);
      load(tile, at + r * box.row_stride * from.item, Box{n, box.cols, box.row_stride, box.col_stride});
      visit(tile, r, n);
    }
  }

  __attribute__((noinline)) static void dense_runs(Wide* totals, const T* p, int64_t stride, int64_t rows,
                                                   int64_t cols) {
    if (cols > kRun) {
      for (int64_t r = 0; r < rows; ++r) totals[r] = Fold::merge(totals[r], fold_long<Fold>(p + r * stride, cols));
      return;
    }
    int64_t r = 0;
    if constexpr (by_vectors<Fold, T>)
      if (cols >= kLongRow) {
        // One stream of reads does not use what memory and the last cache deliver.
        for (Acc two[2]; r + 2 <= rows; r += 2) {
          fold_abreast<Fold, 2, false>(p + r * stride, stride, cols, two);
          for (int k = 0; k < 2; ++k) totals[r + k] = Fold::merge(totals[r + k], static_cast<Wide>(two[k]));
        }
      }
    for (; r < rows; ++r) totals[r] = Fold::merge(totals[r], static_cast<Wide>(fold_run<Fold>(p + r * stride, cols)));
  }

  // Narrow dense rows are taken several at a time as one long row, whose halves are folded together afterwards.
  __attribute__((noinline)) static void dense_rows(Wide* totals, const T* p, int64_t stride, int64_t rows,
                                                   int64_t cols) {
    if constexpr (by_vectors<Fold, T>)
      if (cols == 2 && stride == 2 && rows >= kLanes<T>) return pairs(totals, p, rows);
    int64_t together = 1;
    while (stride == cols && cols < 64 && 2 * together * cols <= kColumns && 8 * together <= rows) together *= 2;
    const int64_t width = cols * together;
    alignas(64) Acc acc[kColumns];
    int64_t r = 0;
    while (r + together <= rows) {
      const int64_t groups = (rows - r) / together, n = groups < kRowsInAcc ? groups : kRowsInAcc;
      begin(acc, width);
      fold_rows<Fold>(acc, p + r * stride, stride * together, n, width);
      for (int64_t half = together / 2 * cols; half >= cols; half /= 2) fold_halves(acc, half);
      add(totals, acc, cols);
      r += n * together;
    }
    if (r == rows) return;
    begin(acc, cols);
    fold_rows<Fold>(acc, p + r * stride, stride, rows - r, cols);
    add(totals, acc, cols);
  }

  // Two columns side by side, as the parts of complex numbers lie.
  __attribute__((noinline)) static void pairs(Wide* totals, const T* p, int64_t rows) {
    for (int64_t i = 0; i < 2 * rows; i += kRun) {
      T two[2];
      fold_pairs<Fold>(p + i, std::min(kRun, 2 * rows - i), two);
      for (int k = 0; k < 2; ++k) totals[k] = Fold::merge(totals[k], static_cast<Wide>(two[k]));
    }
  }

  // Out of line, as everything here with a loop: inlined copies made most of the build's time.
  __attribute__((noinline)) static void begin(Acc* acc, int64_t n) { std::fill_n(acc, n, Fold::start()); }
  __attribute__((noinline)) static void fold_halves(Acc* acc, int64_t n) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) acc[j] = Fold::merge(acc[j], acc[n + j]);
  }
  __attribute__((noinline)) static void add(Wide* totals, const Acc* acc, int64_t n) {
    for (int64_t j = 0; j < n; ++j) totals[j] = Fold::merge(totals[j], static_cast<Wide>(acc[j]));
  }
};

// Small and contiguous: no geometry at all.
template <typename Fold, typename T> bool reduce_dense(const backend::Call& call, int n_reduced_dims) {
  using Wide = typename Fold::Wide;
  const ts_tensor *in = call.in(0).raw(), *out = call.out(0).raw();
  if ((in->flags & out->flags & TS_T_CONTIGUOUS) == 0 || !folds_as_it_is(dtype_of<T>(), in->dtype)) return false;
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
  if (!reduce_dense<Fold, T>(call, n_reduced_dims)) reduce_walk(call, n_reduced_dims, Folding<Fold, T>::table());
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_REDUCE_FOLD_H
