// Walks several tensors of one shape together, over every dimension but one.
#ifndef TESSERACK_CPU_STRIDED_ROWS_H
#define TESSERACK_CPU_STRIDED_ROWS_H

#include <tesserack/backend.hpp>

#include <array>
#include <cstdint>
#include <span>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int kMaxDims = 64;

template <size_t K> class StridedRows {
public:
  // `skip` is the dimension left to the caller; -1 skips none. Offsets are in elements.
  StridedRows(std::span<const int64_t> sizes, int skip, const std::array<std::span<const int64_t>, K>& strides) {
    if (sizes.size() > kMaxDims) backend::fail(TS_ERROR, "cpu: a tensor of %zu dimensions, at most 64", sizes.size());
    for (int d = 0; d < static_cast<int>(sizes.size()); ++d) {
      if (d == skip || sizes[d] == 1) continue;
      sizes_[ndim_] = sizes[d];
      for (size_t k = 0; k < K; ++k) strides_[k][ndim_] = strides[k][d];
      count_ *= sizes[d];
      ++ndim_;
    }
  }

  int64_t count() const { return count_; }
  int64_t offset(size_t k) const { return offsets_[k]; }

  void seek(int64_t row) {
    offsets_ = {};
    for (int d = ndim_ - 1; d >= 0; --d) {
      index_[d] = row % sizes_[d];
      row /= sizes_[d];
      for (size_t k = 0; k < K; ++k) offsets_[k] += index_[d] * strides_[k][d];
    }
  }

  void next() {
    for (int d = ndim_ - 1; d >= 0; --d) {
      for (size_t k = 0; k < K; ++k) offsets_[k] += strides_[k][d];
      if (++index_[d] < sizes_[d]) return;
      index_[d] = 0;
      for (size_t k = 0; k < K; ++k) offsets_[k] -= sizes_[d] * strides_[k][d];
    }
  }

private:
  int ndim_ = 0;
  int64_t count_ = 1;
  int64_t sizes_[kMaxDims], index_[kMaxDims], strides_[K][kMaxDims];
  std::array<int64_t, K> offsets_{};
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_STRIDED_ROWS_H
