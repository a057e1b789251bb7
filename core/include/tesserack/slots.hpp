// The optional slots of a backend's table, picked up from functions that its class has. Included by table.hpp.
#ifndef TESSERACK_SLOTS_HPP
#define TESSERACK_SLOTS_HPP

#include <tesserack/backend.hpp>

#include <cstring>
#include <string>
#include <string_view>

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

// void* stream_create(int device, int priority); void stream_destroy(int device, void* stream)
// bool stream_query(int device, void* stream): whether all is done
// void* event_create(int device, bool timing); void event_destroy(int device, void* event)
// void event_record(int device, void* event, void* stream); bool event_query(int device, void* event)
// void event_synchronize(int device, void* event); double event_elapsed(int device, void* begin, void* end):
// milliseconds void stream_wait_event(int device, void* stream, void* event)
template <typename D> void stream_slots(ts_backend& table) {
  if constexpr (requires { &D::stream_create; }) {
    table.stream_create = [](void*, int32_t device, int32_t priority, void** stream) {
      return guard([&] { *stream = D::stream_create(device, priority); });
    };
    table.stream_destroy = [](void*, int32_t device, void* stream) {
      guard([&] { D::stream_destroy(device, stream); });
    };
  }
  if constexpr (requires { &D::stream_query; })
    table.stream_query = [](void*, int32_t device, void* stream, int32_t* done) {
      return guard([&] { *done = D::stream_query(device, stream); });
    };
  if constexpr (requires { &D::event_create; }) {
    table.event_create = [](void*, int32_t device, uint32_t flags, void** event) {
      return guard([&] { *event = D::event_create(device, (flags & 1) != 0); });
    };
    table.event_destroy = [](void*, int32_t device, void* event) { guard([&] { D::event_destroy(device, event); }); };
    table.event_record = [](void*, int32_t device, void* event, void* stream) {
      return guard([&] { D::event_record(device, event, stream); });
    };
    table.event_synchronize = [](void*, int32_t device, void* event) {
      return guard([&] { D::event_synchronize(device, event); });
    };
  }
  if constexpr (requires { &D::event_query; })
    table.event_query = [](void*, int32_t device, void* event, int32_t* done) {
      return guard([&] { *done = D::event_query(device, event); });
    };
  if constexpr (requires { &D::event_elapsed; })
    table.event_elapsed = [](void*, int32_t device, void* begin, void* end, double* milliseconds) {
      return guard([&] { *milliseconds = D::event_elapsed(device, begin, end); });
    };
  if constexpr (requires { &D::stream_wait_event; })
    table.stream_wait_event = [](void*, int32_t device, void* stream, void* event) {
      return guard([&] { D::stream_wait_event(device, stream, event); });
    };
}

// void open(int device): before all else, once. void trim(int device): what is kept for reuse goes back
// void* host_pointer(int device, void* handle): where the host sees the memory, for a device that shares the host's
// bool copy_peer(device, dst, dst_offset, src_backend, src_device, src, src_offset, bytes, stream): false declines
// void* host_alloc(size_t bytes); void host_free(void* address, size_t bytes), and copies that may be under way after:
// void copy_from_pinned(int device, void* dst, int64_t dst_offset, const void* src, size_t bytes, void* stream)
// void copy_to_pinned(int device, void* dst, const void* src, int64_t src_offset, size_t bytes, void* stream)
// bool host_register(void* address, size_t bytes): false declines; void host_unregister(void* address, size_t bytes)
template <typename D> void memory_slots(ts_backend& table) {
  if constexpr (requires { &D::open; })
    table.open = [](void*, int32_t device) { return guard([&] { D::open(device); }); };
  if constexpr (requires { &D::trim; }) table.trim = [](void*, int32_t device) { guard([&] { D::trim(device); }); };
  if constexpr (requires { &D::host_pointer; })
    table.host_pointer = [](void*, int32_t device, void* handle) { return D::host_pointer(device, handle); };
  if constexpr (requires { &D::copy_peer; })
    table.copy_peer = [](void*, int32_t device, void* dst, int64_t dst_offset, const char* src_backend,
                         int32_t src_device, const void* src, int64_t src_offset, size_t bytes, void* stream) {
      bool done = false;
      const int status = guard([&] {
        done = D::copy_peer(device, dst, dst_offset, src_backend, src_device, src, src_offset, bytes, stream);
      });
      return status == TS_OK && !done ? int{TS_DECLINED} : status;
    };
  if constexpr (requires { &D::host_alloc; }) {
    table.host_alloc = [](void*, size_t bytes, void** address) {
      return guard([&] { *address = D::host_alloc(bytes); });
    };
    table.host_free = [](void*, void* address, size_t bytes) { guard([&] { D::host_free(address, bytes); }); };
    table.copy_from_pinned = [](void*, int32_t device, void* dst, int64_t dst_offset, const void* src, size_t bytes,
                                void* stream) {
      return guard([&] { D::copy_from_pinned(device, dst, dst_offset, src, bytes, stream); });
    };
    table.copy_to_pinned = [](void*, int32_t device, void* dst, const void* src, int64_t src_offset, size_t bytes,
                              void* stream) {
      return guard([&] { D::copy_to_pinned(device, dst, src, src_offset, bytes, stream); });
    };
  }
  if constexpr (requires { &D::host_register; }) {
    table.host_register = [](void*, void* address, size_t bytes) {
      bool done = false;
      const int status = guard([&] { done = D::host_register(address, bytes); });
      return status == TS_OK && !done ? int{TS_DECLINED} : status;
    };
    table.host_unregister = [](void*, void* address, size_t bytes) {
      guard([&] { D::host_unregister(address, bytes); });
    };
  }
}

