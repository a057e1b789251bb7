#include "runtime/allocator.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include "runtime/new_storage.h"
#include "runtime/recording_pool.h"
#include "runtime/recording_state.h"
#include "runtime/stream.h"
#include "tensor/home.h"
#include "tensor/outside.h"
#include <algorithm>
#include <bit>
#include <functional>
#include <iomanip>
#include <sstream>

namespace ts {
namespace {

constexpr size_t kAllocatorSmallest = 64;
constexpr size_t kLargestSmall = kAllocatorSmallest << (kSmallClasses - 1); // 128 KiB
constexpr uint32_t kThreadBlocks = 64;                                      // per class; fewer of the big ones
constexpr int64_t kFlushBytes = 1 << 18;
constexpr size_t kLargeRounding = 1 << 14;

int small_class(size_t bytes) { return bytes <= kAllocatorSmallest ? 0 : std::bit_width(bytes - 1) - 6; }
constexpr size_t class_bytes(int c) { return kAllocatorSmallest << c; }
uint32_t thread_limit(int c) { return c < 6 ? kThreadBlocks : kThreadBlocks >> (c - 5); }

std::string amount(int64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return concat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << value << ' ' << kUnits[unit];
  return out.str();
}

// A heap, whose lowest address is first.
void put_block(std::vector<void*>& free, void* handle) {
  free.push_back(handle);
  std::ranges::push_heap(free, std::greater<>());
}

void* lowest_block(std::vector<void*>& free) {
  if (free.empty()) return nullptr;
  std::ranges::pop_heap(free, std::greater<>());
  void* handle = free.back();
  free.pop_back();
  return handle;
}

// Memory is being given back: nobody is there to catch an error.
template <class F> void quietly(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    warn(e.what(), "RuntimeWarning");
  }
}

void thread_exit(ThreadState& state) {
  for (Backend* b : backends())
    if (DeviceAllocator* a = b->id() < kCachedBackends ? b->opened(0) : nullptr) a->adopt_thread(state);
}

} // namespace

struct DeviceAllocator::Waiting {
  Block block;
  bool small;
  std::vector<std::unique_ptr<Event>> events;
};

DeviceAllocator::~DeviceAllocator() = default;

DeviceAllocator::DeviceAllocator(Backend& backend, int16_t index)
    : backend_(backend), index_(index), cached_(!(backend.table().flags & TS_B_OWN_ALLOCATOR)),
      epoch_(backend.epoch(index)), thread_slot_(-1), default_pool_(pools_[nullptr]) {
#ifdef TESSERACK_SANITIZE
  cached_ = false; // every tensor its own allocation, so that the sanitizer sees each bound
#endif
  if (cached_ && index == 0 && backend.id() < kCachedBackends && !backend.has_streams() && handles_are_addresses())
    thread_slot_ = backend.id();
  set_thread_exit_hook(thread_exit);
}

// Then a free block can hold the link to the next one.
bool DeviceAllocator::handles_are_addresses() {
  if (!backend_.host_memory(index_)) return false;
  const ts_backend& t = backend_.table();
  void* handle = nullptr;
  if (t.alloc(t.ctx, index_, kAllocatorSmallest, nullptr, &handle) != TS_OK || !handle) return false;
  bool same = backend_.host_pointer(index_, handle) == handle;
  t.free(t.ctx, index_, handle, kAllocatorSmallest, nullptr);
  return same;
}

// The road that nearly all take, to a block of the thread's own, is written out; the rest is out of line. No block
// waits for streams where threads have blocks of their own.
Storage* DeviceAllocator::allocate(size_t nbytes) {
  ThreadState& tls = thread_state();
  if (nbytes - 1 < kLargestSmall && thread_slot_ >= 0 && !tls.capture) [[likely]]
    return allocate_own(tls, nbytes, small_class(nbytes));
  return allocate_any(nbytes);
}

