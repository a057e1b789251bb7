// Triangles of matrices, and the coordinates of their elements.
#include <tesserack/backend.hpp>

#include "threads.h"

#include <algorithm>
#include <cstring>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kGrainBytes = 1 << 18; // that one thread copies at a time

// out0 = in0 where column <= row + param0 (upper: >=), zeros elsewhere; matrices in the last two dims, contiguous.
template <bool Upper> int triangle(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  if (!in.is_contiguous() || !out.is_contiguous() || in.ndim() < 2) return TS_DECLINED;
  const int64_t rows = in.size(in.ndim() - 2), columns = in.size(in.ndim() - 1);
  const int64_t diagonal = std::clamp(call.param(0).as_int(), -rows - 1, columns + 1);
  const int64_t item = backend::dtype_size(in.dtype()), width = columns * item;
  const char* from = in.bytes();
  char* to = out.bytes();
  if (in.numel() == 0) return TS_OK;
  parallel_for(0, in.numel() / columns, std::max<int64_t>(1, kGrainBytes / width), [&](int64_t first, int64_t last) {
    int64_t row = first % rows;
    for (int64_t r = first; r < last; ++r, row = row + 1 == rows ? 0 : row + 1) {
      const int64_t split = std::clamp<int64_t>(row + diagonal + (Upper ? 0 : 1), 0, columns) * item;
      const char* x = from + r * width;
      char* y = to + r * width;
      if constexpr (Upper) {
        std::memset(y, 0, static_cast<size_t>(split));
        std::memcpy(y + split, x + split, static_cast<size_t>(width - split));
      } else {
        std::memcpy(y, x, static_cast<size_t>(split));
        std::memset(y + split, 0, static_cast<size_t>(width - split));
      }
    }
  });
  return TS_OK;
}

// The rows that have an element: a triangle may be small where the matrix is not.
struct RowRange {
  int64_t begin, end;
};
RowRange rows_with_elements(int64_t rows, int64_t columns, int64_t diagonal, bool upper) {
  if (columns == 0) return {0, 0};
  return upper ? RowRange{0, std::clamp<int64_t>(columns - diagonal, 0, rows)}
               : RowRange{std::clamp<int64_t>(-diagonal, 0, rows), rows};
}

template <typename T>
void write_indices(T* out, int64_t n, RowRange rows, int64_t columns, int64_t diagonal, bool upper) {
  T *row_out = out, *column_out = out + n;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t begin = upper ? std::clamp<int64_t>(row + diagonal, 0, columns) : 0;
    const int64_t end = upper ? columns : std::clamp<int64_t>(row + diagonal + 1, 0, columns);
    for (int64_t column = begin; column < end; ++column) {
      *row_out++ = static_cast<T>(row);
      *column_out++ = static_cast<T>(column);
    }
  }
}

// out0 (2, n) = rows and columns of the elements that a triangle has in a param0 x param1 matrix, diagonal param2.
int triangle_indices(const Call& call) {
  const Tensor out = call.out(0);
  if (!out.is_contiguous()) return TS_DECLINED;
  const int64_t rows = call.param(0).as_int(), columns = call.param(1).as_int(), diagonal = call.param(2).as_int();
  const bool upper = call.param(3).as_int() != 0;
  const RowRange filled = rows_with_elements(rows, columns, diagonal, upper);
  int64_t n = 0;
  for (int64_t row = filled.begin; row < filled.end; ++row)
    n += std::clamp<int64_t>(upper ? columns - row - diagonal : row + diagonal + 1, 0, columns);
  if (out.ndim() != 2 || out.size(0) != 2 || out.size(1) != n)
    backend::fail(TS_ERROR, "triangle_indices: expected room for 2 rows of %lld coordinates",
                  static_cast<long long>(n));
  if (out.dtype() == TS_INT64)
    write_indices(out.data<int64_t>(), n, filled, columns, diagonal, upper);
  else if (out.dtype() == TS_INT32)
    write_indices(out.data<int32_t>(), n, filled, columns, diagonal, upper);
  else
    return TS_DECLINED;
  return TS_OK;
}

} // namespace

constexpr uint64_t kAnyDtype = (uint64_t{1} << TS_NUM_DTYPES) - 1; // bytes are moved
TS_KERNEL_AS("tril", triangle<false>, kAnyDtype, TS_L_STRIDED);
TS_KERNEL_AS("triu", triangle<true>, kAnyDtype, TS_L_STRIDED);
TS_KERNEL("triangle_indices", triangle_indices);

} // namespace tesserack::cpu