// void capture_begin(int device, void* stream); void* capture_end(int device, void* stream)
// void capture_replay(int device, void* recording, void* stream); void capture_destroy(int device, void* recording)
// constexpr bool capture_streams: one recording spans streams that events join (TS_CAPTURE_STREAMS)
template <typename D> constexpr uint32_t capture_flags() {
  if constexpr (requires { D::capture_streams; }) return D::capture_streams ? TS_CAPTURE_STREAMS : 0;
  return 0;
}
template <typename D> void capture_slots(ts_backend& table) {
  if constexpr (requires { &D::capture_begin; }) {
    static const ts_capture slots = {
        sizeof(ts_capture),
        [](void*, int32_t device, void* stream) { return guard([&] { D::capture_begin(device, stream); }); },
        [](void*, int32_t device, void* stream, void** recording) {
          return guard([&] { *recording = D::capture_end(device, stream); });
        },
        [](void*, int32_t device, void* recording, void* stream) {
          return guard([&] { D::capture_replay(device, recording, stream); });
        },
        [](void*, int32_t device, void* recording) { guard([&] { D::capture_destroy(device, recording); }); },
        capture_flags<D>(),
        0};
    table.capture = &slots;
  }
}

// What profile_collect gives each activity to; struct_size is set here.
class Activities {
public:
  Activities(void (*take)(void* to, const ts_activity* activity), void* to) : take_(take), to_(to) {}
  void add(ts_activity activity) const {
    activity.struct_size = sizeof activity;
    take_(to_, &activity);
  }

private:
  void (*take_)(void* to, const ts_activity* activity);
  void* to_;
};

// void profile_start(int device); void profile_stop(int device)
// void profile_collect(int device, const Activities& to): waits, then to.add({...}) for each
// void profile_push(int device, const char* name, void* stream); void profile_pop(int device, void* stream)
template <typename D> void profiler_slots(ts_backend& table) {
  if constexpr (requires { &D::profile_start; }) {
    static ts_profiler slots{};
    slots.struct_size = sizeof slots;
    slots.start = [](void*, int32_t device) { return guard([&] { D::profile_start(device); }); };
    slots.collect = [](void*, int32_t device, void (*take)(void*, const ts_activity*), void* to) {
      return guard([&] { D::profile_collect(device, Activities(take, to)); });
    };
    slots.stop = [](void*, int32_t device) { return guard([&] { D::profile_stop(device); }); };
    if constexpr (requires { &D::profile_push; }) {
      slots.push_range = [](void*, int32_t device, const char* name, void* stream) {
        return guard([&] { D::profile_push(device, name, stream); });
      };
      slots.pop_range = [](void*, int32_t device, void* stream) {
        return guard([&] { D::profile_pop(device, stream); });
      };
    }
    table.profiler = &slots;
  }
}

// std::string export_memory(int device, void* handle): a name under which other processes find the memory; "" declines
// void* import_memory(int device, std::string_view name); void release_imported(int device, void* handle)
template <typename D> void sharing_slots(ts_backend& table) {
  if constexpr (requires { &D::export_memory; }) {
    static const ts_sharing slots = {
        sizeof(ts_sharing),
        [](void*, int32_t device, void* handle, void* name, size_t* bytes) {
          std::string told;
          const int status = guard([&] { told = D::export_memory(device, handle); });
          if (status != TS_OK) return status;
          if (told.empty()) return int{TS_DECLINED};
          if (told.size() <= *bytes) std::memcpy(name, told.data(), told.size());
          *bytes = told.size();
          return int{TS_OK};
        },
        [](void*, int32_t device, const void* name, size_t bytes, void** handle) {
          return guard(
              [&] { *handle = D::import_memory(device, std::string_view(static_cast<const char*>(name), bytes)); });
        },
        [](void*, int32_t device, void* handle) { guard([&] { D::release_imported(device, handle); }); }};
    table.sharing = &slots;
  }
}

// void identify(int device, ts_identity& out); void link(int device, int peer, ts_link& out): they come as the core
// made them, zeroed but for numa_node. void recover(int device): after fail(TS_DEVICE_LOST, ...)
template <typename D> void identity_slots(ts_backend& table) {
  if constexpr (requires { &D::identify; })
    table.identify = [](void*, int32_t device, ts_identity* out) {
      return guard([&] {
        ts_identity filled{};
        filled.numa_node = -1;
        D::identify(device, filled);
        filled.struct_size = out->struct_size < sizeof filled ? out->struct_size : sizeof filled;
        std::memcpy(out, &filled, filled.struct_size);
      });
    };
  if constexpr (requires { &D::link; })
    table.link = [](void*, int32_t device, int32_t peer, ts_link* out) {
      return guard([&] {
        ts_link filled{};
        D::link(device, peer, filled);
        filled.struct_size = out->struct_size < sizeof filled ? out->struct_size : sizeof filled;
        std::memcpy(out, &filled, filled.struct_size);
      });
    };
  if constexpr (requires { &D::recover; })
    table.recover = [](void*, int32_t device) { return guard([&] { D::recover(device); }); };
}

// Functions a class may have besides the required ones; a slot left empty means the core's default.
template <typename D> void optional_slots(ts_backend& table) {
  stream_slots<D>(table);
  memory_slots<D>(table);
  capture_slots<D>(table);
  profiler_slots<D>(table);
  sharing_slots<D>(table);
  identity_slots<D>(table);
  // const ts_communicator* communicator(); const ts_compiler* compiler(): tables of the backend's own
  if constexpr (requires { &D::communicator; }) table.communicator = D::communicator();
  if constexpr (requires { &D::compiler; }) table.compiler = D::compiler();
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

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_SLOTS_HPP
