// What attention's forward and backward passes share: operands of (batch..., rows, columns) read by blocks as float32,
// and scores of a block of queries with a block of keys.
#ifndef TESSERACK_CPU_ATTENTION_H
#define TESSERACK_CPU_ATTENTION_H

#include "matmul/matmul.h"
#include "rows.h"

#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

bool tiled_gemm_takes(const Gemm& gemm);
void tiled_gemm(const Gemm& gemm);
void packed_gemm(const Gemm& gemm, bool accumulate);

namespace attention {

// Scores of kQueryBlock x kKeyBlock stay in the L2 cache beside the blocks they are made of. Queries come in whole
// strips of the matrix product's tiles of 14 and of 6 rows.
constexpr int64_t kQueryBlock = 84, kKeyBlock = 512;

// A dense or strided float32 matrix in memory.
struct Block {
  const float* data;
  int64_t row, col; // strides
  Block transposed() const { return {data, col, row}; }
};

// c (m, n) = a (m, k) @ b (k, n), added to c if `accumulate`; rows of c are contiguous.
inline void multiply(const Block& a, const Block& b, int64_t m, int64_t n, int64_t k, float* c, int64_t c_row,
                     bool accumulate) {
  const auto matrix = [](const Block& x) {
    return Matrix{reinterpret_cast<char*>(const_cast<float*>(x.data)), x.row, x.col};
  };
  const Matrix result{reinterpret_cast<char*>(c), c_row, 1};
  const Gemm gemm{TS_FLOAT32, m, n, k, matrix(a), matrix(b), result, accumulate ? result : Matrix{nullptr, 0, 0}};
  tiled_gemm_takes(gemm) ? tiled_gemm(gemm) : packed_gemm(gemm, accumulate);
}

// One operand: where a head's matrix begins, and blocks of its rows.
class Rows {
public:
  explicit Rows(const backend::Tensor& t)
      : t_(t), load_(loader<float>(t.dtype())), store_(storer<float>(t.dtype())), row_(t.stride(t.ndim() - 2)),
        col_(t.stride(t.ndim() - 1)) {}
  int64_t rows() const { return t_.size(t_.ndim() - 2); }
  int64_t cols() const { return t_.size(t_.ndim() - 1); }
  // The head's matrix, heads counted row-major over the batch dims.
  char* head(int64_t index) const {
    int64_t offset = 0;
    for (int d = t_.ndim() - 3; d >= 0; --d) {
      offset += index % t_.size(d) * t_.stride(d);
      index /= t_.size(d);
    }
    return t_.bytes() + offset * t_.item_size();
  }
  // Rows [first, first + count) where they lie if they are float32 with contiguous rows; else in scratch.
  Block read(const char* head, int64_t first, int64_t count, float* scratch) const {
    if (t_.dtype() == TS_FLOAT32 && col_ == 1) return {reinterpret_cast<const float*>(head) + first * row_, row_, 1};
    load_(scratch, at(head, first), {count, cols(), row_, col_});
    return {scratch, cols(), 1};
  }
  // The same in scratch in any case, times a number.
  Block read_scaled(const char* head, int64_t first, int64_t count, float factor, float* scratch) const {
    load_(scratch, at(head, first), {count, cols(), row_, col_});
    for (int64_t i = 0; i < count * cols(); ++i) scratch[i] *= factor;
    return {scratch, cols(), 1};
  }
  void write(char* head, int64_t first, int64_t count, const float* rows) const {
    store_(head + first * row_ * t_.item_size(), rows, {count, cols(), row_, col_});
  }
  // Columns [first, first + count) of one row, in scratch.
  void read_row(const char* head, int64_t row, int64_t first, int64_t count, float* scratch) const {
    load_(scratch, head + (row * row_ + first * col_) * t_.item_size(), {1, count, 0, col_});
  }

private:
  const char* at(const char* head, int64_t row) const { return head + row * row_ * t_.item_size(); }
  backend::Tensor t_;
  LoadFn<float> load_;
  StoreFn<float> store_;
  int64_t row_, col_;
};

// Which keys a query sees, and what is added to its scores.
class Mask {
public:
  Mask(const backend::Call& call, int index, bool is_causal)
      : tensor_(call.in(call.has_in(index) ? index : 0)), present_(call.has_in(index)), causal_(is_causal),
        chooses_(call.in(index).dtype() == TS_BOOL) {}
  const char* head(int64_t index) const { return present_ ? tensor_.head(index) : nullptr; }
  // How many of `count` keys from `first` on the query at `row` may see; those after them it may not.
  int64_t visible(int64_t row, int64_t first, int64_t count) const {
    return causal_ ? std::clamp<int64_t>(row + 1 - first, 0, count) : count;
  }
  // scores[k] is of key first + k.
  void apply(const char* head, int64_t row, int64_t first, int64_t count, float* scores, float* scratch) const {
    if (!present_) return;
    tensor_.read_row(head, row, first, count, scratch);
    if (chooses_)
      for (int64_t k = 0; k < count; ++k) scores[k] = scratch[k] != 0.0f ? scores[k] : -__builtin_inff();
    else
      for (int64_t k = 0; k < count; ++k) scores[k] += scratch[k];
  }

private:
  Rows tensor_;
  bool present_, causal_, chooses_;
};

inline int64_t heads_of(const backend::Tensor& t) {
  int64_t heads = 1;
  for (int d = 0; d < t.ndim() - 2; ++d) heads *= t.size(d);
  return heads;
}

} // namespace attention
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ATTENTION_H