[[gnu::noinline]] Storage* DeviceAllocator::allocate_any(size_t nbytes) {
  if (RecordingPool* pool = RecordingPool::current({backend_.id(), index_}); pool && nbytes) {
    const RecordingPool::OnItsStream on;
    return pool->allocate(nbytes, backend_.stream(index_), [this](size_t bytes) { return allocate_now(bytes); });
  }
  Storage* s = allocate_now(nbytes);
  if (RecordingState* recording = RecordingState::current()) recording->keep(s);
  return s;
}

Storage* DeviceAllocator::allocate_now(size_t nbytes) {
  if (nbytes == 0) return noted(Storage::make({backend_.id(), index_}, 0, nullptr, nullptr, nullptr, nullptr));
  if (n_waiting_.load(std::memory_order_relaxed)) take_back(false);
  if (homes_known.load(std::memory_order_relaxed)) [[unlikely]]
    if (Storage* s = OfferedHomes::take(nbytes, {backend_.id(), index_})) return noted(s);
  if (!cached_ || nbytes > kLargestSmall) return allocate_large(nbytes);
  const int c = small_class(nbytes);
  return thread_slot_ >= 0 ? allocate_own(thread_state(), nbytes, c) : allocate_small(nbytes, c);
}

Storage* DeviceAllocator::make_storage(size_t nbytes, Block block, void* stream, void (*release)(Storage&)) {
  void* host = thread_slot_ >= 0 ? block.handle : backend_.host_pointer(index_, block.handle);
  Storage* s = noted(Storage::make({backend_.id(), index_}, nbytes, block.handle, host, release, this));
  s->capacity = block.bytes;
  s->stream = stream;
  s->epoch = epoch_;
  return s;
}

void DeviceAllocator::count_allocated(int64_t bytes) {
  stats_.allocated += bytes;
  stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
  ++stats_.allocations;
}

// A stream's pool lives as long as the stream: see retire_stream.
DeviceAllocator::Pool& DeviceAllocator::pool_of(void* stream) {
  if (!stream) return default_pool_;
  auto found = pools_.find(stream);
  return found == pools_.end() ? default_pool_ : found->second;
}

void* DeviceAllocator::take_small(int c, void* stream) {
  std::lock_guard lock(mutex_);
  if (thread_slot_ < 0) count_allocated(static_cast<int64_t>(class_bytes(c)));
  return lowest_block(pool_of(stream).small[c]);
}

// What is freed is freed whatever memory the host has left: without room to remember it by, it goes back at once.
void DeviceAllocator::give_small(int c, void* handle, void* stream) {
  Block block{handle, class_bytes(c), stream};
  {
    std::lock_guard lock(mutex_);
    if (thread_slot_ < 0) stats_.allocated -= static_cast<int64_t>(class_bytes(c));
    try {
      return put_block(pool_of(stream).small[c], handle);
    } catch (const std::bad_alloc&) {
      block.stream = live(stream);
    }
  }
  raw_free({&block, 1});
}

inline Storage* DeviceAllocator::allocate_own(ThreadState& tls, size_t nbytes, int c) {
  void* handle = tls.data[thread_slot_][c].pop();
  tls.pending_bytes[thread_slot_] += static_cast<int64_t>(class_bytes(c));
  ++tls.pending_allocations[thread_slot_];
  if (tls.pending_bytes[thread_slot_] > kFlushBytes) [[unlikely]]
    flush(tls);
  if (!handle) [[unlikely]]
    return allocate_small(nbytes, c);
  return noted(Storage::make({backend_.id(), index_}, nbytes, handle, handle, release_small, this));
}

Storage* DeviceAllocator::allocate_small(size_t nbytes, int c) {
  void* stream = backend_.stream(index_);
  void* handle = take_small(c, stream);
  if (!handle) handle = raw_alloc(class_bytes(c), stream);
  return make_storage(nbytes, {handle, 0, stream}, stream, release_small);
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
  }
  if (s.shared && self->waits_for_streams(s, class_bytes(c), true)) return;
  self->give_small(c, s.handle, s.stream);
}

