// The caching allocator over a backend's raw alloc and free: power-of-two small classes with a per-thread front,
// rounded large blocks with best fit, statistics, and an out-of-memory message that says who holds what.
#pragma once
#include "tensor/block_users.h"
#include "tensor/storage.h"
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ts {

class Backend;

struct MemoryStats {
  int64_t allocated = 0; // bytes in live tensors (rounded to their class)
  int64_t allocated_peak = 0;
  int64_t reserved = 0; // bytes held from the device, cached ones included
  int64_t reserved_peak = 0;
  int64_t allocations = 0; // calls so far
  int64_t device_allocations = 0;
};

class DeviceAllocator {
public:
  DeviceAllocator(Backend& backend, int16_t index);
  ~DeviceAllocator();
  // A new storage of nbytes (0 is fine). OutOfMemory error with statistics when the device has no more.
  Storage* allocate(size_t nbytes);
  MemoryStats stats();
  void reset_peak();
  void hold_back(bool on) { abandoned_ = on; } // while it is, nothing goes back to the device
  void abandon();        // the device was lost: nothing goes back to it, and nothing is handed out any more
  void release_cached(); // everything no live tensor uses goes back to the device
  // A dying thread's cached blocks and counters join the shared pool.
  void adopt_thread(ThreadState& state);
  void add_stream(void* stream);
  // Work given to `stream` so far and until the storage is let go uses it: its memory is reused once that is done.
  void record_stream(Storage& s, void* stream);
  // What waits for reuse on a stream that goes away may be used on any.
  void retire_stream(void* stream);
  // Whether blocks are lent again and again, at the same addresses, before they go back to the device.
  bool keeps_blocks() const { return cached_; }
  bool lent(const Storage& s) const { // its memory is such a block
    return (s.deleter == release_small || s.deleter == release_large) && s.deleter_ctx == this;
  }
  BlockUsers& block_users() { return block_users_; }

private:
  Storage* allocate_any(size_t nbytes);
  Storage* allocate_now(size_t nbytes);
  struct Block {
    void* handle;
    size_t bytes;
    void* stream; // it was allocated on
  };
  struct Waiting; // a block that other streams still use
  // Free blocks, to be used again on the stream that used them last: its order keeps the uses apart. The one at the
  // lowest address is next, whatever was freed first: what does the same again gets the same addresses.
  struct Pool {
    std::vector<void*> small[kSmallClasses]; // heaps
    std::set<std::pair<size_t, void*>> large;
  };
  static void release_small(Storage& s);
  static void release_large(Storage& s);
  Pool& pool_of(void* stream);
  Storage* allocate_own(ThreadState& tls, size_t nbytes, int size_class);
  Storage* allocate_small(size_t nbytes, int size_class); // of those that all threads share
  Storage* allocate_large(size_t nbytes);
  Storage* make_storage(size_t nbytes, Block block, void* stream, void (*release)(Storage&));
  void* take_small(int size_class, void* stream);
  void* take_large(size_t& bytes, void* stream);
  void give_small(int size_class, void* handle, void* stream);
  void give_large(const Block& block);
  void* live(void* stream) const; // the stream, or the default one when it is gone; under the lock
  bool waits_for_streams(Storage& s, size_t bytes, bool small);
  bool marks_streams(Storage& s, size_t bytes, bool small);
  void take_back(bool wait);     // blocks that no stream uses any more
  std::vector<Block> take_all(); // every free block; under the lock
  std::vector<Block> take_surplus();
  std::vector<Block> take_outgrown(size_t bytes, void* stream);
  void* raw_alloc(size_t bytes, void* stream);
  void raw_free(std::span<const Block> blocks);
  void count_allocated(int64_t bytes);
  void flush(ThreadState& state);
  bool handles_are_addresses();
  [[noreturn]] void out_of_memory(size_t bytes, int status);

  Backend& backend_;
  int16_t index_;
  bool cached_;    // false when the backend pools by itself
  uint32_t epoch_; // of the device, when this was made
  std::atomic<bool> abandoned_{false};
  int thread_slot_;  // index into ThreadState::data, or -1
  std::mutex mutex_; // never held while the backend is called: its callbacks may wait for the interpreter
  std::map<void*, Pool> pools_;
  Pool& default_pool_;
  std::unordered_map<const Storage*, std::vector<void*>> other_streams_; // see record_stream
  std::vector<std::unique_ptr<Waiting>> waiting_;
  std::atomic<size_t> n_waiting_{0};
  size_t large_cached_bytes_ = 0;
  MemoryStats stats_;
  BlockUsers block_users_;
};

} // namespace ts
