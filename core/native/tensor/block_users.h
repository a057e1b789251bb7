// Who knows blocks of an allocator by their addresses, after their tensors are gone: told before blocks go back to the
// device, where others may get the addresses.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace ts {

class BlockUser {
public:
  virtual ~BlockUser() = default;
  virtual void blocks_go() noexcept = 0;    // one of them does; in any thread, while none uses it
  virtual void memory_short() noexcept = 0; // what it keeps may be of more use to others; in any thread, at any time
};

class BlockUsers {
public:
  void add(std::span<void* const> blocks, const std::shared_ptr<BlockUser>& user);
  void forget(std::span<void* const> blocks); // users of these that are gone
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  void tell(std::span<void* const> blocks) noexcept; // that they go back
  void tell_short();

private:
  std::mutex mutex_; // held while nobody is called
  std::unordered_map<void*, std::vector<std::weak_ptr<BlockUser>>> users_;
  std::atomic<size_t> count_{0}; // of blocks with users
};

} // namespace ts