// A cached block may be twice as large as asked: networks whose images halve from stage to stage then take the blocks
// of the stage before.
void* DeviceAllocator::take_large(size_t& bytes, void* stream) {
  auto& free = pool_of(stream).large;
  auto found = free.lower_bound({bytes, nullptr});
  if (found == free.end() || found->first > 2 * bytes) return nullptr;
  bytes = found->first;
  void* handle = found->second;
  free.erase(found);
  large_cached_bytes_ -= bytes;
  return handle;
}

// On the host, where giving memory back is cheap: idle blocks too small for what is asked, if they are many. Larger
// ones stay, so that a program that does the same again and again soon finds all it needs.
std::vector<DeviceAllocator::Block> DeviceAllocator::take_outgrown(size_t bytes, void* stream) {
  std::vector<Block> blocks;
  if (thread_slot_ < 0 || static_cast<int64_t>(large_cached_bytes_) <= stats_.allocated / 16) return blocks;
  auto& free = pool_of(stream).large;
  const auto end = free.lower_bound({bytes, nullptr});
  for (auto at = free.begin(); at != end; at = free.erase(at)) {
    blocks.push_back({at->second, at->first, stream});
    large_cached_bytes_ -= at->first;
  }
  return blocks;
}

Storage* DeviceAllocator::allocate_large(size_t nbytes) {
  if (nbytes > (size_t{1} << 62)) out_of_memory(nbytes, TS_OUT_OF_MEMORY);
  size_t bytes = cached_ ? (nbytes + kLargeRounding - 1) / kLargeRounding * kLargeRounding : nbytes;
  void* stream = backend_.stream(index_);
  void* handle = nullptr;
  std::vector<Block> outgrown;
  {
    std::lock_guard lock(mutex_);
    handle = take_large(bytes, stream);
    if (handle)
      count_allocated(static_cast<int64_t>(bytes));
    else
      outgrown = take_outgrown(bytes, stream);
  }
  if (!handle) {
    if (!outgrown.empty()) raw_free(outgrown);
    handle = raw_alloc(bytes, stream);
    std::lock_guard lock(mutex_);
    count_allocated(static_cast<int64_t>(bytes));
  }
  return make_storage(nbytes, {handle, bytes, stream}, stream, release_large);
}

void DeviceAllocator::release_large(Storage& s) {
  auto* self = static_cast<DeviceAllocator*>(s.deleter_ctx);
  {
    std::lock_guard lock(self->mutex_);
    self->stats_.allocated -= static_cast<int64_t>(s.capacity);
  }
  if (s.shared && self->waits_for_streams(s, s.capacity, false)) return;
  self->give_large({s.handle, s.capacity, s.stream});
}

void DeviceAllocator::give_large(const Block& block) {
  std::vector<Block> surplus;
  Block given = block;
  bool kept = false;
  {
    std::lock_guard lock(mutex_);
    given.stream = live(block.stream);
    try {
      if (cached_) {
        pool_of(block.stream).large.emplace(block.bytes, block.handle);
        kept = true;
        large_cached_bytes_ += block.bytes;
        surplus = take_surplus();
      }
    } catch (const std::bad_alloc&) { // as above
    }
  }
  if (!kept) raw_free({&given, 1});
  if (!surplus.empty()) raw_free(surplus);
}

// --- use by several streams ---------------------------------------------------------------------------------------

void* DeviceAllocator::live(void* stream) const { return pools_.contains(stream) ? stream : nullptr; }

void DeviceAllocator::record_stream(Storage& s, void* stream) {
  if (s.deleter == RecordingPool::release && stream != s.stream) s.shared = true;
  if (s.deleter != release_small && s.deleter != release_large) return; // memory from outside is its owner's
  if (stream == s.stream) return;
  std::lock_guard lock(mutex_);
  std::vector<void*>& others = other_streams_[&s];
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
  s.shared = true;
}

