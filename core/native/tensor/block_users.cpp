#include "tensor/block_users.h"

namespace ts {

void BlockUsers::add(std::span<void* const> blocks, const std::shared_ptr<BlockUser>& user) {
  std::lock_guard lock(mutex_);
  for (void* block : blocks) users_[block].push_back(user);
  count_ = users_.size();
}

void BlockUsers::forget(std::span<void* const> blocks) {
  std::lock_guard lock(mutex_);
  for (void* block : blocks) {
    auto found = users_.find(block);
    if (found == users_.end()) continue;
    std::erase_if(found->second, [](const auto& user) { return user.expired(); });
    if (found->second.empty()) users_.erase(found);
  }
  count_ = users_.size();
}

// Without an allocation: what is freed is freed whatever memory the host has left.
void BlockUsers::tell(std::span<void* const> blocks) noexcept {
  for (void* block : blocks) {
    decltype(users_)::node_type users;
    {
      std::lock_guard lock(mutex_);
      users = users_.extract(block);
      count_ = users_.size();
    }
    if (!users) continue;
    for (const auto& user : users.mapped())
      if (std::shared_ptr<BlockUser> there = user.lock()) there->blocks_go();
  }
}

void BlockUsers::tell_short() {
  std::vector<std::shared_ptr<BlockUser>> told;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [block, users] : users_)
      for (const auto& user : users)
        if (std::shared_ptr<BlockUser> there = user.lock()) told.push_back(std::move(there));
  }
  for (const auto& user : told) user->memory_short();
}

} // namespace ts
