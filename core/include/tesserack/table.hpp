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
// Optional functions are picked up where the class has them: see optional_slots. Any of them may throw: an Error's
// status and message, or another exception's message, reach the user.
#ifndef TESSERACK_TABLE_HPP
#define TESSERACK_TABLE_HPP

#include <tesserack/backend.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {

// The core's side, from when the library was loaded.
inline const ts_host*& host() {
  static const ts_host* table = nullptr;
  return table;
}

// Runs f(); what it throws becomes a status and a message.
template <typename F> int guard(F&& f) noexcept {
  try {
    f();
    return TS_OK;
  } catch (const Error& error) {
    return report(host(), error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return report(host(), TS_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return report(host(), TS_ERROR, error.what());
  } catch (...) {
    return report(host(), TS_ERROR, "unknown C++ exception in a backend");
  }
}

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

// Functions a class may have besides the required ones; a slot left empty means the core's default.
template <typename D> void optional_slots(ts_backend& table) {
  // void* host_pointer(int device, void* handle): where the host sees the memory, for a device that shares the host's
  if constexpr (requires { &D::host_pointer; })
    table.host_pointer = [](void*, int32_t device, void* handle) { return D::host_pointer(device, handle); };
  // bool copy_peer(device, dst, dst_offset, src_backend, src_device, src, src_offset, bytes, stream): false declines
  if constexpr (requires { &D::copy_peer; })
    table.copy_peer = [](void*, int32_t device, void* dst, int64_t dst_offset, const char* src_backend,
                         int32_t src_device, const void* src, int64_t src_offset, size_t bytes, void* stream) {
      bool done = false;
      const int status = guard([&] {
        done = D::copy_peer(device, dst, dst_offset, src_backend, src_device, src, src_offset, bytes, stream);
      });
      return status == TS_OK && !done ? int{TS_DECLINED} : status;
    };
  // void* stream_create(int device, int priority); void stream_destroy(int device, void* stream)
  if constexpr (requires { &D::stream_create; }) {
    table.stream_create = [](void*, int32_t device, int32_t priority, void** stream) {
      return guard([&] { *stream = D::stream_create(device, priority); });
    };
    table.stream_destroy = [](void*, int32_t device, void* stream) {
      guard([&] { D::stream_destroy(device, stream); });
    };
  }
  // void set_num_threads(int); int get_num_threads()
  if constexpr (requires { &D::set_num_threads; }) {
    table.set_num_threads = [](void*, int32_t n) { guard([&] { D::set_num_threads(n); }); };
    table.get_num_threads = [](void*) -> int32_t { return D::get_num_threads(); };
  }
  // void shutdown()
  if constexpr (requires { &D::shutdown; }) table.shutdown = [](void*) { guard([] { D::shutdown(); }); };
  // constexpr bool own_allocator: allocate() draws from a pool already, so that the core adds none
  if constexpr (requires { D::own_allocator; }) table.flags |= D::own_allocator ? TS_B_OWN_ALLOCATOR : 0;
}

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
