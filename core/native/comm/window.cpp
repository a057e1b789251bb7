#include "comm/window.h"
#include "tensor/error.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ts::comm {
namespace {

// What mappings begin and end at: 4 KiB on x86-64, up to 64 KiB on aarch64.
size_t page_size() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t whole_pages(size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

} // namespace

Window::Window(int descriptor, size_t offset, size_t share, int rank, int ranks, uint64_t number)
    : share_(share), bytes_(share * static_cast<size_t>(ranks)), rank_(rank), process_(getpid()), number_(number) {
  struct stat told {};
  const auto needed = static_cast<off_t>(offset + bytes_); // as on all ranks: whoever comes first makes the room
  void* mapped = MAP_FAILED;
  if (fstat(descriptor, &told) == 0 && (told.st_size >= needed || ftruncate(descriptor, needed) == 0))
    mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(offset));
  TS_CHECK(mapped != MAP_FAILED, "local: cannot map shared memory of ", bytes_, " bytes: ", std::strerror(errno));
  memory_ = static_cast<std::byte*>(mapped);
}

// This rank's memory goes back to the system; others may still use theirs. A child of this process has none.
Window::~Window() {
  if (getpid() == process_) madvise(own(), share_, MADV_REMOVE);
  munmap(memory_, bytes_);
}

Windows::Windows(int descriptor) : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 3)) {}

Windows::~Windows() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::shared_ptr<Window> Windows::make(size_t used, size_t bytes, int rank, int ranks) {
  const size_t share = whole_pages(std::max<size_t>(bytes, 1));
  std::lock_guard lock(mutex_);
  const size_t offset = std::max(next_, whole_pages(used));
  next_ = offset + share * static_cast<size_t>(ranks);
  ++made_; // whatever comes of it: ranks count alike
  auto made = std::make_shared<Window>(descriptor_, offset, share, rank, ranks, made_);
  std::erase_if(windows_, [](const auto& w) { return w.expired(); });
  windows_.push_back(made);
  count_.store(windows_.size(), std::memory_order_release);
  return made;
}

std::shared_ptr<Window> Windows::find(const void* data, size_t bytes) {
  if (!count_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mutex_);
  for (const auto& each : windows_)
    if (std::shared_ptr<Window> window = each.lock(); window && window->holds(data, bytes)) return window;
  return nullptr;
}

} // namespace ts::comm
