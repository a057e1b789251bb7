// Rows beside each other for distances of pairs: as many as lie in a few registers, coordinate by coordinate.
#ifndef TESSERACK_CPU_DISTANCES_H
#define TESSERACK_CPU_DISTANCES_H

#include "dtype_switch.h"
#include "math/math_f32.h"
#include "math/pow_f64.h"
#include "pointwise/geometry.h"
#include "reduce/fold.h"
#include "threads.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace distances {

using backend::Call;
using backend::Tensor;

constexpr uint64_t kTypes = uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;
constexpr int64_t kVectors = 4;     // of rows side by side
constexpr int64_t kGrain = 1 << 15; // differences worth a thread
template <class T> constexpr int64_t kWidth = kVectors* kLanes<T>;

template <class T> Vector<T> magnitude(Vector<T> x) { return x < 0 ? -x : x; }

// In place. A function of its own: else the compiler finds no vectors.
template <class T> __attribute__((noinline)) void raise(T* __restrict x, T p) {
  for (int k = 0; k < kLanes<T>; ++k) {
    if constexpr (std::is_same_v<T, float>)
      x[k] = pow_f32(x[k], p);
    else
      x[k] = pow_f64(x[k], p);
  }
}
template <class T> Vector<T> power(Vector<T> x, T p) {
  alignas(64) T lanes[kLanes<T>];
  std::memcpy(lanes, &x, sizeof x);
  raise(lanes, p);
  return load_vector<T>(lanes);
}

// to[d * width + j] = coordinate d of row j; the last of the rows is repeated up to the width.
template <class T> void pack(const T* rows, int64_t count, int64_t depth, int64_t width, T* to) {
  for (int64_t j = 0; j < width; ++j) {
    const T* const row = rows + std::min(j, count - 1) * depth;
    for (int64_t d = 0; d < depth; ++d) to[d * width + j] = row[d];
  }
}

// The matrix of a batch's operand, whose leading dims broadcast to those of `sizes`.
inline int64_t matrix_offset(const Tensor& operand, const Tensor& sizes, int64_t batch) {
  int64_t offset = 0;
  const int missing = sizes.ndim() - operand.ndim();
  for (int d = sizes.ndim() - 2; d-- > 0; batch /= sizes.size(d))
    if (d >= missing && operand.size(d - missing) != 1) offset += batch % sizes.size(d) * operand.stride(d - missing);
  return offset;
}
inline int64_t batches(const Tensor& t) {
  int64_t count = 1;
  for (int d = 0; d + 2 < t.ndim(); ++d) count *= t.size(d);
  return count;
}

// f(TypeTag) for the dtypes above.
template <class F> void switch_type(const Call& call, const F& f) {
  if (call.in(0).dtype() == TS_FLOAT64)
    f(TypeTag<double>{});
  else
    f(TypeTag<float>{});
}

} // namespace distances
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_DISTANCES_H
