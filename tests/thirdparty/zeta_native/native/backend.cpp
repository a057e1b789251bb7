// Two simulated devices whose memory the host does not see, with streams that do nothing. The kernels are the ones that
// `tesserack new-backend --native` writes: the required set and nothing else.
#include <tesserack/backend.hpp>

#include <atomic>
#include <cstdlib>
#include <cstring>

using tesserack::backend::fail;

namespace {

constexpr size_t kLimit = size_t{256} << 20;
std::atomic<size_t> used[2];

// In front of every block stands whose it is, so that a mix-up of devices is an error and not a wrong number.
struct alignas(64) Header {
  int device;
};

char* block(int device, const void* handle) {
  char* bytes = static_cast<char*>(const_cast<void*>(handle));
  if (reinterpret_cast<Header*>(bytes - sizeof(Header))->device != device)
    fail(TS_ERROR, "a block of another device was used on zeta:%d", device);
  return bytes;
}

struct Zeta {
  static constexpr bool own_allocator = true;

  static int count(std::string&) { return 2; }
  static void describe(int device, ts_properties& out) {
    std::snprintf(out.name, sizeof out.name, "Zeta %d", device);
    out.total_memory = kLimit;
    out.free_memory = kLimit - used[device];
    out.dtypes = (uint64_t{1} << TS_COMPLEX64) - 1;
    out.flags = TS_P_SIMULATED;
  }
  static void* allocate(int device, size_t bytes, void*) {
    if (used[device] + bytes > kLimit) return nullptr;
    char* start = static_cast<char*>(std::aligned_alloc(64, sizeof(Header) + (bytes + 63) / 64 * 64));
    if (start == nullptr) return nullptr;
    used[device] += bytes;
    new (start) Header{device};
    return start + sizeof(Header);
  }
  static void release(int device, void* handle, size_t bytes, void*) {
    used[device] -= bytes;
    std::free(block(device, handle) - sizeof(Header));
  }
  static void copy_from_host(int device, void* dst, int64_t offset, const void* src, size_t bytes, void*) {
    std::memcpy(block(device, dst) + offset, src, bytes);
  }
  static void copy_to_host(int device, void* dst, const void* src, int64_t offset, size_t bytes, void*) {
    std::memcpy(dst, block(device, src) + offset, bytes);
  }
  static void copy_within(int device, void* dst, int64_t to, const void* src, int64_t from, size_t bytes, void*) {
    std::memmove(block(device, dst) + to, block(device, src) + from, bytes);
  }
  static void synchronize(int, void*) {}
};

} // namespace

TESSERACK_BACKEND(Zeta, "zeta", "com.zeta.simulated", "0.9");