// Marks where those streams are now. False when none of them is left: the memory may be used again at once.
bool DeviceAllocator::waits_for_streams(Storage& s, size_t bytes, bool small) {
  if (abandoned_.load(std::memory_order_relaxed)) return false;
  try {
    return marks_streams(s, bytes, small);
  } catch (const std::bad_alloc&) { // no memory for the marks
    quietly([&] { synchronize_device({backend_.id(), index_}); });
    std::lock_guard lock(mutex_);
    other_streams_.erase(&s);
    return false;
  }
}

bool DeviceAllocator::marks_streams(Storage& s, size_t bytes, bool small) {
  auto waiting = std::make_unique<Waiting>(Block{s.handle, bytes, s.stream}, small);
  std::vector<void*> streams;
  {
    std::lock_guard lock(mutex_);
    auto found = other_streams_.find(&s);
    if (found == other_streams_.end()) return false;
    for (void* stream : found->second)
      if (pools_.contains(stream)) streams.push_back(stream);
    other_streams_.erase(found);
  }
  if (streams.empty()) return false;
  try {
    for (void* stream : streams) {
      waiting->events.push_back(std::make_unique<Event>(Device{backend_.id(), index_}, false));
      waiting->events.back()->record(stream);
    }
  } catch (const Error&) {
    quietly([&] { synchronize_device({backend_.id(), index_}); });
    return false;
  }
  std::lock_guard lock(mutex_);
  if (small && thread_slot_ < 0) stats_.allocated -= static_cast<int64_t>(bytes);
  waiting_.push_back(std::move(waiting));
  n_waiting_ = waiting_.size();
  return true;
}

void DeviceAllocator::take_back(bool wait) {
  std::vector<std::unique_ptr<Waiting>> looked_at, done;
  {
    std::lock_guard lock(mutex_);
    looked_at.swap(waiting_);
    n_waiting_ = 0;
  }
  for (auto& w : looked_at) {
    bool reached = true;
    quietly([&] {
      for (auto& e : w->events) {
        if (wait) e->synchronize();
        reached = reached && e->query();
      }
    });
    if (reached) done.push_back(std::move(w));
  }
  std::vector<Block> large;
  {
    std::lock_guard lock(mutex_);
    for (auto& w : looked_at)
      if (w) waiting_.push_back(std::move(w));
    n_waiting_ = waiting_.size();
    for (auto& w : done)
      if (w->small)
        put_block(pool_of(w->block.stream).small[small_class(w->block.bytes)], w->block.handle);
      else
        large.push_back(w->block);
  }
  for (const Block& block : large) give_large(block);
}

// --- the cache as a whole ------------------------------------------------------------------------------------------

// Keeps no more idle than is in use plus a gigabyte.
std::vector<DeviceAllocator::Block> DeviceAllocator::take_surplus() {
  std::vector<Block> surplus;
  size_t keep = static_cast<size_t>(std::max<int64_t>(stats_.allocated, 0)) + (size_t{1} << 30);
  for (auto& [stream, pool] : pools_)
    while (large_cached_bytes_ > keep && !pool.large.empty()) {
      auto biggest = std::prev(pool.large.end());
      surplus.push_back({biggest->second, biggest->first, stream});
      large_cached_bytes_ -= biggest->first;
      pool.large.erase(biggest);
    }
  return surplus;
}

std::vector<DeviceAllocator::Block> DeviceAllocator::take_all() {
  std::vector<Block> all;
  for (auto& [stream, pool] : pools_) {
    for (auto& [bytes, handle] : pool.large) all.push_back({handle, bytes, stream});
    pool.large.clear();
    for (int c = 0; c < kSmallClasses; ++c) {
      for (void* handle : pool.small[c]) all.push_back({handle, class_bytes(c), stream});
      pool.small[c].clear();
    }
  }
  large_cached_bytes_ = 0;
  return all;
}

