// Intrusive reference counting: T has `std::atomic<int32_t> refs` starting at 1 and a static `destroy(T*)`.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace ts {

template <class T> inline void retain(T* p) { p->refs.fetch_add(1, std::memory_order_relaxed); }
template <class T> inline void release(T* p) {
  // A sole owner needs no read-modify-write.
  if (p->refs.load(std::memory_order_acquire) == 1 || p->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
    T::destroy(p);
}

template <class T> class Ref {
public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  static Ref adopt(T* p) { return Ref(p, 0); }
  static Ref share(T* p) {
    if (p) retain(p);
    return Ref(p, 0);
  }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_) retain(p_);
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U> Ref(Ref<U> o) : p_(o.detach()) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) release(p_);
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  T* detach() { return std::exchange(p_, nullptr); }
  void reset() { Ref().swap(*this); }
  void swap(Ref& o) { std::swap(p_, o.p_); }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

private:
  Ref(T* p, int) : p_(p) {}
  T* p_ = nullptr;
};

} // namespace ts
