// A place for a tensor that is yet to be made, where its memory is of use to somebody: a gradient's in its bucket. It
// is an offer to whatever allocates as much on this thread; nothing depends on who takes it.
#pragma once
#include "tensor/tensor.h"
#include <memory>

namespace ts {

class Home {
public:
  // For what belongs to a tensor, as its gradient; the last one that was made for it counts. `memory`: of the host,
  // without a gap.
  Home(const TensorImpl* of, Tensor memory) : of_(of), memory_(std::move(memory)) {}
  static std::shared_ptr<Home> make(const TensorImpl* of, Tensor memory);
  static std::shared_ptr<Home> find(const TensorImpl* of);
  ~Home() { withdraw(); }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

  void withdraw() const;                                                   // it is found no more
  bool is_taken() const { return taken_.load(std::memory_order_acquire); } // by a storage, one at a time

private:
  friend class OfferedHomes;
  const TensorImpl* of_;
  Tensor memory_;
  std::atomic<bool> taken_{false};
};

inline std::atomic<size_t> homes_known{0}; // read before any is looked for

// Those that are offered on this thread while this exists; the innermost counts.
class OfferedHomes {
public:
  OfferedHomes();
  ~OfferedHomes();
  OfferedHomes(const OfferedHomes&) = delete;
  OfferedHomes& operator=(const OfferedHomes&) = delete;
  void add(std::shared_ptr<Home> home) {
    if (home && count_ < std::size(homes_)) homes_[count_++] = std::move(home);
  }
  static Storage* take(size_t nbytes, Device device); // NULL: none of so many bytes is free

private:
  std::shared_ptr<Home> homes_[4];
  size_t count_ = 0;
  OfferedHomes* outer_;
};

} // namespace ts
