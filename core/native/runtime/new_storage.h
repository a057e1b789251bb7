// Who wants to know of memory that is made while something runs: transforms, whose functions may write to nothing else.
#pragma once
#include "tensor/storage.h"
#include <unordered_set>

namespace ts {

extern std::atomic<int> storage_watchers; // threads that watch; read before every allocation
void note_new_storage(const Storage* s);

inline Storage* noted(Storage* s) {
  if (storage_watchers.load(std::memory_order_relaxed)) [[unlikely]]
    note_new_storage(s);
  return s;
}

// What this thread has made since; the innermost watch collects, and hands on what it has at its end.
class WatchStorage {
public:
  WatchStorage();
  ~WatchStorage();
  WatchStorage(const WatchStorage&) = delete;
  WatchStorage& operator=(const WatchStorage&) = delete;
  bool made(const Storage* s) const;

private:
  friend void note_new_storage(const Storage* s);
  std::unordered_set<const Storage*> made_;
  WatchStorage* outer_;
};

} // namespace ts
