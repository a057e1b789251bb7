// Coordinates of the true elements of a mask, in order: what boolean indexing starts from.
#include <tesserack/backend.hpp>

#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kPart = 32768; // elements that one thread takes at a time

int64_t count_true(const uint8_t* mask, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += mask[i] != 0;
  return count;
}

// Coordinates of ascending positions in a row-major shape.
class Odometer {
public:
  explicit Odometer(const Tensor& mask) : ndim_(mask.ndim()) {
    for (int d = 0; d < ndim_; ++d) sizes_[d] = mask.size(d);
  }

  void write(int64_t position, int64_t* out) {
    at_[ndim_ - 1] += position - position_;
    position_ = position;
    for (int d = ndim_ - 1; d > 0 && at_[d] >= sizes_[d]; --d) {
      at_[d - 1] += at_[d] / sizes_[d];
      at_[d] %= sizes_[d];
    }
    std::copy_n(at_, ndim_, out);
  }

private:
  int ndim_;
  int64_t position_ = 0, sizes_[backend::kMaxDims], at_[backend::kMaxDims] = {};
};

// Every position is written, and kept if its element is true: no branch to be predicted.
void write_positions(const uint8_t* mask, int64_t begin, int64_t end, int64_t* out, int64_t count) {
  for (int64_t i = begin, k = 0; k < count && i < end; ++i) {
    out[k] = i;
    k += mask[i] != 0;
  }
}

// The rows of coordinates in a matrix, likewise without a branch.
void write_matrix_rows(const uint8_t* mask, int64_t columns, int64_t begin, int64_t end, int64_t* out, int64_t count) {
  int64_t row = begin / columns, column = begin % columns;
  for (int64_t i = begin, k = 0; k < count && i < end; ++row, column = 0) {
    const int64_t stop = std::min(end, i + columns - column);
    for (; k < count && i < stop; ++i, ++column) {
      out[2 * k] = row;
      out[2 * k + 1] = column;
      k += mask[i] != 0;
    }
  }
}

// Row k of out0 = coordinates of the k-th true element of in0; out0 has room for all of them.
void nonzero(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  if (in.dtype() != TS_BOOL || out.dtype() != TS_INT64 || !in.is_contiguous() || !out.is_contiguous() ||
      in.ndim() < 1 || in.ndim() > backend::kMaxDims || out.ndim() != 2 || out.size(1) != in.ndim())
    backend::fail(TS_ERROR, "nonzero: expected a contiguous bool mask and contiguous rows of int64 coordinates");
  const uint8_t* mask = in.data<uint8_t>();
  int64_t* rows = out.data<int64_t>();
  const int64_t n = in.numel(), ndim = in.ndim(), parts = (n + kPart - 1) / kPart;
  std::vector<int64_t> starts(static_cast<size_t>(parts) + 1);
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      starts[static_cast<size_t>(p) + 1] = count_true(mask + p * kPart, std::min(kPart, n - p * kPart));
  });
  for (size_t p = 1; p < starts.size(); ++p) starts[p] += starts[p - 1];
  if (starts.back() != out.size(0))
    backend::fail(TS_ERROR, "nonzero: expected room for %lld rows, got %lld", static_cast<long long>(starts.back()),
                  static_cast<long long>(out.size(0)));
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    Odometer odometer(in);
    std::vector<int64_t> found(ndim <= 2 ? 0 : static_cast<size_t>(std::min(kPart, n)));
    for (int64_t p = first; p < last; ++p) {
      const int64_t start = starts[static_cast<size_t>(p)], count = starts[static_cast<size_t>(p) + 1] - start;
      const int64_t begin = p * kPart, end = std::min(begin + kPart, n);
      if (ndim == 1) {
        write_positions(mask, begin, end, rows + start, count);
      } else if (ndim == 2) {
        write_matrix_rows(mask, in.size(1), begin, end, rows + 2 * start, count);
      } else {
        write_positions(mask, begin, end, found.data(), count);
        for (int64_t k = 0; k < count; ++k) odometer.write(found[static_cast<size_t>(k)], rows + (start + k) * ndim);
      }
    }
  });
}

} // namespace

TS_KERNEL("nonzero", nonzero);

} // namespace tesserack::cpu
