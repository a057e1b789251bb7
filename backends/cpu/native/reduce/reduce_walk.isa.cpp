// Runs, or columns side by side; long ones are cut into parts, which threads share.
#include "reduce_walk.h"
#include "copy/stream.h"
#include "reduce_space.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

int64_t grain_for(int64_t work) { return work >= kParallelElements ? 1 : kParallelElements / work; }

// What both walks hold: the input, the output, and how to move between them and the fold's types.
class Walk {
public:
  Walk(const ReduceSpace& space, const FoldTable& fold)
      : space_(space), fold_(fold), in_(space.kept.operands[0]),
        out_(space.kept.operands[1]), source_{fold.loader(in_.dtype), in_.item, folds_as_it_is(fold.dtype, in_.dtype),
                                              in_.dtype == TS_FLOAT32},
        store_(fold.storer(out_.dtype)) {}

protected:
  const char* input(int64_t kept) const { return in_.base + space_.kept_offset(0, kept) * in_.item; }
  char* output(int64_t kept) const { return out_.base + space_.kept_offset(1, kept) * out_.item; }
  int64_t across(const Operand& operand) const { return operand.stride[space_.kept.nd - 1]; }
  int64_t part_begin(int64_t split) const { return space_.n_reduced * split / splits_; }

  // visit(offset in the input, elements) for every run of the reduced range.
  template <class Visit> void each_run(int64_t first, int64_t last, Visit visit) const {
    const int64_t size = space_.run_size();
    for (int64_t r = first; r < last;) {
      const int64_t in_run = size - r % size, left = last - r, n = in_run < left ? in_run : left;
      visit(space_.reduced_offset(r) * in_.item, n);
      r += n;
    }
  }

  const ReduceSpace& space_;
  const FoldTable& fold_;
  const Operand &in_, &out_;
  Source source_;
  AnyFn store_;
  int64_t splits_ = 1;
};

// A unit is one output; short ones are folded several at a time.
class Runs : Walk {
public:
  using Walk::Walk;

  void reduce() {
    const int64_t units = space_.n_kept;
    splits_ = count_splits(units, space_.n_reduced, 1);
    const bool backwards = starts_at_the_end();
    if (splits_ == 1)
      return parallel_for(0, units, grain_for(space_.n_reduced), [&](int64_t first, int64_t last) {
        in_steps(first, last, grain_for(space_.n_reduced), backwards,
                 [&](int64_t begin, int64_t end) { reduce_units(begin, end); });
      });
    std::vector<Cell> partial(static_cast<size_t>(units * splits_));
    parallel_for(0, units * splits_, 1, [&](int64_t first, int64_t last) {
      in_steps(first, last, 1, backwards,
               [&](int64_t i, int64_t) { fold_part(&partial[i], i / splits_, 1, i % splits_); });
    });
    for (int64_t unit = 0; unit < units; ++unit) {
      Cell* value = &partial[unit * splits_];
      for (int64_t s = 1; s < splits_; ++s) fold_.merge(value, value + s, 1);
      write(unit, 1, value);
    }
  }

private:
  static constexpr int64_t kTogether = 256, kElements = 4096, kShortRun = 64;

  void reduce_units(int64_t first, int64_t last) const {
    Cell values[kTogether];
    for (int64_t unit = first, n; unit < last; unit += n) {
      n = count_together(unit, last);
      fold_part(values, unit, n, 0);
      write(unit, n, values);
    }
  }
  // As many units as lie in a row and in the first cache, or two.
  int64_t count_together(int64_t unit, int64_t last) const {
    const int64_t cols = space_.kept.cols(), in_row = cols - unit % cols;
    const int64_t fitting = std::max<int64_t>(kElements / std::max<int64_t>(space_.n_reduced, 1), 2);
    return std::min({fitting, in_row, last - unit, kTogether});
  }
  void fold_part(Cell* values, int64_t unit, int64_t n, int64_t split) const {
    const char* base = input(unit);
    fold_.start(values, n);
    if (n == 1 && space_.run_size() <= kShortRun && space_.reduced.rows() >= kShortRun)
      return fold_short_runs(values, base, part_begin(split), part_begin(split + 1));
    each_run(part_begin(split), part_begin(split + 1), [&](int64_t offset, int64_t length) {
      fold_.rows(values, source_, base + offset, Box{n, length, across(in_), space_.run_stride()});
    });
  }
  // Short runs are rows of a box, whose columns are folded: a call for each of them would take longer than the run.
  // Not many at once: products leave the range.
  void fold_short_runs(Cell* value, const char* base, int64_t first, int64_t last) const {
    constexpr int64_t kRows = 128;
    const int64_t size = space_.run_size(), rows = space_.reduced.rows();
    const int64_t step = space_.reduced.operands[0].stride[space_.reduced.nd - 2];
    Cell columns[kShortRun];
    for (int64_t r = first, n; r < last; r += n) {
      const int64_t whole = std::min({rows - r / size % rows, (last - r) / size, kRows});
      const char* const at = base + space_.reduced_offset(r) * in_.item;
      if (r % size != 0 || whole == 0) { // a part begins or ends within a run
        n = std::min(size - r % size, last - r);
        fold_.rows(value, source_, at, Box{1, n, 0, space_.run_stride()});
        continue;
      }
      n = whole * size;
      fold_.start(columns, size);
      fold_.columns(columns, source_, at, Box{whole, size, step, space_.run_stride()});
      fold_.join(value, columns, size);
    }
  }
  void write(int64_t unit, int64_t n, const Cell* values) const {
    fold_.store(store_, output(unit), values, Box{1, n, 0, across(out_)});
  }
};

