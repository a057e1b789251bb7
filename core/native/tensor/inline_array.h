// A fixed-size array, sized once, that keeps up to N elements inline.
#pragma once
#include <array>
#include <cstddef>
#include <memory>

namespace ts {

template <class T, size_t N> class InlineArray {
public:
  void resize(size_t n) {
    if (n > N) heap_ = std::make_unique<T[]>(n);
    size_ = n;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return heap_ ? heap_.get() : inline_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return heap_ ? heap_.get() : inline_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t k) { return begin()[k]; }
  const T& operator[](size_t k) const { return begin()[k]; }

private:
  size_t size_ = 0;
  std::unique_ptr<T[]> heap_;
  std::array<T, N> inline_;
};

} // namespace ts
