// Host memory by the page, which the system gets back at once: malloc would keep large blocks that were freed below
// others, and cut them up.
#ifndef TESSERACK_CPU_PAGES_H
#define TESSERACK_CPU_PAGES_H

#include <cstddef>

namespace tesserack::cpu {

constexpr size_t kPagesFrom = size_t{1} << 18; // bytes; smaller blocks are malloc's

// `bytes` of zeros, on huge pages where they fill some; NULL when there is no memory. Returned with the same `bytes`.
void* map_pages(size_t bytes);
void unmap_pages(void* pages, size_t bytes);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_PAGES_H
