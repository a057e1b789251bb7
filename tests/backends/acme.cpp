// A native backend over host memory without a kernel of its own: what the tests of loading and accessors install.
// Its name, ABI version and number of devices are given with -D; see conftest.py.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tesserack/abi.h>
#include <thread>

#ifndef ABI_MAJOR
#define ABI_MAJOR TS_ABI_MAJOR
#endif
#ifndef ABI_MINOR
#define ABI_MINOR 0
#endif

extern "C" void acme_driver_call(); // defined nowhere: with CALLS_DRIVER the library cannot be opened

namespace {

// Devices can appear while the process runs, as when a driver is installed: ACME_DEVICES wins over DEVICES.
[[maybe_unused]] void crash() { *static_cast<volatile int*>(nullptr) = 1; } // as code that was overwritten may

int probe(void*, int32_t* count, char* reason, size_t capacity) {
#ifdef CRASH_ON_PROBE
  crash();
#endif
  const char* text = std::getenv("ACME_DEVICES");
  *count = text ? std::atoi(text) : DEVICES;
  if (*count == 0) std::snprintf(reason, capacity, "the acme driver is not loaded");
  return TS_OK;
}
int properties(void*, int32_t device, ts_properties* out) {
  std::snprintf(out->name, sizeof out->name, "Acme %d", device);
  out->total_memory = 1 << 30;
  out->free_memory = 1 << 29;
  out->max_ndim = 8;
  out->flags = TS_P_SIMULATED;
  return TS_OK;
}
int allocate(void*, int32_t, size_t bytes, void*, void** handle) {
  return (*handle = std::malloc(bytes)) ? TS_OK : TS_OUT_OF_MEMORY;
}
void release(void*, int32_t, void* handle, size_t, void*) { std::free(handle); }
int from_host(void*, int32_t, void* dst, int64_t at, const void* src, size_t n, void*) {
  std::memcpy(static_cast<char*>(dst) + at, src, n);
  return TS_OK;
}
int to_host(void*, int32_t, void* dst, const void* src, int64_t at, size_t n, void*) {
  std::memcpy(dst, static_cast<const char*>(src) + at, n);
  return TS_OK;
}
int within(void*, int32_t, void* dst, int64_t to, const void* src, int64_t from, size_t n, void*) {
  std::memmove(static_cast<char*>(dst) + to, static_cast<const char*>(src) + from, n);
  return TS_OK;
}
int synchronize(void*, int32_t, void*) { return TS_OK; }
int get_kernel(void*, int32_t, const char*, ts_kernel*) { return TS_DECLINED; }

#ifdef CRASH_ON_OPEN
[[maybe_unused]] const bool crashed = (crash(), true);
#endif
#ifdef HANG_ON_OPEN
[[maybe_unused]] const bool hung = (std::this_thread::sleep_for(std::chrono::seconds(600)), true);
#endif

} // namespace

#ifndef NO_ENTRY
extern "C" __attribute__((visibility("default"))) int tesserack_backend(const ts_host* host, const ts_backend** out) {
#ifdef CALLS_DRIVER
  acme_driver_call();
#endif
#ifdef CRASH_ON_ENTRY
  crash();
#endif
#ifdef REFUSES
  host->set_error("acme: the license has run out \xff"); // which is no UTF-8
  return TS_ERROR;
#endif
  (void)host;
  static ts_backend table{};
  table.struct_size = sizeof table;
  table.abi_major = ABI_MAJOR;
  table.abi_minor_needed = ABI_MINOR;
  table.name = NAME;
  table.vendor = "com.example." NAME;
  table.version = "1.2";
  table.probe = probe;
  table.properties = properties;
  table.alloc = allocate;
  table.free = release;
  table.copy_from_host = from_host;
  table.copy_to_host = to_host;
  table.copy_within = within;
  table.synchronize = synchronize;
  table.get_kernel = get_kernel;
  *out = &table;
  return TS_OK;
}
#endif
