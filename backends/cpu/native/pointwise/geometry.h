// The iteration space of an elementwise call: operands with strides over common sizes, brought to few dimensions.
#ifndef TESSERACK_CPU_GEOMETRY_H
#define TESSERACK_CPU_GEOMETRY_H

#include "copy/box.h"

#include <memory>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int kMaxDims = 64;

// N elements inline, more on the heap; uninitialised.
template <typename T, int N> class SmallArray {
public:
  explicit SmallArray(int count) {
    if (count > N) heap_.reset(new T[static_cast<size_t>(count)]);
    data_ = heap_ ? heap_.get() : reinterpret_cast<T*>(local_);
  }
  T& operator[](int i) { return data_[i]; }
  const T& operator[](int i) const { return data_[i]; }
  T* data() { return data_; }

private:
  alignas(T) unsigned char local_[sizeof(T) * N];
  std::unique_ptr<T[]> heap_;
  T* data_;
};

struct Operand {
  char* base;
  int64_t item; // bytes
  int32_t dtype;
  int64_t stride[kMaxDims]; // elements
};

struct Space {
  int nd = 0;
  int64_t size[kMaxDims];
  int n_operands = 0;
  Operand* operands = nullptr;

  int64_t rows() const { return size[nd - 2]; }
  int64_t cols() const { return size[nd - 1]; }
};

inline void set_operand(Operand& operand, const ts_tensor* tensor) {
  operand.base = static_cast<char*>(tensor->handle) + tensor->byte_offset;
  operand.dtype = tensor->dtype;
  operand.item = backend::dtype_size(tensor->dtype);
  for (int d = 0; d < tensor->ndim; ++d) operand.stride[d] = tensor->strides[d];
}

inline void require_dims(const char* op, int32_t ndim) {
  if (ndim > kMaxDims)
    backend::fail(TS_ERROR, "%s: expected at most %d dimensions, got %d; merge some with reshape", op, kMaxDims, ndim);
}

// Drops dimensions of size 1, orders the rest by operand 0's stride (largest first) if `sort`, merges what is adjacent
// in every operand, and pads to two dimensions.
inline void normalise(Space& space, bool sort = true) {
  const int n = space.n_operands;
  Operand* ops = space.operands;
  int nd = 0;
  for (int d = 0; d < space.nd; ++d) {
    if (space.size[d] == 1) continue;
    int at = nd; // insertion sort: the usual case is in order already
    const int64_t key = ops[0].stride[d] < 0 ? -ops[0].stride[d] : ops[0].stride[d];
    const int64_t extent = space.size[d];
    int64_t moved[64];
    for (int k = 0; k < n && k < 64; ++k) moved[k] = ops[k].stride[d];
    const bool sortable = sort && n <= 64;
    while (sortable && at > 0) {
      const int64_t before = ops[0].stride[at - 1] < 0 ? -ops[0].stride[at - 1] : ops[0].stride[at - 1];
      if (before >= key) break;
      space.size[at] = space.size[at - 1];
      for (int k = 0; k < n; ++k) ops[k].stride[at] = ops[k].stride[at - 1];
      --at;
    }
    space.size[at] = extent;
    if (sortable)
      for (int k = 0; k < n; ++k) ops[k].stride[at] = moved[k];
    else
      for (int k = 0; k < n; ++k) ops[k].stride[at] = ops[k].stride[d];
    ++nd;
  }
  int last = 0;
  for (int d = 1; d < nd; ++d) {
    bool mergeable = true;
    for (int k = 0; k < n && mergeable; ++k) mergeable = ops[k].stride[last] == ops[k].stride[d] * space.size[d];
    if (mergeable) {
      space.size[last] *= space.size[d];
    } else {
      ++last;
      space.size[last] = space.size[d];
    }
    for (int k = 0; k < n; ++k) ops[k].stride[last] = ops[k].stride[d];
  }
  if (nd > 0) nd = last + 1;
  const int pad = nd >= 2 ? 0 : 2 - nd;
  for (int d = nd - 1; d >= 0; --d) {
    space.size[d + pad] = space.size[d];
    for (int k = 0; k < n; ++k) ops[k].stride[d + pad] = ops[k].stride[d];
  }
  for (int d = 0; d < pad; ++d) {
    space.size[d] = 1;
    for (int k = 0; k < n; ++k) ops[k].stride[d] = 0;
  }
  space.nd = nd + pad;
}

