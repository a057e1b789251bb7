// The caching allocator over a backend's raw alloc and free: power-of-two small classes with a per-thread front,
// rounded large blocks with best fit, statistics, and an out-of-memory message that says who holds what.
#pragma once
#include "tensor/storage.h"
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
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
  // A new storage of nbytes (0 is fine). OutOfMemory error with statistics when the device has no more.
  Storage* allocate(size_t nbytes);
  MemoryStats stats();
  void reset_peak();
  void release_cached(); // everything no live tensor uses goes back to the device
  // A dying thread's cached blocks and counters join the shared pool.
  void adopt_thread(ThreadState& state);

private:
  struct Block {
    void* handle;
    void* host;
    size_t bytes;
  };
  static void release_small(Storage& s);
  static void release_large(Storage& s);
  Storage* allocate_small(size_t nbytes, int size_class);
  Storage* allocate_large(size_t nbytes);
  void* raw_alloc(size_t bytes);
  void raw_free(void* handle, size_t bytes);
  void flush(ThreadState& state);
  [[noreturn]] void out_of_memory(size_t bytes, int status);

  Backend& backend_;
  int16_t index_;
  bool cached_;     // false when the backend pools by itself
  int thread_slot_; // index into ThreadState::data, or -1
  std::mutex mutex_;
  std::vector<void*> small_[kSmallClasses];
  std::multimap<size_t, Block> large_; // free large blocks by size
  size_t large_cached_bytes_ = 0;
  MemoryStats stats_;
};

} // namespace ts
