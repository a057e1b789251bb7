#include "runtime/new_storage.h"

namespace ts {
namespace {
thread_local WatchStorage* t_innermost = nullptr;
} // namespace

std::atomic<int> storage_watchers{0};

void note_new_storage(const Storage* s) {
  if (t_innermost) t_innermost->made_.insert(s);
}

WatchStorage::WatchStorage() : outer_(t_innermost) {
  t_innermost = this;
  ++storage_watchers;
}

WatchStorage::~WatchStorage() {
  t_innermost = outer_;
  if (outer_) outer_->made_.merge(made_);
  --storage_watchers;
}

// What an inner one made is younger than an outer one.
bool WatchStorage::made(const Storage* s) const {
  for (const WatchStorage* w = t_innermost; w; w = w->outer_) {
    if (w->made_.contains(s)) return true;
    if (w == this) return false;
  }
  return false;
}

} // namespace ts
