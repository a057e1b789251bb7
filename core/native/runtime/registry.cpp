// The table of registered backends, and device names.
#include "runtime/default_device.h"
#include "runtime/device_names.h"
#include "runtime/plugin.h"
#include "runtime/recording_state.h"
#include "runtime/stream.h"
#include "runtime/transfer_guard.h"
#include <cctype>
#include <cstring>

namespace ts {

// Apart from the registry, as every call looks here.
constinit std::array<std::atomic<Backend*>, kMaxBackends> backend_slots{};

namespace {

struct Registry {
  std::mutex mutex;
  std::atomic<int> count{1};
  std::function<void(const std::string&)> loader;
  std::atomic<bool> announced{false}; // the loader was told that devices are in use
  void (*ready)(Backend&) = nullptr;

  Backend& at(int id) { return *backend_slots[static_cast<size_t>(id)].load(std::memory_order_acquire); }
};
Registry& registry() {
  static auto* r = new Registry; // never destroyed: tensors may outlive static destruction
  return *r;
}

} // namespace

// The device's name is part of device strings and of Python attributes: "acme:1", x.acme().
static bool is_device_name(const std::string& name) {
  bool valid = !name.empty() && name.size() < 64 && name[0] >= 'a' && name[0] <= 'z';
  for (char c : name) valid = valid && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
  return valid;
}

void check_backend_table(const ts_backend* t, const std::string& source) {
  TS_CHECK(t, "backend: ", source, " gave no table");
  // The version first: all that majors have in common is where it stands.
  check_abi("backend: " + source, t->struct_size, offsetof(ts_backend, name), t->abi_major, t->abi_minor_needed);
  TS_CHECK(t->struct_size >= offsetof(ts_backend, get_kernel) + sizeof(void*), "backend: ", source, " gave a table of ",
           t->struct_size, " bytes, too small to hold the required slots");
  TS_CHECK(t->name && *t->name, "backend: ", source, " has no name");
  TS_CHECK(is_device_name(t->name), "backend: ", source, " calls itself '", t->name,
           "'; a device's name is of lower-case letters, digits and underscores, and begins with a letter");
  struct {
    const char* slot;
    bool filled;
  } required[] = {{"probe", t->probe != nullptr},
                  {"properties", t->properties != nullptr},
                  {"alloc", t->alloc != nullptr},
                  {"free", t->free != nullptr},
                  {"copy_from_host", t->copy_from_host != nullptr},
                  {"copy_to_host", t->copy_to_host != nullptr},
                  {"copy_within", t->copy_within != nullptr},
                  {"synchronize", t->synchronize != nullptr},
                  {"get_kernel", t->get_kernel != nullptr}};
  for (auto& r : required)
    TS_CHECK(r.filled, "backend: '", t->name, "' from ", source, " leaves the required slot ", r.slot, " empty");
  check_extensions(*t, source);
}

Backend& register_backend(const ts_backend* table, const std::string& source) {
  check_backend_table(table, source);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  int n = r.count.load();
  for (int i = 1; i < n; ++i)
    TS_CHECK(r.at(i).name() != table->name, "backend: the name '", table->name, "' is claimed by both ",
             r.at(i).source(), " and ", source, "; uninstall one");
  TS_CHECK(std::strcmp(table->name, "meta") != 0, "backend: the name 'meta' is built in, claimed by ", source);
  TS_CHECK(n < kMaxBackends, "backend: at most ", kMaxBackends - 1, " backends can be registered");
  backend_slots[static_cast<size_t>(n)] = new Backend(static_cast<int16_t>(n), table, source);
  r.count.store(n + 1);
  return r.at(n);
}

Backend* find_backend(const std::string& name) {
  Registry& r = registry();
  const std::string& real = real_device_name(name);
  for (int i = 1; i < r.count.load(); ++i)
    if (r.at(i).name() == real) return &r.at(i);
  return nullptr;
}

Backend& probe_again(const std::string& name) {
  Backend* old = find_backend(name);
  TS_CHECK(old, "backend: no backend named '", name, "' is loaded");
  if (old->device_count() > 0) return *old;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (&r.at(old->id()) == old) // else another thread was faster
    backend_slots[static_cast<size_t>(old->id())] = new Backend(old->id(), &old->table(), old->source());
  return r.at(old->id());
}

void fail_no_backend(Device device) {
  if (is_absent(device))
    fail(ErrorKind::BackendUnavailable, "device: no backend has the device '", absent_device_text(device), "'");
  fail(ErrorKind::Runtime, "device: meta tensors have no data; move the computation to a real device");
}

std::vector<Backend*> backends() {
  std::vector<Backend*> all;
  for (int i = 1; i < registry().count.load(); ++i) all.push_back(&registry().at(i));
  return all;
}

void set_backend_loader(std::function<void(const std::string&)> loader) { registry().loader = std::move(loader); }

namespace {
// Has the loader load a backend; "meta" is always there, and told once only.
void announce(const std::string& name) {
  Registry& r = registry();
  if (!r.loader || (r.announced && name == "meta")) return;
  r.announced = true;
  r.loader(real_device_name(name));
}
} // namespace

Backend* load_by_name(const std::string& name) {
  if (Backend* known = find_backend(name)) return known;
  announce(name);
  return find_backend(name);
}

void set_backend_ready_hook(void (*hook)(Backend&)) { registry().ready = hook; }

Device parse_device(const std::string& text) {
  size_t colon = text.find(':');
  std::string name = text.substr(0, colon);
  int64_t index = 0;
  bool valid = !name.empty();
  if (colon != std::string::npos) {
    std::string digits = text.substr(colon + 1);
    valid = valid && !digits.empty() && digits.size() <= 4 && (digits[0] != '0' || digits.size() == 1);
    for (char c : digits) valid = valid && std::isdigit(static_cast<unsigned char>(c));
    if (valid) index = std::stoll(digits);
  }
  TS_CHECK(valid, "device: expected 'name' or 'name:index', got '", text, "'");
  if (name == "meta") {
    announce(name);
    return {kMetaBackend, static_cast<int16_t>(index)};
  }
  Backend* b = find_backend(name);
  if (!b) {
    announce(name);
    b = find_backend(name);
  }
  if (!b) fail(ErrorKind::BackendUnavailable, "device: no backend named '", name, "' is installed");
  if (colon == std::string::npos) index = current_index(b->id());
  b->check_index(static_cast<int>(index));
  if (b->first_use() && registry().ready) registry().ready(*b);
  return {b->id(), static_cast<int16_t>(index)};
}

std::string to_string(Device d) {
  if (!d.defined()) return "undefined";
  if (d.is_meta()) return "meta";
  if (is_absent(d)) return absent_device_text(d);
  Backend& b = backend_of(d);
  bool alone = b.host_memory() && b.device_count() == 1 && !has_device_alias(b.name());
  if (alone) return b.name();
  return shown_device_name(b.name()) + ":" + std::to_string(d.index);
}

void append_to(std::string& out, Device d) { out += to_string(d); }

void synchronize(Device device) {
  if (device.is_meta()) return;
  synchronize_device(device);
}

// Bytes are not values where something is pending: who moves them resolves it first. Sparse tensors, and those whose
// class answers for them, have none.
static void check_plain(const Tensor& t) {
  TS_CHECK(t->storage, "expected a tensor with memory of its own, got one of shape ", t.sizes(),
           " without; use .to_dense() if it is sparse, or have its class unwrap it");
  TS_CHECK(!t.pending(), "expected plain memory, got a tensor whose ", t.is_conj() ? "conjugation" : "negation",
           " is pending; use resolve_conj(), resolve_neg()");
  check_not_gone(*t->storage);
}

void copy_bytes_from_host(const Tensor& dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  check_plain(dst);
  check_recordable(dst.device(), "a copy from the host");
  if (void* host = dst.data()) {
    std::memcpy(host, src, bytes);
    return;
  }
  Backend& b = backend_of(dst.device());
  b.check(b.table().copy_from_host(b.table().ctx, dst.device().index, dst->storage->handle, dst->byte_offset, src,
                                   bytes, b.stream(dst.device().index)),
          "copy_from_host");
}

void copy_bytes_to_host(void* dst, const Tensor& src, size_t bytes, const char* op) {
  if (bytes && !src.data())
    guard_transfer(Transfer::Synchronize,
                   [&] { return concat(op, ": waits for ", src.device(), " to read ", src.dtype(), src.sizes()); });
  move_bytes_to_host(dst, src, bytes);
}

void move_bytes_to_host(void* dst, const Tensor& src, size_t bytes) {
  if (bytes == 0) return;
  check_plain(src);
  check_recordable(src.device(), "a read of values by the host");
  if (const void* host = src.data()) {
    std::memcpy(dst, host, bytes);
    return;
  }
  Backend& b = backend_of(src.device());
  void* stream = b.stream(src.device().index);
  b.check_wait(b.table().copy_to_host(b.table().ctx, src.device().index, dst, src->storage->handle, src->byte_offset,
                                      bytes, stream),
               src.device().index, "copy_to_host");
  if (b.is_async(src.device().index))
    b.check_wait(b.table().synchronize(b.table().ctx, src.device().index, stream), src.device().index, "copy_to_host");
}

void copy_bytes_within(const Tensor& dst, const Tensor& src, size_t bytes) {
  if (bytes == 0) return;
  for (const Tensor* t : {&dst, &src}) check_plain(*t);
  Backend& b = backend_of(dst.device());
  int index = dst.device().index;
  if (RecordingState* c = RecordingState::current()) [[unlikely]]
    c->copy_recorded(dst.device(), dst->storage->handle, dst->byte_offset, src->storage->handle, src->byte_offset,
                     bytes);
  b.check(b.table().copy_within(b.table().ctx, index, dst->storage->handle, dst->byte_offset, src->storage->handle,
                                src->byte_offset, bytes, b.stream(index)),
          "copy_within");
}

// Whether what `from` does on its current stream can be waited for by events of `to`.
static bool share_events(const Backend& to, const Backend& from) {
  const ts_backend& t = to.table();
  return &to == &from && t.event_create && t.event_record && t.stream_wait_event;
}

// The copy begins after what was queued on src's stream, and what is queued there later begins after the copy.
bool copy_bytes_peer(const Tensor& dst, const Tensor& src, size_t bytes) {
  for (const Tensor* t : {&dst, &src}) check_plain(*t);
  Backend& to = backend_of(dst.device());
  check_recordable(dst.device(), "a copy from another device");
  if (!to.table().copy_peer) return false;
  Backend& from = backend_of(src.device());
  int to_index = dst.device().index, from_index = src.device().index;
  void *to_stream = to.stream(to_index), *from_stream = from.stream(from_index);
  bool by_events = share_events(to, from);
  if (by_events) {
    Event ready(src.device(), false);
    ready.record(from_stream);
    to.check(to.table().stream_wait_event(to.table().ctx, to_index, to_stream, ready.handle()), "copy_peer");
  } else if (from.is_async(from_index)) {
    from.check_wait(from.table().synchronize(from.table().ctx, from_index, from_stream), from_index, "copy_peer");
  }
  int status =
      to.table().copy_peer(to.table().ctx, to_index, dst->storage->handle, dst->byte_offset, from.name().c_str(),
                           from_index, src->storage->handle, src->byte_offset, bytes, to_stream);
  if (status == TS_DECLINED) return false;
  to.check(status, "copy_peer");
  if (by_events) {
    Event copied(dst.device(), false);
    copied.record(to_stream);
    from.check(from.table().stream_wait_event(from.table().ctx, from_index, from_stream, copied.handle()), "copy_peer");
  } else if (to.is_async(to_index)) {
    to.check_wait(to.table().synchronize(to.table().ctx, to_index, to_stream), to_index, "copy_peer");
  }
  return true;
}

} // namespace ts
