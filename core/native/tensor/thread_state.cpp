#include "tensor/thread_state.h"
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace ts {

thread_local constinit ThreadState* tls_state TS_TLS_MODEL = nullptr;

namespace {

// Every device that is opened sets it, while threads may be ending.
std::atomic<void (*)(ThreadState&)> g_drain_hook{nullptr};

// Owns the state; on thread exit cached memory goes back.
struct Owner {
  std::unique_ptr<ThreadState> state = std::make_unique<ThreadState>();
  ~Owner() {
    tls_state = nullptr;
    if (auto* drain = g_drain_hook.load(std::memory_order_acquire)) drain(*state);
    for (FreeList& list : state->blocks)
      while (void* p = list.pop()) std::free(p);
  }
};

} // namespace

void set_thread_exit_hook(void (*hook)(ThreadState&)) { g_drain_hook.store(hook, std::memory_order_release); }

ThreadState& make_thread_state() {
  thread_local Owner owner;
  // Destructors of other thread-locals may run after Owner's: give them a state that is never freed.
  if (!owner.state) owner.state = std::make_unique<ThreadState>();
  tls_state = owner.state.get();
  return *tls_state;
}

void* allocate_new_block(size_t bytes) {
  int c = block_class(bytes);
  void* p = std::malloc(c < kBlockClasses ? size_t{64} << c : bytes);
  if (!p) throw std::bad_alloc();
  return p;
}

void return_block(void* p) noexcept { std::free(p); }

} // namespace ts
