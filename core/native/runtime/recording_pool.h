// Memory of recorded work whose addresses must stay: what it lets go is used again by later work of its own, and by
// that of other recordings with the same pool.
#pragma once
#include "runtime/stream.h"
#include "tensor/storage.h"
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace ts {

class DeviceAllocator;

// Recordings that share one are replayed in the order in which they were made, and not at once. It lives as long as
// one of them, or a tensor in it, does; then its memory goes back to the allocator.
class RecordingPool : public std::enable_shared_from_this<RecordingPool> {
public:
  // The pool of a number; 0: one that nobody else has.
  static std::shared_ptr<RecordingPool> of(Device device, uint64_t number);
  // The one that all recordings share which are replayed on a stream, and keep nothing in it between two calls: one for
  // each of the branches that a replay may do side by side.
  static std::shared_ptr<RecordingPool> of_stream(Device device, void* stream, size_t branch);
  ~RecordingPool();
  RecordingPool(const RecordingPool&) = delete;
  RecordingPool& operator=(const RecordingPool&) = delete;
  // Where this thread's recording allocates on a device; NULL: as always.
  static RecordingPool* current(Device device);

  // From what was let go on the stream; `fresh` makes a storage of so many bytes, which the pool keeps.
  template <class Fresh> Storage* allocate(size_t nbytes, void* stream, Fresh&& fresh) {
    size_t bytes = rounded(nbytes);
    Storage* block = take(bytes, stream);
    if (!block) block = keep(fresh(bytes));
    return lease(block, nbytes, bytes, stream);
  }
  static void release(Storage& s); // the deleter of what `allocate` gave

  // While it lives, the thread's allocations are the pool's; with `lent_on`, in memory of these streams, where the
  // recording will be replayed, instead of the current ones.
  class Use {
  public:
    explicit Use(std::shared_ptr<RecordingPool> pool, const StreamChoice* lent_on = nullptr);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

  private:
    std::shared_ptr<RecordingPool> pool_;
    RecordingPool* before_;
    const StreamChoice* lent_on_before_;
  };
  // While the pool in use allocates.
  class OnItsStream {
  public:
    OnItsStream();
    ~OnItsStream();
    OnItsStream(const OnItsStream&) = delete;
    OnItsStream& operator=(const OnItsStream&) = delete;

  private:
    bool other_;
    StreamChoice before_;
  };

private:
  struct Lease;
  explicit RecordingPool(Device device);
  static std::shared_ptr<RecordingPool> shared(Device device, uint64_t number, void* stream, size_t branch);
  static size_t rounded(size_t nbytes);
  Storage* take(size_t& bytes, void* stream);
  Storage* keep(Storage* block);
  Storage* lease(Storage* block, size_t nbytes, size_t bytes, void* stream);

  Device device_;
  uint32_t epoch_; // of the device: its memory is of then
  std::mutex mutex_;
  std::vector<Storage*> blocks_; // all of them
  std::map<void*, std::multimap<size_t, Storage*>> free_;
};

} // namespace ts
