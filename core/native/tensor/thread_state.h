// Everything the core keeps per thread, behind one initial-exec TLS pointer (static TLS space is scarce).
#pragma once
#include "tensor/keys.h"
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ts {

// A bounded stack of equal-sized free blocks, linked through their first word.
struct FreeList {
  void* head = nullptr;
  uint32_t count = 0;
  void* pop() {
    void* p = head;
    if (p) {
      head = *static_cast<void**>(p);
      --count;
    }
    return p;
  }
  void push(void* p) {
    *static_cast<void**>(p) = head;
    head = p;
    ++count;
  }
};

inline constexpr int kBlockClasses = 8;   // 64, 128, ... bytes: core objects
inline constexpr int kSmallClasses = 12;  // 64 B ... 128 KiB: tensor data
inline constexpr int kCachedBackends = 4; // only the first few backends get a per-thread data cache

struct ThreadState {
  KeySet include = 0;
  KeySet exclude = 0;
  bool inference = false;
  bool anomaly = false;
  bool hidden_no_grad = false;    // no_grad, and recorded for tangents all the same: autograd/forward_level.h
  bool released_gil = false;      // this thread runs a kernel without the interpreter lock
  bool on_stream = false;         // some device's current stream is not its default one, see runtime/stream.h
  uint8_t transfer_guard[3] = {}; // modes of runtime/transfer_guard.h
  FreeList blocks[kBlockClasses];
  FreeList data[kCachedBackends][kSmallClasses];
  int64_t pending_bytes[kCachedBackends] = {}; // allocated minus freed, not yet in the shared statistics
  int64_t pending_allocations[kCachedBackends] = {};
  void* dying_nodes = nullptr; // autograd: nodes waiting for destruction, see Node::destroy
  bool destroying = false;
  uint64_t sequence = 0;            // of autograd nodes: later is higher
  int saved_tensor_hooks = 0;       // depth of the stack in autograd/saved_tensor.cpp
  void* backward_running = nullptr; // of autograd/engine.cpp: the innermost run's state
  void* backward_spare = nullptr;   //   and one kept for reuse
  const void* backward_node = nullptr;
  void* capture = nullptr; // a RecordingState of runtime/recording_state.h, while this thread records a device's work
};

#if defined(__GNUC__) && !defined(TESSERACK_STATIC_TLS_UNSAFE)
#define TS_TLS_MODEL __attribute__((tls_model("initial-exec")))
#else
#define TS_TLS_MODEL
#endif
// constinit: readers need not ask whether it was initialised.
extern thread_local constinit ThreadState* tls_state TS_TLS_MODEL;
ThreadState& make_thread_state();
inline ThreadState& thread_state() {
  ThreadState* s = tls_state;
  return s ? *s : make_thread_state();
}

// Called once per exiting thread, before its state dies.
void set_thread_exit_hook(void (*hook)(ThreadState&));

// Core objects of up to 8 KiB come from per-thread free lists.
inline constexpr uint32_t kMaxFreeBlocks = 512; // per class
constexpr int block_class(size_t bytes) { return bytes <= 64 ? 0 : std::bit_width(bytes - 1) - 6; }
void* allocate_new_block(size_t bytes);
void return_block(void* p) noexcept;
inline void* allocate_block(size_t bytes) {
  int c = block_class(bytes);
  void* p = c < kBlockClasses ? thread_state().blocks[c].pop() : nullptr;
  return p ? p : allocate_new_block(bytes);
}
inline void free_block(void* p, size_t bytes) noexcept {
  int c = block_class(bytes);
  ThreadState* s = tls_state; // NULL at the end of a thread
  if (c < kBlockClasses && s && s->blocks[c].count < kMaxFreeBlocks) return s->blocks[c].push(p);
  return_block(p);
}

} // namespace ts
