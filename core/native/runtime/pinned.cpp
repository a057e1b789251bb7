#include "runtime/pinned.h"
#include "runtime/empty.h"
#include "runtime/recording_state.h"
#include "runtime/stream.h"
#include <cstring>

namespace ts {
namespace {

struct Pinned {
  Backend& backend;
  void* address;
  size_t bytes;
  std::mutex mutex;
  std::vector<std::unique_ptr<Event>> uses; // of copies that may be under way
  Tensor owner{};                           // of memory that was there before

  ~Pinned() {
    const ts_backend& t = backend.table();
    owner.defined() ? t.host_unregister(t.ctx, address, bytes) : t.host_free(t.ctx, address, bytes);
  }
  bool idle() { // those that are done are forgotten
    std::lock_guard lock(mutex);
    std::erase_if(uses, [](auto& e) { return e->query(); });
    return uses.empty();
  }
};

// Blocks that nobody holds but a copy may still use.
struct Leaving {
  std::mutex mutex;
  std::vector<std::unique_ptr<Pinned>> blocks;
};
Leaving& leaving() {
  static auto* l = new Leaving; // tensors may outlive static destruction
  return *l;
}

// Looked at whenever pinned memory comes or goes. What is done is freed without the lock.
void free_idle(std::unique_ptr<Pinned> another) {
  std::vector<std::unique_ptr<Pinned>> blocks;
  {
    std::lock_guard lock(leaving().mutex);
    blocks.swap(leaving().blocks);
  }
  if (another) blocks.push_back(std::move(another));
  std::vector<std::unique_ptr<Pinned>> busy;
  for (auto& block : blocks) {
    bool done = false;
    try {
      done = block->idle();
    } catch (const Error&) {
      done = true; // the device failed: nothing is under way any more
    }
    if (!done) busy.push_back(std::move(block));
  }
  std::lock_guard lock(leaving().mutex);
  for (auto& block : busy) leaving().blocks.push_back(std::move(block));
}

void release_pinned(Storage& s) { free_idle(std::unique_ptr<Pinned>(static_cast<Pinned*>(s.deleter_ctx))); }

Pinned* pinned_block(const Tensor& t) {
  bool pinned = t.defined() && t->storage && t->storage->deleter == release_pinned;
  return pinned ? static_cast<Pinned*>(t->storage->deleter_ctx) : nullptr;
}

bool pins(Backend& b) {
  const ts_backend& t = b.table();
  return t.host_alloc && t.host_free && t.copy_from_pinned && t.copy_to_pinned && b.device_count() > 0;
}

void mark_use(Pinned& block, Device device) {
  auto queued = std::make_unique<Event>(device, false);
  queued->record(backend_of(device).stream(device.index));
  std::lock_guard lock(block.mutex);
  std::erase_if(block.uses, [](auto& e) { return e->query(); });
  block.uses.push_back(std::move(queued));
}

} // namespace

Backend* pinning_backend() {
  Device chosen = default_device();
  if (!chosen.is_meta() && pins(backend_of(chosen))) return &backend_of(chosen);
  for (Backend* b : backends())
    if (pins(*b)) return b;
  return nullptr;
}

bool is_pinned(const Tensor& t, const Backend* backend) {
  Pinned* block = pinned_block(t);
  return block && (!backend || &block->backend == backend);
}

Tensor pin_new(const Tensor& t) {
  TS_CHECK(t.device().is_meta() || t.data() || t.numel() == 0,
           "pin_memory: Only dense CPU tensors can be pinned, got one on ", t.device());
  Backend* backend = t.device().is_meta() ? nullptr : pinning_backend();
  return backend && t.is_contiguous() ? pin_memory(t, *backend) : t;
}

Tensor pin_memory(const Tensor& t, Backend& backend) {
  TS_CHECK(t.data() || t.numel() == 0, "pin_memory: expected a dense cpu tensor, got one on ", t.device());
  TS_CHECK(pins(backend), "pin_memory: backend '", backend.name(), "' gives no pinned memory");
  TS_CHECK(t.is_contiguous() && !t.pending(), "pin_memory: expected a contiguous tensor with nothing pending");
  if (t.numel() == 0 || is_pinned(t, &backend)) return t;
  free_idle(nullptr);
  auto bytes = static_cast<size_t>(t.nbytes());
  void* address = nullptr;
  backend.check(backend.table().host_alloc(backend.table().ctx, bytes, &address), "pin_memory");
  TS_CHECK(address, "pin_memory: backend '", backend.name(), "' gave no memory");
  std::unique_ptr<Pinned> block(new Pinned{backend, address, bytes, {}, {}, {}});
  std::memcpy(address, t.data(), bytes);
  Tensor out = from_external(address, t.sizes(), t.strides(), t.dtype(), t.device(), release_pinned, block.get());
  static_cast<void>(block.release()); // the storage's now
  return out;
}

Tensor register_memory(const Tensor& t, Backend& backend) {
  constexpr const char* op = "register_host_memory";
  TS_CHECK(t.data() && t.numel(), op, ": expected a dense cpu tensor with elements, got one on ", t.device());
  TS_CHECK(t.is_contiguous() && !t.pending(), op, ": expected a contiguous tensor with nothing pending");
  TS_CHECK(pins(backend) && backend.table().host_register, op, ": backend '", backend.name(),
           "' registers no memory; try pin_memory(), which copies");
  if (is_pinned(t, &backend)) return t;
  free_idle(nullptr);
  auto bytes = static_cast<size_t>(t.nbytes());
  int status = backend.table().host_register(backend.table().ctx, t.data(), bytes);
  TS_CHECK(status != TS_DECLINED, op, ": backend '", backend.name(), "' cannot register these ", bytes,
           " bytes; try pin_memory(), which copies");
  backend.check(status, op);
  std::unique_ptr<Pinned> block(new Pinned{backend, t.data(), bytes, {}, {}, t});
  Tensor out = from_external(t.data(), t.sizes(), t.strides(), t.dtype(), t.device(), release_pinned, block.get());
  static_cast<void>(block.release()); // the storage's now
  return out;
}

bool copy_from_pinned(const Tensor& dst, const Tensor& src, size_t bytes) {
  Pinned* block = pinned_block(src);
  if (!block || !dst->storage || &block->backend != &backend_of(dst.device())) return false;
  check_not_gone(*dst->storage);
  check_recordable(dst.device(), "a copy from the host");
  const ts_backend& t = block->backend.table();
  int index = dst.device().index;
  block->backend.check(t.copy_from_pinned(t.ctx, index, dst->storage->handle, dst->byte_offset, src.data(), bytes,
                                          block->backend.stream(index)),
                       "copy_from_pinned");
  mark_use(*block, dst.device());
  return true;
}

bool copy_to_pinned(const Tensor& dst, const Tensor& src, size_t bytes) {
  Pinned* block = pinned_block(dst);
  if (!block || !src->storage || &block->backend != &backend_of(src.device())) return false;
  check_not_gone(*src->storage);
  check_recordable(src.device(), "a copy to the host");
  const ts_backend& t = block->backend.table();
  int index = src.device().index;
  block->backend.check(t.copy_to_pinned(t.ctx, index, dst.data(), src->storage->handle, src->byte_offset, bytes,
                                        block->backend.stream(index)),
                       "copy_to_pinned");
  mark_use(*block, src.device());
  return true;
}

} // namespace ts
