// A block of device memory: an opaque handle, its size, and how to give it back.
#pragma once
#include "tensor/device.h"
#include "tensor/ref.h"
#include "tensor/thread_state.h"
#include <cstddef>

namespace ts {

struct Storage {
  std::atomic<int32_t> refs{1};
  Device device;
  std::atomic<uint32_t> version{0}; // counts in-place changes, shared by all views
  uint32_t epoch = 0;               // how often the device had been recovered when it was made
  size_t nbytes = 0;
  size_t capacity = 0;             // bytes really held, where the allocator rounds up
  void* handle = nullptr;          // NULL when nbytes is 0 or the device is meta
  void* stream = nullptr;          // the stream it was allocated on; its memory is reused there
  std::atomic<bool> shared{false}; // other streams use it too: reuse waits for the device
  void* host = nullptr;            // handle as an address, for host-addressable backends
  void (*deleter)(Storage&) = nullptr;
  void* deleter_ctx = nullptr; // of memory brought from outside: its owner

  static Storage* make(Device device, size_t nbytes, void* handle, void* host, void (*deleter)(Storage&), void* ctx) {
    auto* s = new (allocate_block(sizeof(Storage))) Storage;
    s->device = device;
    s->nbytes = nbytes;
    s->handle = handle;
    s->host = host;
    s->deleter = deleter;
    s->deleter_ctx = ctx;
    return s;
  }
  static void destroy(Storage* s) {
    if (s->deleter) s->deleter(*s);
    s->~Storage();
    free_block(s, sizeof(Storage));
  }
};

} // namespace ts
