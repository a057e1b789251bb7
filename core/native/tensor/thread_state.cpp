#include "tensor/thread_state.h"
#include <bit>
#include <cstdlib>
#include <memory>
#include <new>

namespace ts {

thread_local ThreadState* tls_state TS_TLS_MODEL = nullptr;

namespace {

constexpr uint32_t kMaxFree = 512;
void (*g_drain_hook)(ThreadState&) = nullptr;

int block_class(size_t bytes) { return bytes <= 64 ? 0 : std::bit_width(bytes - 1) - 6; }

// Owns the state; on thread exit cached memory goes back.
struct Owner {
  std::unique_ptr<ThreadState> state = std::make_unique<ThreadState>();
  ~Owner() {
    tls_state = nullptr;
    if (g_drain_hook) g_drain_hook(*state);
    for (FreeList& list : state->blocks)
      while (void* p = list.pop()) std::free(p);
  }
};

} // namespace

void set_thread_exit_hook(void (*hook)(ThreadState&)) { g_drain_hook = hook; }

ThreadState& make_thread_state() {
  thread_local Owner owner;
  // Destructors of other thread-locals may run after Owner's: give them a state that is never freed.
  if (!owner.state) owner.state = std::make_unique<ThreadState>();
  tls_state = owner.state.get();
  return *tls_state;
}

void* allocate_block(size_t bytes) {
  int c = block_class(bytes);
  if (c < kBlockClasses) {
    if (void* p = thread_state().blocks[c].pop()) return p;
    bytes = size_t{64} << c;
  }
  void* p = std::malloc(bytes);
  if (!p) throw std::bad_alloc();
  return p;
}

void free_block(void* p, size_t bytes) noexcept {
  int c = block_class(bytes);
  if (c < kBlockClasses && tls_state && tls_state->blocks[c].count < kMaxFree) return tls_state->blocks[c].push(p);
  std::free(p);
}

} // namespace ts
