#include "kept.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

namespace tesserack::cpu {
namespace {

struct Kept {
  std::shared_ptr<void> data;
  size_t bytes;
  uint64_t last_use;
};

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
  void keep(const std::string& key, std::shared_ptr<void> data, size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto [at, fresh] = kept_.try_emplace(key, Kept{std::move(data), bytes, ++clock_});
    if (!fresh) return; // another thread was faster
    bytes_ += bytes;
    while (bytes_ > limit()) {
      auto oldest = kept_.begin();
      for (auto each = kept_.begin(); each != kept_.end(); ++each)
        if (each->second.last_use < oldest->second.last_use) oldest = each;
      bytes_ -= oldest->second.bytes;
      kept_.erase(oldest);
    }
  }
  static size_t limit() {
    static const size_t bytes = [] {
      const char* given = std::getenv("TESSERACK_CPU_KEPT_MIB");
      return (given ? std::strtoull(given, nullptr, 10) : 256ull) << 20;
    }();
    return bytes;
  }

private:
  std::mutex mutex_;
  std::unordered_map<std::string, Kept> kept_;
  std::array<size_t, 1024> seen_{};
  size_t bytes_ = 0;
  uint64_t clock_ = 0;
};

// Never destroyed: threads may outlive static destructors.
Store& store() {
  static Store* const instance = new Store;
  return *instance;
}

} // namespace

std::shared_ptr<void> kept_weight(const Fingerprint& of, const void* purpose, size_t purpose_bytes, size_t bytes,
                                  const std::function<void(void*)>& make) {
  if (bytes > Store::limit()) return nullptr;
  std::string name(static_cast<const char*>(purpose), purpose_bytes);
  name.append(reinterpret_cast<const char*>(&of), sizeof of);
  if (std::shared_ptr<void> found = store().find(name)) return found;
  if (!store().seen(name)) return nullptr;
  std::shared_ptr<void> made(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
  if (!made) throw std::bad_alloc();
  make(made.get());
  store().keep(name, made, bytes);
  return made;
}

} // namespace tesserack::cpu
