#include "runtime/allocator.h"
#include "runtime/backend.h"
#include <bit>
#include <iomanip>

namespace ts {
namespace {

constexpr size_t kSmallest = 64;
constexpr size_t kLargestSmall = kSmallest << (kSmallClasses - 1); // 128 KiB
constexpr uint32_t kThreadBlocks = 64;                             // per class; fewer of the big ones
constexpr int64_t kFlushBytes = 1 << 18;
constexpr size_t kLargeRounding = 1 << 14;

int small_class(size_t bytes) { return bytes <= kSmallest ? 0 : std::bit_width(bytes - 1) - 6; }
constexpr size_t class_bytes(int c) { return kSmallest << c; }
uint32_t thread_limit(int c) { return c < 6 ? kThreadBlocks : kThreadBlocks >> (c - 5); }

std::string mib(int64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

void thread_exit(ThreadState& state) {
  for (Backend* b : backends())
    if (b->id() < kCachedBackends && b->device_count() > 0) b->allocator(0).adopt_thread(state);
}

} // namespace

DeviceAllocator::DeviceAllocator(Backend& backend, int16_t index)
    : backend_(backend), index_(index), cached_(!(backend.table().flags & TS_B_OWN_ALLOCATOR)),
      thread_slot_(cached_ && index == 0 && backend.host_memory() && backend.id() < kCachedBackends ? backend.id()
                                                                                                    : -1) {
#ifdef TESSERACK_SANITIZE
  cached_ = false; // every tensor its own allocation, so that the sanitizer sees each bound
  thread_slot_ = -1;
#endif
  set_thread_exit_hook(thread_exit);
}

Storage* DeviceAllocator::allocate(size_t nbytes) {
  if (nbytes == 0) return Storage::make({backend_.id(), index_}, 0, nullptr, nullptr, nullptr, nullptr);
  if (cached_ && nbytes <= kLargestSmall) return allocate_small(nbytes, small_class(nbytes));
  return allocate_large(nbytes);
}

Storage* DeviceAllocator::allocate_small(size_t nbytes, int c) {
  ThreadState& tls = thread_state();
  void* handle = nullptr;
  if (thread_slot_ >= 0) {
    handle = tls.data[thread_slot_][c].pop();
    tls.pending_bytes[thread_slot_] += static_cast<int64_t>(class_bytes(c));
    ++tls.pending_allocations[thread_slot_];
    if (tls.pending_bytes[thread_slot_] > kFlushBytes) [[unlikely]]
      flush(tls);
  }
  if (!handle) {
    std::lock_guard lock(mutex_);
    if (!small_[c].empty()) {
      handle = small_[c].back();
      small_[c].pop_back();
    } else {
      handle = raw_alloc(class_bytes(c));
    }
    if (thread_slot_ < 0) {
      stats_.allocated += static_cast<int64_t>(class_bytes(c));
      stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
      ++stats_.allocations;
    }
  }
  void* host = backend_.host_memory() ? handle : nullptr;
  return Storage::make({backend_.id(), index_}, nbytes, handle, host, release_small, this);
}

void DeviceAllocator::release_small(Storage& s) {
  auto* self = static_cast<DeviceAllocator*>(s.deleter_ctx);
  int c = small_class(s.nbytes);
  if (self->thread_slot_ >= 0 && tls_state) {
    ThreadState& tls = *tls_state;
    tls.pending_bytes[self->thread_slot_] -= static_cast<int64_t>(class_bytes(c));
    if (tls.pending_bytes[self->thread_slot_] < -kFlushBytes) [[unlikely]]
      self->flush(tls);
    FreeList& list = tls.data[self->thread_slot_][c];
    if (list.count < thread_limit(c)) return list.push(s.handle);
    std::lock_guard lock(self->mutex_);
    self->small_[c].push_back(s.handle);
    return;
  }
  std::lock_guard lock(self->mutex_);
  self->stats_.allocated -= static_cast<int64_t>(class_bytes(c));
  self->small_[c].push_back(s.handle);
}

Storage* DeviceAllocator::allocate_large(size_t nbytes) {
  if (nbytes > (size_t{1} << 62)) out_of_memory(nbytes, TS_OUT_OF_MEMORY);
  size_t bytes = cached_ ? (nbytes + kLargeRounding - 1) / kLargeRounding * kLargeRounding : nbytes;
  std::lock_guard lock(mutex_);
  Block block{nullptr, nullptr, bytes};
  // A cached block may be up to a quarter larger than asked.
  auto found = large_.lower_bound(bytes);
  if (found != large_.end() && found->first <= bytes + bytes / 4) {
    block = found->second;
    large_.erase(found);
    large_cached_bytes_ -= block.bytes;
  } else {
    block.handle = raw_alloc(bytes);
    block.host = backend_.host_memory() ? block.handle : nullptr;
  }
  stats_.allocated += static_cast<int64_t>(block.bytes);
  stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
  ++stats_.allocations;
  Storage* s = Storage::make({backend_.id(), index_}, nbytes, block.handle, block.host, release_large, this);
  s->capacity = block.bytes;
  return s;
}

void DeviceAllocator::release_large(Storage& s) {
  auto* self = static_cast<DeviceAllocator*>(s.deleter_ctx);
  std::lock_guard lock(self->mutex_);
  self->stats_.allocated -= static_cast<int64_t>(s.capacity);
  if (!self->cached_) return self->raw_free(s.handle, s.capacity);
  self->large_.emplace(s.capacity, Block{s.handle, s.host, s.capacity});
  self->large_cached_bytes_ += s.capacity;
  // Keep no more idle than is in use plus a gigabyte.
  size_t keep = static_cast<size_t>(std::max<int64_t>(self->stats_.allocated, 0)) + (size_t{1} << 30);
  while (self->large_cached_bytes_ > keep && !self->large_.empty()) {
    auto biggest = std::prev(self->large_.end());
    self->large_cached_bytes_ -= biggest->second.bytes;
    self->raw_free(biggest->second.handle, biggest->second.bytes);
    self->large_.erase(biggest);
  }
}

void* DeviceAllocator::raw_alloc(size_t bytes) {
  void* handle = nullptr;
  const ts_backend& t = backend_.table();
  int status = t.alloc(t.ctx, index_, bytes, backend_.stream(index_), &handle);
  if (status != TS_OK || !handle) {
    for (auto& [size, block] : large_) raw_free(block.handle, block.bytes); // the cache may be what is in the way
    large_.clear();
    large_cached_bytes_ = 0;
    status = t.alloc(t.ctx, index_, bytes, backend_.stream(index_), &handle);
  }
  if (status != TS_OK || !handle) out_of_memory(bytes, status);
  stats_.reserved += static_cast<int64_t>(bytes);
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
  ++stats_.device_allocations;
  return handle;
}

void DeviceAllocator::raw_free(void* handle, size_t bytes) {
  const ts_backend& t = backend_.table();
  t.free(t.ctx, index_, handle, bytes, backend_.stream(index_));
  stats_.reserved -= static_cast<int64_t>(bytes);
}

void DeviceAllocator::out_of_memory(size_t bytes, int status) {
  std::string why = take_last_error();
  if (status != TS_OK && status != TS_OUT_OF_MEMORY) fail_status(status, backend_.name(), "alloc");
  fail(ErrorKind::OutOfMemory, "out of memory on ", Device{backend_.id(), index_}, ": tried to allocate ",
       mib(static_cast<int64_t>(bytes)), "; ", mib(stats_.allocated), " are in live tensors, ",
       mib(stats_.reserved - stats_.allocated), " cached and unused", why.empty() ? "" : "; ", why,
       "; try smaller batches, or tesserack.empty_cache()");
}

void DeviceAllocator::flush(ThreadState& state) {
  std::lock_guard lock(mutex_);
  stats_.allocated += state.pending_bytes[thread_slot_];
  stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
  stats_.allocations += state.pending_allocations[thread_slot_];
  state.pending_bytes[thread_slot_] = state.pending_allocations[thread_slot_] = 0;
}

MemoryStats DeviceAllocator::stats() {
  if (thread_slot_ >= 0) flush(thread_state());
  std::lock_guard lock(mutex_);
  return stats_;
}

void DeviceAllocator::reset_peak() {
  if (thread_slot_ >= 0) flush(thread_state());
  std::lock_guard lock(mutex_);
  stats_.allocated_peak = stats_.allocated;
  stats_.reserved_peak = stats_.reserved;
}

void DeviceAllocator::release_cached() {
  if (thread_slot_ >= 0) adopt_thread(thread_state());
  std::lock_guard lock(mutex_);
  for (auto& [size, block] : large_) raw_free(block.handle, block.bytes);
  large_.clear();
  large_cached_bytes_ = 0;
  for (int c = 0; c < kSmallClasses; ++c) {
    for (void* p : small_[c]) raw_free(p, class_bytes(c));
    small_[c].clear();
  }
}

void DeviceAllocator::adopt_thread(ThreadState& state) {
  if (thread_slot_ < 0) return;
  flush(state);
  std::lock_guard lock(mutex_);
  for (int c = 0; c < kSmallClasses; ++c)
    while (void* p = state.data[thread_slot_][c].pop()) small_[c].push_back(p);
}

} // namespace ts
