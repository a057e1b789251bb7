// Two-dimensional boxes of elements moved between tensors of any dtype and dense tiles of a compute type.
#ifndef TESSERACK_CPU_BOX_H
#define TESSERACK_CPU_BOX_H

#include "storage.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// A box of a tensor: rows x cols, strides in elements, any sign.
struct Box {
  int64_t rows, cols, row_stride, col_stride;
};

// dst[r * cols + c] = src[r, c]
template <typename T> using LoadFn = void (*)(T* dst, const char* src, const Box& box);
// dst[r, c] = src[r * cols + c]
template <typename T> using StoreFn = void (*)(char* dst, const T* src, const Box& box);

// Throw for complex dtypes. T: the five compute types; or uint8, int8, int16, of themselves and bool.
template <typename T> LoadFn<T> loader(int32_t dtype);
template <typename T> StoreFn<T> storer(int32_t dtype);

// Moves a box between two places without looking at the values; `item` is 1, 2, 4, 8 or 16 bytes.
using MoveFn = void (*)(char* dst, const Box& to, const char* src, int64_t row_stride, int64_t col_stride);
MoveFn mover(int64_t item);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_BOX_H
