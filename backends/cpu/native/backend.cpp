// The ts_backend table of the cpu backend. A handle is a host address.
#include <tesserack/backend.hpp>

#include "isa.h"
#include "isa_pick.h"
#include "kept.h"
#include "matmul/engines.h"
#include "pages.h"
#include "processor.h"
#include "threads.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace tesserack::cpu {

TS_ISA_FUNCTION(void, instruction_bits, (uint64_t * words));

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMostBytes = PTRDIFF_MAX / 2; // sums with sizes of pages do not wrap

const ts_host* the_host = nullptr;

int probe(void*, int32_t* device_count, char* reason, size_t reason_capacity) {
  *device_count = 1;
  if (reason != nullptr && reason_capacity > 0) reason[0] = '\0';
  return TS_OK;
}

int properties(void*, int32_t, ts_properties* out) {
  ts_properties p{};
  std::snprintf(p.name, sizeof p.name, "%s", processor_name().c_str());
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  p.total_memory = page * static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  p.free_memory = page * static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES));
  p.dtypes = (uint64_t{1} << TS_NUM_DTYPES) - 1;
  p.compute_units = num_threads();
  p.alignment = 1;
  p.flags = TS_P_HOST_MEMORY;
  pick_instruction_bits()(p.instructions);
  p.struct_size = out->struct_size < sizeof p ? out->struct_size : sizeof p;
  std::memcpy(out, &p, p.struct_size);
  return TS_OK;
}

// The sanitizer watches the bounds of malloc's blocks only.
constexpr bool by_pages([[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return bytes >= kPagesFrom;
#endif
}

constexpr size_t whole_lines(size_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

int alloc(void*, int32_t, size_t bytes, void*, void** handle) {
  *handle = nullptr;
  if (bytes <= kMostBytes)
    *handle = by_pages(bytes) ? map_pages(bytes) : std::aligned_alloc(kAlignment, whole_lines(bytes));
  if (*handle != nullptr) return TS_OK;
  char text[96];
  std::snprintf(text, sizeof text, "cpu: cannot allocate %zu bytes of host memory", bytes);
  return backend::report(the_host, TS_OUT_OF_MEMORY, text);
}

void release(void*, int32_t, void* handle, size_t bytes, void*) {
  forget_weights(handle, bytes);
  by_pages(bytes) ? unmap_pages(handle, bytes) : std::free(handle);
}

constexpr int64_t kCopyGrain = int64_t{1} << 20;

void copy_bytes(char* dst, const char* src, size_t bytes) {
  if (bytes == 0) return;
  const bool overlap = dst < src + bytes && src < dst + bytes;
  if (overlap) {
    std::memmove(dst, src, bytes);
    return;
  }
  parallel_for(0, static_cast<int64_t>(bytes), kCopyGrain, [=](int64_t begin, int64_t end) {
    std::memcpy(dst + begin, src + begin, static_cast<size_t>(end - begin));
  });
}

int copy_from_host(void*, int32_t, void* dst, int64_t dst_offset, const void* src, size_t bytes, void*) {
  copy_bytes(static_cast<char*>(dst) + dst_offset, static_cast<const char*>(src), bytes);
  return TS_OK;
}

int copy_to_host(void*, int32_t, void* dst, const void* src, int64_t src_offset, size_t bytes, void*) {
  copy_bytes(static_cast<char*>(dst), static_cast<const char*>(src) + src_offset, bytes);
  return TS_OK;
}

int copy_within(void*, int32_t, void* dst, int64_t dst_offset, const void* src, int64_t src_offset, size_t bytes,
                void*) {
  copy_bytes(static_cast<char*>(dst) + dst_offset, static_cast<const char*>(src) + src_offset, bytes);
  return TS_OK;
}

int synchronize(void*, int32_t, void*) { return TS_OK; }

int get_kernel(void*, int32_t, const char* op, ts_kernel* out) {
  const backend::Registration* found = backend::find_kernel(op, active_isa());
  if (found == nullptr) return TS_DECLINED;
  ts_kernel kernel{};
  kernel.run = found->run;
  kernel.dtypes = found->dtypes;
  kernel.layouts = found->layouts;
  kernel.flags = found->flags;
  kernel.prepare = found->prepare;
  kernel.struct_size = out->struct_size != 0 && out->struct_size < sizeof kernel ? out->struct_size : sizeof kernel;
  std::memcpy(out, &kernel, kernel.struct_size);
  return TS_OK;
}

void* host_pointer(void*, int32_t, void* handle) { return handle; }

void set_threads(void*, int32_t count) { set_num_threads(count); }
int32_t get_threads(void*) { return forked_child() ? 1 : num_threads(); }

ts_backend make_table() {
  ts_backend table{};
  table.struct_size = sizeof table;
  table.abi_major = TS_ABI_MAJOR;
  table.abi_minor_needed = 0;
  table.name = "cpu";
  table.vendor = "org.tesserack.cpu";
  table.version = TESSERACK_CPU_VERSION;
  table.probe = probe;
  table.properties = properties;
  table.alloc = alloc;
  table.free = release;
  table.copy_from_host = copy_from_host;
  table.copy_to_host = copy_to_host;
  table.copy_within = copy_within;
  table.synchronize = synchronize;
  table.get_kernel = get_kernel;
  table.host_pointer = host_pointer;
  table.set_num_threads = set_threads;
  table.get_num_threads = get_threads;
  return table;
}

} // namespace
} // namespace tesserack::cpu

extern "C" __attribute__((visibility("default"))) int tesserack_backend(const ts_host* host, const ts_backend** out) {
  using namespace tesserack;
  static const ts_backend table = cpu::make_table();
  if (host != nullptr && host->abi_major != TS_ABI_MAJOR) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "cpu: built for backend ABI %d.%d, got a core with ABI %d.%d; install matching versions",
                  TS_ABI_MAJOR, TS_ABI_MINOR, host->abi_major, host->abi_minor);
    return backend::report(host, TS_ERROR, text);
  }
  if (cpu::active_isa() < 0) {
    char text[240];
    std::snprintf(text, sizeof text,
                  "cpu: built from source for another processor, of which this one (%s) lacks the instructions; build "
                  "it here again, or for all: pip install -C cmake.define.TESSERACK_CPU_ISA=all",
                  cpu::isa_name(cpu::detected_isa()));
    return backend::report(host, TS_ERROR, text);
  }
  cpu::the_host = host;
  cpu::keep_engines_at(host);
  *out = &table;
  return TS_OK;
}
