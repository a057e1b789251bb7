// Memory that every rank of a group has a share of and all of them map: what lies in it is reduced where it is.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace ts::comm {

class Window {
public:
  // Maps shares of `share` bytes, one after the other, which begin at `offset` of the file.
  Window(int descriptor, size_t offset, size_t share, int rank, int ranks, uint64_t number);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  uint64_t number() const { return number_; } // the same on all ranks, from 1
  std::byte* of(int rank) const { return memory_ + static_cast<size_t>(rank) * share_; }
  std::byte* own() const { return of(rank_); }
  bool holds(const void* data, size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(data);
    return at >= own() && at + bytes <= own() + share_;
  }

private:
  std::byte* memory_;
  size_t share_, bytes_;
  int rank_;
  int32_t process_;
  uint64_t number_;
};

// Those of one group that are still in use. A window lives as long as this process's tensors in it.
class Windows {
public:
  explicit Windows(int descriptor);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Called in the same order by all ranks, with the same size: the file grows beyond `used` bytes.
  std::shared_ptr<Window> make(size_t used, size_t bytes, int rank, int ranks);
  std::shared_ptr<Window> find(const void* data, size_t bytes); // the one that holds all of it, or none

private:
  int descriptor_;
  size_t next_ = 0; // how far the file is given away
  uint64_t made_ = 0;
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::vector<std::weak_ptr<Window>> windows_;
};

} // namespace ts::comm
