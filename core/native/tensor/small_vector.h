// A vector that keeps its first N elements inline: shapes, strides and argument lists rarely exceed it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace ts {

template <class T, unsigned N> class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>, "SmallVector holds trivially copyable elements");

public:
  SmallVector() = default;
  explicit SmallVector(size_t n, T value = T()) { resize(n, value); }
  SmallVector(std::initializer_list<T> items) { assign(items.begin(), items.end()); }
  SmallVector(std::span<const T> items) { assign(items.begin(), items.end()); }
  template <class It> SmallVector(It first, It last) { assign(first, last); }
  SmallVector(const SmallVector& o) { assign(o.begin(), o.end()); }
  SmallVector(SmallVector&& o) noexcept { take(o); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) assign(o.begin(), o.end());
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) take(o);
    return *this;
  }

  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  operator std::span<const T>() const { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

  void push_back(T value) { grow() = value; }
  // One element more, which the caller sets.
  T& grow() {
    if (size_ == capacity_) [[unlikely]]
      reserve(2 * capacity_);
    return data()[size_++];
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void resize(size_t n, T value = T()) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) data()[i] = value;
    size_ = static_cast<uint32_t>(n);
  }
  void insert(T* position, T value) {
    size_t at = static_cast<size_t>(position - data());
    push_back(value);
    std::rotate(data() + at, data() + size_ - 1, data() + size_);
  }
  void erase(T* position) {
    std::copy(position + 1, end(), position);
    --size_;
  }
  void reserve(size_t n) {
    if (n <= capacity_) return;
    auto grown = std::make_unique<T[]>(n);
    std::copy(begin(), end(), grown.get());
    heap_ = std::move(grown);
    capacity_ = static_cast<uint32_t>(n);
  }
  template <class It> void assign(It first, It last) {
    size_t n = static_cast<size_t>(std::distance(first, last));
    reserve(n);
    std::copy(first, last, data());
    size_ = static_cast<uint32_t>(n);
  }
  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

private:
  void take(SmallVector& o) {
    size_ = o.size_;
    if (o.heap_) {
      heap_ = std::move(o.heap_);
      capacity_ = o.capacity_;
      o.capacity_ = N;
    } else {
      heap_.reset();
      capacity_ = N;
      std::copy(o.inline_, o.inline_ + o.size_, inline_);
    }
    o.size_ = 0;
  }

  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  std::unique_ptr<T[]> heap_;
  T inline_[N];
};

using Dims = SmallVector<int64_t, 6>;
using IntSpan = std::span<const int64_t>;

// A loop: for the few numbers of a shape, memcmp costs more to call.
inline bool same(IntSpan a, IntSpan b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k)
    if (a[k] != b[k]) return false;
  return true;
}

} // namespace ts