// How the last two dimensions are cut into boxes of at most `capacity` elements.
struct Tiling {
  int64_t rows, cols;             // of a full box
  int64_t row_blocks, col_blocks; // per outer index
  int64_t outer;                  // product of the other sizes
  int64_t count() const { return outer * row_blocks * col_blocks; }
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline Tiling make_tiling(const Space& space, int64_t capacity) {
  const int nd = space.nd;
  const int64_t rows = space.rows(), cols = space.cols();
  bool transposed = false; // some operand runs along the rows
  for (int k = 0; k < space.n_operands; ++k) {
    const int64_t rs = space.operands[k].stride[nd - 2], cs = space.operands[k].stride[nd - 1];
    const int64_t ars = rs < 0 ? -rs : rs, acs = cs < 0 ? -cs : cs;
    transposed = transposed || (rs != 0 && ars < acs);
  }
  Tiling t{};
  if (transposed && rows >= 8 && cols >= 8) {
    t.cols = cols < 32 ? cols : 32;
    t.rows = capacity / t.cols;
  } else {
    const int64_t blocks = ceil_div(cols, capacity);
    t.cols = blocks == 1 ? cols : (ceil_div(cols, blocks) + 15) / 16 * 16;
    t.rows = blocks == 1 ? capacity / t.cols : 1;
  }
  if (t.rows > rows) t.rows = rows;
  t.row_blocks = ceil_div(rows, t.rows);
  t.col_blocks = ceil_div(cols, t.cols);
  t.outer = 1;
  for (int d = 0; d < nd - 2; ++d) t.outer *= space.size[d];
  return t;
}

// Walks boxes [first, last) of a tiling, keeping every operand's element offset.
class BoxWalk {
public:
  BoxWalk(const Space& space, const Tiling& tiling, int64_t first)
      : space_(space), tiling_(tiling), offset_(space.n_operands) {
    const int nd = space.nd;
    int64_t index = first;
    col_block_ = index % tiling.col_blocks;
    index /= tiling.col_blocks;
    row_block_ = index % tiling.row_blocks;
    index /= tiling.row_blocks;
    for (int d = nd - 3; d >= 0; --d) {
      at_[d] = index % space.size[d];
      index /= space.size[d];
    }
    place();
  }

  int64_t rows() const { return min(tiling_.rows, space_.rows() - row_block_ * tiling_.rows); }
  int64_t cols() const { return min(tiling_.cols, space_.cols() - col_block_ * tiling_.cols); }
  char* at(int k) const { return space_.operands[k].base + offset_[k] * space_.operands[k].item; }
  int64_t row_stride(int k) const { return space_.operands[k].stride[space_.nd - 2]; }
  int64_t col_stride(int k) const { return space_.operands[k].stride[space_.nd - 1]; }
  Box box(int k) const { return {rows(), cols(), row_stride(k), col_stride(k)}; }

  void next() {
    const int nd = space_.nd;
    if (++col_block_ < tiling_.col_blocks) {
      for (int k = 0; k < space_.n_operands; ++k) offset_[k] += tiling_.cols * col_stride(k);
      return;
    }
    col_block_ = 0;
    if (++row_block_ == tiling_.row_blocks) {
      row_block_ = 0;
      for (int d = nd - 3; d >= 0; --d) {
        if (++at_[d] < space_.size[d]) break;
        at_[d] = 0;
      }
    }
    place();
  }

private:
  static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
  void place() {
    const int nd = space_.nd;
    for (int k = 0; k < space_.n_operands; ++k) {
      int64_t offset = row_block_ * tiling_.rows * row_stride(k) + col_block_ * tiling_.cols * col_stride(k);
      for (int d = 0; d < nd - 2; ++d) offset += at_[d] * space_.operands[k].stride[d];
      offset_[k] = offset;
    }
  }

  const Space& space_;
  const Tiling& tiling_;
  SmallArray<int64_t, 16> offset_;
  int64_t at_[kMaxDims];
  int64_t row_block_, col_block_;
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_GEOMETRY_H
