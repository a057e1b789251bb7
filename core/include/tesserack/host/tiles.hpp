// Elements of any dtype as numbers of one type, a tile of them at a time: what computes is compiled once for each of
// the five types of numbers, not for each pair or triple of dtypes.
#ifndef TESSERACK_HOST_TILES_HPP
#define TESSERACK_HOST_TILES_HPP

#include <tesserack/backend.hpp>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

inline constexpr int64_t kTile = 512;

template <typename T> void load(T* to, const Tensor& in, int64_t offset, int64_t step, int64_t n) {
  with_storage(in.dtype(), [&]<typename From>() {
    Elements<From> from(in);
    for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(from[offset + i * step]);
  });
}

template <typename T> void store(const Tensor& out, int64_t offset, int64_t step, const T* from, int64_t n) {
  with_storage(out.dtype(), [&]<typename To>() {
    Elements<To> to(out);
    for (int64_t i = 0; i < n; ++i) to[offset + i * step] = convert<To>(from[i]);
  });
}

// Of a number without storage all are 0.
inline std::span<const int64_t> strides_of(const Tensor& tensor) {
  static constexpr int64_t kZeros[kMaxDims] = {};
  return tensor.is_scalar() ? std::span<const int64_t>(kZeros) : tensor.strides();
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_TILES_HPP
