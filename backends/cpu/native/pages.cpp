#include "pages.h"

#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

namespace tesserack::cpu {
namespace {

constexpr size_t kHugePage = size_t{1} << 21, kHugePagesFrom = 2 * kHugePage;

size_t whole_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

} // namespace

void* map_pages(size_t bytes) {
  const size_t length = whole_pages(bytes), spare = bytes >= kHugePagesFrom ? kHugePage : 0;
  void* const mapped = mmap(nullptr, length + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (spare == 0) return mapped;
  // The system has no call for pages at a multiple of their size: what lies around them goes back.
  char* const start = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage) % kHugePage;
  if (before != 0) munmap(start, before);
  if (before != spare) munmap(start + before + length, spare - before);
#ifdef MADV_HUGEPAGE
  madvise(start + before, length & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
  return start + before;
}

void unmap_pages(void* pages, size_t bytes) { munmap(pages, whole_pages(bytes)); }

} // namespace tesserack::cpu