void* DeviceAllocator::raw_alloc(size_t bytes, void* stream) {
  void* handle = nullptr;
  const ts_backend& t = backend_.table();
  uint64_t most = backend_.limits(index_).max_allocation;
  if (most && bytes > most) {
    set_last_error(concat("the device gives at most ", amount(static_cast<int64_t>(most)), " in one piece").c_str());
    out_of_memory(bytes, TS_OUT_OF_MEMORY);
  }
  int status = t.alloc(t.ctx, index_, bytes, stream, &handle);
  if (status != TS_OK || !handle) {
    release_cached(); // the cache may be what is in the way
    status = t.alloc(t.ctx, index_, bytes, stream, &handle);
  }
  if (status != TS_OK || !handle) out_of_memory(bytes, status);
  std::lock_guard lock(mutex_);
  stats_.reserved += static_cast<int64_t>(bytes);
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
  ++stats_.device_allocations;
  return handle;
}

void DeviceAllocator::raw_free(std::span<const Block> blocks) {
  const ts_backend& t = backend_.table();
  size_t bytes = 0;
  for (const Block& block : blocks) {
    if (block_users_.any()) block_users_.tell({&block.handle, 1});
    if (abandoned_.load(std::memory_order_relaxed)) break; // the handle means nothing any more
    t.free(t.ctx, index_, block.handle, block.bytes, block.stream);
    bytes += block.bytes;
  }
  std::lock_guard lock(mutex_);
  stats_.reserved -= static_cast<int64_t>(bytes);
}

void DeviceAllocator::out_of_memory(size_t bytes, int status) {
  if (status != TS_OK && status != TS_OUT_OF_MEMORY) fail_status(status, backend_.name(), "alloc");
  std::string why = take_last_error();
  fail(ErrorKind::OutOfMemory, "out of memory on ", Device{backend_.id(), index_}, ": tried to allocate ",
       amount(static_cast<int64_t>(bytes)), "; ", amount(stats_.allocated), " are in live tensors, ",
       amount(stats_.reserved - stats_.allocated), " cached and unused", why.empty() ? "" : "; ", why,
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
  MemoryStats found = stats_;
  if (outside_backend == backend_.id() && index_ == 0) { // as if it had been there since the peak
    found.allocated += outside_bytes;
    found.allocated_peak += outside_bytes;
  }
  return found;
}

void DeviceAllocator::reset_peak() {
  if (thread_slot_ >= 0) flush(thread_state());
  std::lock_guard lock(mutex_);
  stats_.allocated_peak = stats_.allocated;
  stats_.reserved_peak = stats_.reserved;
}

void DeviceAllocator::abandon() {
  abandoned_ = true;
  std::lock_guard lock(mutex_);
  static_cast<void>(take_all());
  waiting_.clear();
  n_waiting_ = 0;
  other_streams_.clear();
}

void DeviceAllocator::release_cached() {
  if (thread_slot_ >= 0) adopt_thread(thread_state());
  if (block_users_.any()) block_users_.tell_short();
  take_back(true);
  std::vector<Block> all;
  {
    std::lock_guard lock(mutex_);
    all = take_all();
  }
  raw_free(all);
  const ts_backend& t = backend_.table();
  if (t.trim) t.trim(t.ctx, index_);
}

void DeviceAllocator::add_stream(void* stream) {
  std::lock_guard lock(mutex_);
  pools_[stream];
}

void DeviceAllocator::retire_stream(void* stream) {
  std::lock_guard lock(mutex_);
  auto found = pools_.find(stream);
  if (!stream || found == pools_.end()) return;
  for (int c = 0; c < kSmallClasses; ++c)
    for (void* handle : found->second.small[c]) put_block(default_pool_.small[c], handle);
  default_pool_.large.merge(found->second.large);
  pools_.erase(found);
}

void DeviceAllocator::adopt_thread(ThreadState& state) {
  if (thread_slot_ < 0) return;
  flush(state);
  std::lock_guard lock(mutex_);
  for (int c = 0; c < kSmallClasses; ++c)
    while (void* p = state.data[thread_slot_][c].pop()) put_block(default_pool_.small[c], p);
}

} // namespace ts
