// var_mean over the last dimensions, arranged like reduce: out0 the variance, out1 the mean. std_mean: its root.
#include "nn/rows.h"
#include "reduce_space.h"

#include <cmath>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kParallelElements = 32768;

// As torch: fewer elements than the correction leave 0 / 0 or x / 0.
double variance(const Moments& m, double correction) {
  const double divisor = m.count - correction;
  return m.deviation / (divisor > 0.0 ? divisor : 0.0);
}

template <typename T>
Moments moments_of_one(const ReduceSpace& space, const char* base, LoadFn<T> load, int64_t first, int64_t last) {
  const Operand& in = space.reduced.operands[0];
  const int64_t size = space.run_size(), stride = space.run_stride();
  const bool direct = in.dtype == dtype_of<T>() && stride == 1;
  Moments all;
  alignas(64) T tile[kRun];
  for (int64_t r = first; r < last;) {
    int64_t n = size - r % size;
    if (n > last - r) n = last - r;
    if (!direct && n > kRun) n = kRun;
    const char* at = base + space.reduced_offset(r) * in.item;
    if (!direct) load(tile, at, Box{1, n, 0, stride});
    all.merge(moments_of(direct ? reinterpret_cast<const T*>(at) : tile, n));
    r += n;
  }
  return all;
}

class Output {
public:
  Output(const ReduceSpace& space, double correction, bool root)
      : space_(space), correction_(correction), root_(root), store_var_(storer<double>(space.kept.operands[1].dtype)),
        store_mean_(storer<double>(space.kept.operands[2].dtype)) {}
  void write(int64_t unit, const Moments& m) const {
    const Operand &var = space_.kept.operands[1], &mean = space_.kept.operands[2];
    const double squared = variance(m, correction_), value = root_ ? std::sqrt(squared) : squared;
    store_var_(var.base + space_.kept_offset(1, unit) * var.item, &value, Box{1, 1, 0, 0});
    store_mean_(mean.base + space_.kept_offset(2, unit) * mean.item, &m.mean, Box{1, 1, 0, 0});
  }

private:
  const ReduceSpace& space_;
  double correction_;
  bool root_;
  StoreFn<double> store_var_, store_mean_;
};

template <typename T> void by_runs(const ReduceSpace& space, const Output& output) {
  const Operand& in = space.kept.operands[0];
  const LoadFn<T> load = loader<T>(in.dtype);
  const int64_t splits = count_splits(space.n_kept, space.n_reduced, 1);
  std::vector<Moments> found(static_cast<size_t>(space.n_kept * splits));
  const int64_t work = space.n_reduced / splits + 1;
  parallel_for(0, space.n_kept * splits, kParallelElements / work + 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t split = i % splits;
      found[static_cast<size_t>(i)] =
          moments_of_one<T>(space, in.base + space.kept_offset(0, i / splits) * in.item, load,
                            space.n_reduced * split / splits, space.n_reduced * (split + 1) / splits);
    }
  });
  for (int64_t unit = 0; unit < space.n_kept; ++unit) {
    Moments all = found[static_cast<size_t>(unit * splits)];
    for (int64_t s = 1; s < splits; ++s) all.merge(found[static_cast<size_t>(unit * splits + s)]);
    output.write(unit, all);
  }
}

// Blocks of rows are staged into the L1 cache, their moments taken column by column and merged.
template <typename T> void by_columns(const ReduceSpace& space, const Output& output) {
  constexpr int64_t kColumns = 128, kRows = 32;
  const Operand& in = space.kept.operands[0];
  const LoadFn<T> load = loader<T>(in.dtype);
  const int64_t cols = space.kept.cols(), blocks = ceil_div(cols, kColumns);
  const int64_t across = in.stride[space.kept.nd - 1], along = space.run_stride(), size = space.run_size();
  const int64_t units = space.n_kept / cols * blocks;
  parallel_for(0, units, kParallelElements / (space.n_reduced * 16) + 1, [&](int64_t first, int64_t last) {
    alignas(64) T tile[kColumns * kRows];
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t start = unit / blocks * cols + unit % blocks * kColumns;
      const int64_t left = cols - unit % blocks * kColumns, n = left < kColumns ? left : kColumns;
      const char* base = in.base + space.kept_offset(0, start) * in.item;
      Moments moments[kColumns];
      for (int64_t r = 0; r < space.n_reduced;) {
        int64_t rows = size - r % size;
        if (rows > kRows) rows = kRows;
        load(tile, base + space.reduced_offset(r) * in.item, Box{rows, n, along, across});
        T sum[kColumns] = {}, deviation[kColumns] = {}, mean[kColumns];
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < n; ++j) sum[j] += tile[i * n + j];
        for (int64_t j = 0; j < n; ++j) mean[j] = sum[j] / static_cast<T>(rows);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < n; ++j) {
            const T d = tile[i * n + j] - mean[j];
            deviation[j] += d * d;
          }
        for (int64_t j = 0; j < n; ++j) {
          Moments part;
          part.count = static_cast<double>(rows);
          part.mean = static_cast<double>(sum[j]) / part.count;
          const double shift = part.mean - static_cast<double>(mean[j]);
          part.deviation = static_cast<double>(deviation[j]) - part.count * shift * shift;
          part.deviation = part.deviation < 0.0 ? 0.0 : part.deviation;
          moments[j].merge(part);
        }
        r += rows;
      }
      for (int64_t j = 0; j < n; ++j) output.write(start + j, moments[j]);
    }
  });
}

template <bool Root> void moments(const backend::Call& call) {
  const char* name = Root ? "std_mean" : "var_mean";
  if (call.n_outputs() != 2) backend::fail(TS_ERROR, "%s: expected 2 outputs, got %d", name, call.n_outputs());
  const ReduceSpace space(call, static_cast<int>(call.param(0).as_int()), false);
  const Output output(space, call.param(1).as_float(), Root);
  with_row_type(call, call.in(0).dtype(), [&]<typename T>() {
    if (space.by_columns())
      by_columns<T>(space, output);
    else
      by_runs<T>(space, output);
  });
}

} // namespace

TS_KERNEL("var_mean", moments<false>);
TS_KERNEL("std_mean", moments<true>);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
