// The tables of a backend beside its own: recorded launches, communicators, graph compilers. Checked as it is loaded.
#include "runtime/plugin.h"
#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ts {
namespace {

struct Slot {
  const char* name;
  bool filled;
};

// The part of a table that lies within the size it tells; the rest stays NULL.
template <class T> T known_part(const T* table) {
  T whole{};
  std::memcpy(&whole, table, std::min(table->struct_size, sizeof whole));
  return whole;
}

struct Extension {
  const char* backend;
  const std::string& source;
  const char* table;

  void require(std::initializer_list<Slot> slots) const {
    for (const Slot& s : slots)
      TS_CHECK(s.filled, "backend: '", backend, "' from ", source, " leaves the required slot ", table, ".", s.name,
               " empty");
  }
  void together(const Slot& a, const Slot& b) const {
    TS_CHECK(a.filled == b.filled, "backend: '", backend, "' from ", source, " fills ", table, ".",
             (a.filled ? a : b).name, " but not ", (a.filled ? b : a).name, "; both go together");
  }
  void at_least(size_t told, size_t needed) const {
    TS_CHECK(told >= needed && told < (size_t{1} << 20), "backend: '", backend, "' from ", source, " gave a table ",
             table, " of ", told, " bytes, expected at least ", needed, "; its struct_size is sizeof the struct");
  }
};

// What records several streams has what joins them.
void check_capture_flags(const ts_backend& t, const std::string& source) {
  const uint32_t flags = known_part(t.capture).flags;
  TS_CHECK(!(flags & ~uint32_t{TS_CAPTURE_STREAMS}), "backend: '", t.name, "' from ", source, " tells capture.flags ",
           flags, "; expected TS_CAPTURE_STREAMS or none");
  TS_CHECK(!flags || (t.stream_create && t.event_create && t.stream_wait_event), "backend: '", t.name, "' from ",
           source, " tells TS_CAPTURE_STREAMS without stream_create, event_create and stream_wait_event");
}

} // namespace

void check_extensions(const ts_backend& given, const std::string& source) {
  ts_backend t = known_part(&given);
  TS_CHECK(!(t.flags & ~uint32_t{TS_B_OWN_ALLOCATOR}), "backend: '", t.name, "' from ", source, " tells the flags ",
           t.flags, "; expected TS_B_OWN_ALLOCATOR or none");
  Extension slots{t.name, source, "ts_backend"};
  slots.together({"stream_create", t.stream_create != nullptr}, {"stream_destroy", t.stream_destroy != nullptr});
  for (const Slot& other :
       {Slot{"event_destroy", t.event_destroy != nullptr}, Slot{"event_record", t.event_record != nullptr},
        Slot{"event_synchronize", t.event_synchronize != nullptr}})
    slots.together({"event_create", t.event_create != nullptr}, other);
  for (const Slot& other :
       {Slot{"host_free", t.host_free != nullptr}, Slot{"copy_from_pinned", t.copy_from_pinned != nullptr},
        Slot{"copy_to_pinned", t.copy_to_pinned != nullptr}})
    slots.together({"host_alloc", t.host_alloc != nullptr}, other);
  slots.together({"host_register", t.host_register != nullptr}, {"host_unregister", t.host_unregister != nullptr});
  TS_CHECK(!t.host_register || t.host_alloc, "backend: '", t.name, "' from ", source,
           " gives host_register without host_alloc, whose copies it is for");
  if (t.capture) {
    Extension x{t.name, source, "capture"};
    x.at_least(t.capture->struct_size, offsetof(ts_capture, flags));
    x.require({{"begin", t.capture->begin != nullptr},
               {"end", t.capture->end != nullptr},
               {"replay", t.capture->replay != nullptr},
               {"destroy", t.capture->destroy != nullptr}});
    check_capture_flags(t, source);
  }
  if (t.communicator) {
    Extension x{t.name, source, "communicator"};
    x.at_least(t.communicator->struct_size, offsetof(ts_communicator, unique_id));
    ts_communicator c = known_part(t.communicator);
    x.require({{"open", c.open != nullptr}, {"collective", c.collective != nullptr}, {"close", c.close != nullptr}});
    x.together({"group_begin", c.group_begin != nullptr}, {"group_end", c.group_end != nullptr});
    TS_CHECK(c.collectives && !(c.collectives >> TS_NUM_COLLECTIVES), "backend: '", t.name, "' from ", source,
             " tells communicator.collectives ", c.collectives, "; expected bits of the ", int{TS_NUM_COLLECTIVES},
             " kinds of TS_COLL_*, one at least");
    TS_CHECK(c.dtypes && !(c.dtypes >> TS_NUM_DTYPES), "backend: '", t.name, "' from ", source,
             " tells communicator.dtypes ", c.dtypes, "; expected bits of the ", int{TS_NUM_DTYPES},
             " dtypes, one at least");
  }
  if (t.profiler) {
    Extension x{t.name, source, "profiler"};
    x.at_least(t.profiler->struct_size, offsetof(ts_profiler, push_range));
    ts_profiler p = known_part(t.profiler);
    x.require({{"start", p.start != nullptr}, {"collect", p.collect != nullptr}, {"stop", p.stop != nullptr}});
    x.together({"push_range", p.push_range != nullptr}, {"pop_range", p.pop_range != nullptr});
  }
  if (t.sharing) {
    Extension x{t.name, source, "sharing"};
    x.at_least(t.sharing->struct_size, sizeof(ts_sharing));
    x.require({{"export_memory", t.sharing->export_memory != nullptr},
               {"import_memory", t.sharing->import_memory != nullptr},
               {"release", t.sharing->release != nullptr}});
  }
  if (t.compiler) {
    Extension x{t.name, source, "compiler"};
    x.at_least(t.compiler->struct_size, offsetof(ts_compiler, serialize));
    ts_compiler c = known_part(t.compiler);
    x.require({{"claim", c.claim != nullptr},
               {"compile", c.compile != nullptr},
               {"run", c.run != nullptr},
               {"destroy", c.destroy != nullptr}});
    x.together({"serialize", c.serialize != nullptr}, {"deserialize", c.deserialize != nullptr});
  }
}

} // namespace ts
