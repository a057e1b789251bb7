// The table of a backend, made from a class of static functions: its runtime. Included by backend.hpp.
//
//   struct Acme {
//     static int count(std::string& reason);                    // devices there are; 0 with the reason
//     static void describe(int device, ts_properties& out);     // `out` comes zeroed
//     static void* allocate(int device, size_t bytes, void* stream); // nullptr: out of memory
//     static void release(int device, void* handle, size_t bytes, void* stream);
//     static void copy_from_host(int device, void* dst, int64_t dst_offset, const void* src, size_t bytes, void*
//     stream); static void copy_to_host(int device, void* dst, const void* src, int64_t src_offset, size_t bytes, void*
//     stream); static void copy_within(int device, void* dst, int64_t dst_offset, const void* src, int64_t src_offset,
//                             size_t bytes, void* stream);
//     static void synchronize(int device, void* stream);
//   };
//   TESSERACK_BACKEND(Acme, "acme", "com.acme.npu", "1.0.0");
//
// Optional functions are picked up where the class has them: see slots.hpp. Any of them may throw: an Error's
// status and message, or another exception's message, reach the user.
#ifndef TESSERACK_TABLE_HPP
#define TESSERACK_TABLE_HPP

#include <tesserack/backend.hpp>
#include <tesserack/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {

// The callbacks, for a class D.
template <typename D> struct Slots {
  static int probe(void*, int32_t* count, char* reason, size_t capacity) noexcept {
    *count = 0;
    return guard([&] {
      std::string why;
      *count = D::count(why);
      if (capacity > 0) std::snprintf(reason, capacity, "%s", why.c_str());
    });
  }
  static int properties(void*, int32_t device, ts_properties* out) noexcept {
    return guard([&] {
      ts_properties filled{};
      filled.struct_size = sizeof filled;
      D::describe(device, filled);
      filled.struct_size = std::min(out->struct_size, sizeof filled); // the core may know a shorter one
      std::memcpy(out, &filled, filled.struct_size);
    });
  }
  static int alloc(void*, int32_t device, size_t bytes, void* stream, void** handle) noexcept {
    *handle = nullptr;
    return guard([&] {
      *handle = D::allocate(device, bytes, stream);
      if (*handle == nullptr) fail(TS_OUT_OF_MEMORY, "cannot allocate %zu bytes on device %d", bytes, device);
    });
  }
  static void release(void*, int32_t device, void* handle, size_t bytes, void* stream) noexcept {
    guard([&] { D::release(device, handle, bytes, stream); });
  }
  static int copy_from_host(void*, int32_t device, void* dst, int64_t dst_offset, const void* src, size_t bytes,
                            void* stream) noexcept {
    return guard([&] { D::copy_from_host(device, dst, dst_offset, src, bytes, stream); });
  }
  static int copy_to_host(void*, int32_t device, void* dst, const void* src, int64_t src_offset, size_t bytes,
                          void* stream) noexcept {
    return guard([&] { D::copy_to_host(device, dst, src, src_offset, bytes, stream); });
  }
  static int copy_within(void*, int32_t device, void* dst, int64_t dst_offset, const void* src, int64_t src_offset,
                         size_t bytes, void* stream) noexcept {
    return guard([&] { D::copy_within(device, dst, dst_offset, src, src_offset, bytes, stream); });
  }
  static int synchronize(void*, int32_t device, void* stream) noexcept {
    return guard([&] { D::synchronize(device, stream); });
  }
  static int get_kernel(void*, int32_t, const char* op, ts_kernel* out) noexcept {
    const Registration* found = find_kernel(op, std::numeric_limits<int>::max());
    if (found == nullptr) return TS_DECLINED;
    ts_kernel kernel{};
    kernel.struct_size = out->struct_size ? std::min(out->struct_size, sizeof kernel) : sizeof kernel;
    kernel.run = found->run;
    kernel.dtypes = found->dtypes;
    kernel.layouts = found->layouts;
    kernel.flags = found->flags;
    kernel.prepare = found->prepare;
    std::memcpy(out, &kernel, kernel.struct_size);
    return TS_OK;
  }
};

template <typename D> ts_backend make_table(const char* name, const char* vendor, const char* version) {
  using S = Slots<D>;
  ts_backend table{};
  table.struct_size = sizeof table;
  table.abi_major = TS_ABI_MAJOR;
  table.abi_minor_needed = 0;
  table.name = name;
  table.vendor = vendor;
  table.version = version;
  table.probe = S::probe;
  table.properties = S::properties;
  table.alloc = S::alloc;
  table.free = S::release;
  table.copy_from_host = S::copy_from_host;
  table.copy_to_host = S::copy_to_host;
  table.copy_within = S::copy_within;
  table.synchronize = S::synchronize;
  table.get_kernel = S::get_kernel;
  optional_slots<D>(table);
  return table;
}

// What the entry point does: keeps the host's table, refuses a core of another major, hands out the table.
template <typename D>
int give_table(const ts_host* core, const ts_backend** out, const char* name, const char* vendor, const char* version) {
  if (core->abi_major != TS_ABI_MAJOR) {
    char text[200];
    std::snprintf(text, sizeof text, "%s: built for ABI %d.%d, this core speaks %d.%d; install a matching version",
                  name, TS_ABI_MAJOR, TS_ABI_MINOR, core->abi_major, core->abi_minor);
    return report(core, TS_ERROR, text);
  }
  host() = core;
  static const ts_backend table = make_table<D>(name, vendor, version);
  *out = &table;
  return TS_OK;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

// The entry point of a library. The names are copied by reference: give string literals.
#define TESSERACK_BACKEND(Device, name, vendor, version)                                                               \
  extern "C" __attribute__((visibility("default"))) int tesserack_backend(const ts_host* core,                         \
                                                                          const ts_backend** out) {                    \
    return ::tesserack::backend::give_table<Device>(core, out, name, vendor, version);                                 \
  }                                                                                                                    \
  static_assert(true)

#endif // TESSERACK_TABLE_HPP
