#include "runtime/recording_pool.h"
#include "runtime/new_storage.h"
#include "runtime/recording_state.h"
#include <bit>
#include <tuple>
#include <utility>

namespace ts {
namespace {

constexpr size_t kRecordingPoolSmallest = 64, kRecordingPoolLargestSmall = 1 << 17, kRecordingPoolRounding = 1 << 14;

thread_local RecordingPool* t_pool = nullptr;
thread_local const StreamChoice* t_lent_on = nullptr;

// Pools by device and number, or stream and branch, for as long as somebody holds them.
using Key = std::tuple<int, int, uint64_t, void*, size_t>;
std::mutex g_recording_pool_mutex;
std::map<Key, std::weak_ptr<RecordingPool>>& known() {
  static auto* pools = new std::map<Key, std::weak_ptr<RecordingPool>>;
  return *pools;
}

} // namespace

// What is lent: a block, and the pool, which lives as long as it is.
struct RecordingPool::Lease {
  std::shared_ptr<RecordingPool> pool;
  Storage* block;
  size_t bytes;
};

std::shared_ptr<RecordingPool> RecordingPool::of(Device device, uint64_t number) {
  if (!number) return std::shared_ptr<RecordingPool>(new RecordingPool(device));
  return shared(device, number, nullptr, 0);
}

std::shared_ptr<RecordingPool> RecordingPool::of_stream(Device device, void* stream, size_t branch) {
  return shared(device, 0, stream, branch);
}

std::shared_ptr<RecordingPool> RecordingPool::shared(Device device, uint64_t number, void* stream, size_t branch) {
  std::lock_guard lock(g_recording_pool_mutex);
  std::weak_ptr<RecordingPool>& at = known()[{device.backend, device.index, number, stream, branch}];
  std::shared_ptr<RecordingPool> pool = at.lock();
  if (!pool || pool->epoch_ != backend_of(device).epoch(device.index))
    at = pool = std::shared_ptr<RecordingPool>(new RecordingPool(device));
  return pool;
}

RecordingPool::RecordingPool(Device device) : device_(device), epoch_(backend_of(device).epoch(device.index)) {}

RecordingPool::~RecordingPool() {
  for (Storage* block : blocks_) let_go(block);
}

RecordingPool* RecordingPool::current(Device device) { return t_pool && t_pool->device_ == device ? t_pool : nullptr; }

RecordingPool::Use::Use(std::shared_ptr<RecordingPool> pool, const StreamChoice* lent_on)
    : pool_(std::move(pool)), before_(std::exchange(t_pool, pool_.get())),
      lent_on_before_(std::exchange(t_lent_on, lent_on)) {}

RecordingPool::Use::~Use() {
  t_pool = before_;
  t_lent_on = lent_on_before_;
}

RecordingPool::OnItsStream::OnItsStream() : other_(t_lent_on != nullptr) {
  if (!other_) return;
  before_ = stream_choice();
  set_stream_choice(*t_lent_on);
}

RecordingPool::OnItsStream::~OnItsStream() {
  if (other_) set_stream_choice(std::move(before_));
}

size_t RecordingPool::rounded(size_t nbytes) {
  if (nbytes <= kRecordingPoolLargestSmall) return std::bit_ceil(std::max(nbytes, kRecordingPoolSmallest));
  return (nbytes + kRecordingPoolRounding - 1) / kRecordingPoolRounding * kRecordingPoolRounding;
}

Storage* RecordingPool::take(size_t& bytes, void* stream) {
  std::lock_guard lock(mutex_);
  std::multimap<size_t, Storage*>& free = free_[stream];
  auto found = free.lower_bound(bytes);
  if (found == free.end() || found->first > 2 * bytes) return nullptr;
  bytes = found->first;
  Storage* block = found->second;
  free.erase(found);
  return block;
}

Storage* RecordingPool::keep(Storage* block) {
  std::lock_guard lock(mutex_);
  blocks_.push_back(block);
  return block;
}

Storage* RecordingPool::lease(Storage* block, size_t nbytes, size_t bytes, void* stream) {
  auto lease = std::make_unique<Lease>(shared_from_this(), block, bytes);
  Storage* s = noted(Storage::make(device_, nbytes, block->handle, block->host, release, lease.release()));
  s->capacity = bytes;
  s->stream = stream;
  s->epoch = block->epoch;
  return s;
}

// What other streams use, too, stays aside: nothing says when they will have done with it.
void RecordingPool::release(Storage& s) {
  std::unique_ptr<Lease> lease(static_cast<Lease*>(s.deleter_ctx));
  if (s.shared) return;
  RecordingPool& pool = *lease->pool;
  std::lock_guard lock(pool.mutex_); // which is let go before the lease, perhaps the last one
  pool.free_[s.stream].emplace(lease->bytes, lease->block);
}

} // namespace ts
