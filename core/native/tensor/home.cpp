#include "tensor/home.h"
#include "tensor/error.h"
#include <mutex>
#include <unordered_map>
#include <utility>

namespace ts {
namespace {

thread_local OfferedHomes* t_offered = nullptr;

using Held = std::shared_ptr<Home>;

std::mutex g_mutex;
auto& known() {
  static auto& map = *new std::unordered_map<const TensorImpl*, std::pair<const Home*, std::weak_ptr<Home>>>;
  return map;
}

} // namespace

std::shared_ptr<Home> Home::make(const TensorImpl* of, Tensor memory) {
  TS_CHECK_VALUE(memory.is_contiguous() && memory.data() && memory.numel(),
                 "home: expected elements of the host's memory side by side");
  auto made = std::make_shared<Home>(of, std::move(memory));
  std::lock_guard lock(g_mutex);
  known()[of] = {made.get(), made};
  homes_known = known().size();
  return made;
}

std::shared_ptr<Home> Home::find(const TensorImpl* of) {
  std::lock_guard lock(g_mutex);
  auto found = known().find(of);
  return found == known().end() ? nullptr : found->second.second.lock();
}

void Home::withdraw() const {
  std::lock_guard lock(g_mutex);
  if (auto found = known().find(of_); found != known().end() && found->second.first == this) known().erase(found);
  homes_known = known().size();
}

OfferedHomes::OfferedHomes() : outer_(std::exchange(t_offered, this)) {}

OfferedHomes::~OfferedHomes() { t_offered = outer_; }

Storage* OfferedHomes::take(size_t nbytes, Device device) {
  if (!t_offered) return nullptr;
  for (size_t k = 0; k < t_offered->count_; ++k) {
    const Held& home = t_offered->homes_[k];
    const Tensor& memory = home->memory_;
    const auto bytes = static_cast<size_t>(memory.numel() * memory.item_size());
    if (bytes != nbytes || memory.device() != device || home->taken_.exchange(true)) continue;
    // It is free again once the storage goes, and stays as long.
    const auto release = [](Storage& s) {
      std::unique_ptr<Held> held(static_cast<Held*>(s.deleter_ctx));
      (*held)->taken_.store(false, std::memory_order_release);
    };
    Storage* made = Storage::make(device, nbytes, memory.data(), memory.data(), release, new Held(home));
    made->epoch = memory->storage->epoch;
    return made;
  }
  return nullptr;
}

} // namespace ts
