// Walking strided tensors in host memory. Included by backend.hpp.
#ifndef TESSERACK_STRIDED_HPP
#define TESSERACK_STRIDED_HPP

#include <tesserack/elements.hpp>

#include <array>
#include <cstddef>
#include <utility>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {

constexpr int kMaxDims = 64;

// Walks K tensors of one shape together, over every dimension but one.
template <size_t K> class StridedRows {
public:
  // `skip` is the dimension left to the caller; -1 skips none. Offsets are in elements.
  StridedRows(std::span<const int64_t> sizes, int skip, const std::array<std::span<const int64_t>, K>& strides) {
    if (sizes.size() > kMaxDims) fail(TS_ERROR, "a tensor of %zu dimensions, at most 64", sizes.size());
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
  int64_t sizes_[kMaxDims], index_[kMaxDims] = {}, strides_[K][kMaxDims];
  std::array<int64_t, K> offsets_{};
};

// A tensor seen as elements of T, which must be its storage type. A number without storage is spread with stride 0.
template <typename T> class Elements {
public:
  explicit Elements(const Tensor& tensor) : data_(tensor.is_scalar() ? &number_ : tensor.data<T>()) {
    if (tensor.is_scalar())
      number_ = is_floating(tensor.dtype()) ? convert<T>(tensor.raw()->scalar.f) : convert<T>(tensor.raw()->scalar.i);
    else
      strides_ = tensor.strides();
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  T& operator[](int64_t offset) const { return data_[offset]; }
  // One per dimension of the call's tensors.
  std::span<const int64_t> strides() const { return strides_; }

private:
  static constexpr int64_t kZeros[kMaxDims] = {};
  T number_{};
  T* data_;
  std::span<const int64_t> strides_{kZeros, kMaxDims};
};

// Calls f with a reference to one element of each operand, for every place in tensors of these sizes:
//   Elements<float> to(call.out(0)), from(call.in(0));
//   for_each(call.out(0).sizes(), [](float& y, float x) { y = x; }, to, from);
template <typename F, typename... Ts>
void for_each(std::span<const int64_t> sizes, F&& f, const Elements<Ts>&... operands) {
  constexpr size_t k = sizeof...(Ts);
  const int last = static_cast<int>(sizes.size()) - 1;
  StridedRows<k> rows(sizes, last, {operands.strides()...});
  const int64_t n = last < 0 ? 1 : sizes[last];
  const std::array<int64_t, k> steps = {(last < 0 ? 0 : operands.strides()[last])...};
  const auto row = [&]<size_t... I>(std::index_sequence<I...>) {
    const std::array<int64_t, k> start = {rows.offset(I)...};
    for (int64_t i = 0; i < n; ++i) f(operands[start[I] + i * steps[I]]...);
  };
  for (int64_t r = 0; r < rows.count(); ++r, rows.next()) row(std::index_sequence_for<Ts...>{});
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_STRIDED_HPP
