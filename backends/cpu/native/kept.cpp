#include "kept.h"
#include "pages.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

namespace tesserack::cpu {
namespace {

struct Kept {
  std::shared_ptr<void> data;
  size_t bytes;
  uint64_t last_use;
};

using Place = std::pair<uintptr_t, std::string>; // a weight's address, and what for

class Store {
public:
  std::shared_ptr<void> find(const std::string& key) {
    std::lock_guard lock(mutex_);
    const auto at = kept_.find(key);
    if (at == kept_.end()) return nullptr;
    at->second.last_use = ++clock_;
    return at->second.data;
  }
  // Whether the key came before, as far as is remembered.
  bool seen(const std::string& key) {
    std::lock_guard lock(mutex_);
    const size_t hash = std::hash<std::string>()(key);
    size_t& slot = seen_[hash % seen_.size()];
    const bool again = slot == hash;
    slot = hash;
    return again;
  }
  void keep(const Place& place, const std::string& key, std::shared_ptr<void> data, size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto [at, fresh] = kept_.try_emplace(key, Kept{std::move(data), bytes, ++clock_});
    if (!fresh) return; // another thread was faster
    places_[place] = key;
    bytes_ += bytes;
    while (bytes_ > limit()) {
      auto oldest = kept_.begin();
      for (auto each = kept_.begin(); each != kept_.end(); ++each)
        if (each->second.last_use < oldest->second.last_use) oldest = each;
      std::erase_if(places_, [&](const auto& each) { return each.second == oldest->first; });
      drop(oldest);
    }
  }
  // The place holds another content now.
  void forget(const Place& place) {
    std::lock_guard lock(mutex_);
    if (const auto at = places_.find(place); at != places_.end()) forget_at(at);
  }
  void forget(uintptr_t from, size_t bytes) {
    if (bytes_ == 0) return;
    std::lock_guard lock(mutex_);
    for (auto at = places_.lower_bound({from, {}}); at != places_.end() && at->first.first - from < bytes;)
      at = forget_at(at);
  }
  static size_t limit() {
    static const size_t bytes = [] {
      const char* given = std::getenv("TESSERACK_CPU_KEPT_MIB");
      return (given ? std::strtoull(given, nullptr, 10) : 256ull) << 20;
    }();
    return bytes;
  }

private:
  using KeptByKey = std::unordered_map<std::string, Kept>;

  void drop(KeptByKey::iterator at) {
    bytes_ -= at->second.bytes;
    kept_.erase(at);
  }
  std::map<Place, std::string>::iterator forget_at(std::map<Place, std::string>::iterator at) {
    if (const auto kept = kept_.find(at->second); kept != kept_.end()) drop(kept);
    return places_.erase(at);
  }

  std::mutex mutex_;
  KeptByKey kept_;
  std::map<Place, std::string> places_; // to the keys
  std::array<size_t, 1024> seen_{};
  std::atomic<size_t> bytes_ = 0;
  uint64_t clock_ = 0;
};

std::shared_ptr<void> block(size_t bytes) {
  if (bytes < kPagesFrom) {
    std::shared_ptr<void> memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
    if (!memory) throw std::bad_alloc();
    return memory;
  }
  void* const memory = map_pages(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [bytes](void* p) { unmap_pages(p, bytes); }};
}

// Never destroyed: threads may outlive static destructors.
Store& store() {
  static Store* const instance = new Store;
  return *instance;
}

} // namespace

std::shared_ptr<void> kept_weight(const void* weight, const Fingerprint& of, const void* purpose, size_t purpose_bytes,
                                  size_t bytes, const std::function<void(void*)>& make) {
  if (bytes > Store::limit()) return nullptr;
  const Place place(reinterpret_cast<uintptr_t>(weight), std::string(static_cast<const char*>(purpose), purpose_bytes));
  std::string name = place.second;
  name.append(reinterpret_cast<const char*>(&of), sizeof of);
  if (std::shared_ptr<void> found = store().find(name)) return found;
  store().forget(place);
  if (!store().seen(name)) return nullptr;
  std::shared_ptr<void> made = block(bytes);
  make(made.get());
  store().keep(place, name, made, bytes);
  return made;
}

void forget_weights(const void* from, size_t bytes) { store().forget(reinterpret_cast<uintptr_t>(from), bytes); }

} // namespace tesserack::cpu