// A unit is up to kColumns outputs next to each other.
class Columns : Walk {
public:
  Columns(const ReduceSpace& space, const FoldTable& fold)
      : Walk(space, fold), cols_(space.kept.cols()), blocks_(ceil_div(cols_, kColumns)),
        width_(ceil_div(cols_, blocks_)) {}

  void reduce() {
    const int64_t units = space_.n_kept / cols_ * blocks_;
    splits_ = count_splits(units, space_.n_reduced, width_);
    if (splits_ == 1 && lie_evenly()) return reduce_evenly();
    if (splits_ == 1)
      return parallel_for(0, units, grain_for(space_.n_reduced * width_), [&](int64_t first, int64_t last) {
        for (int64_t unit = first; unit < last; ++unit) {
          alignas(64) Cell values[kColumns];
          fold_part(values, unit, 0);
          write(unit, values);
        }
      });
    std::vector<Cell> partial(static_cast<size_t>(units * splits_ * width_));
    parallel_for(0, units * splits_, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) fold_part(&partial[i * width_], i / splits_, i % splits_);
    });
    for (int64_t unit = 0; unit < units; ++unit) {
      Cell* values = &partial[unit * splits_ * width_];
      for (int64_t s = 1; s < splits_; ++s) fold_.merge(values, values + s * width_, width_of(unit));
      write(unit, values);
    }
  }

private:
  // Units of a few columns at one distance from each other, as rows of complex numbers are: written together, for a
  // call of each takes as long as a short row.
  bool lie_evenly() const {
    return blocks_ == 1 && cols_ <= kNarrow && space_.kept.nd == 2 && space_.run_size() == space_.n_reduced;
  }
  void reduce_evenly() const {
    const int64_t step = in_.stride[0] * in_.item, grain = grain_for(space_.n_reduced * cols_);
    parallel_for(0, space_.kept.size[0], grain, [&](int64_t first, int64_t last) {
      alignas(64) Cell values[kColumns];
      for (int64_t unit = first, n; unit < last; unit += n) {
        n = std::min(kColumns / cols_, last - unit);
        fold_.start(values, n * cols_);
        const char* const at = input(unit * cols_);
        for (int64_t k = 0; k < n; ++k)
          fold_.columns(reinterpret_cast<Cell*>(values[0].bytes + k * cols_ * fold_.wide), source_, at + k * step,
                        Box{space_.n_reduced, cols_, space_.run_stride(), across(in_)});
        fold_.store(store_, output(unit * cols_), values, Box{n, cols_, out_.stride[0], across(out_)});
      }
    });
  }

  int64_t start_of(int64_t unit) const {
    return blocks_ == 1 ? unit * cols_ : unit / blocks_ * cols_ + unit % blocks_ * width_;
  }
  // The last of a row may be narrower, or nothing.
  int64_t width_of(int64_t unit) const {
    if (blocks_ == 1) return cols_;
    const int64_t left = cols_ - unit % blocks_ * width_;
    return left < 0 ? 0 : left < width_ ? left : width_;
  }
  void fold_part(Cell* values, int64_t unit, int64_t split) const {
    const int64_t width = width_of(unit);
    if (width == 0) return;
    const char* base = input(start_of(unit));
    fold_.start(values, width);
    each_run(part_begin(split), part_begin(split + 1), [&](int64_t offset, int64_t n) {
      fold_.columns(values, source_, base + offset, Box{n, width, space_.run_stride(), across(in_)});
    });
  }
  void write(int64_t unit, const Cell* values) const {
    if (width_of(unit) == 0) return;
    fold_.store(store_, output(start_of(unit)), values, Box{1, width_of(unit), 0, across(out_)});
  }

  static constexpr int64_t kNarrow = 8;
  int64_t cols_, blocks_, width_;
};

} // namespace

void reduce_walk(const backend::Call& call, int n_reduced_dims, const FoldTable& fold) {
  const ReduceSpace space(call, n_reduced_dims, false);
  // Rows shorter than a vector register are columns too.
  constexpr int64_t kShort = 8, kEnough = 32;
  if (space.by_columns() || (space.n_reduced < kShort && space.kept.cols() >= kEnough))
    Columns(space, fold).reduce();
  else
    Runs(space, fold).reduce();
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
