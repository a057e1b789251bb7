#include "runtime/stream.h"
#include "runtime/backend.h"
#include <algorithm>

namespace ts {
namespace {

struct Live {
  std::mutex mutex;
  std::vector<std::pair<Device, void*>> streams;
};
Live& live() {
  static auto* l = new Live; // streams may outlive static destruction
  return *l;
}

std::vector<void*> live_handles(Device device) {
  Live& l = live();
  std::lock_guard lock(l.mutex);
  std::vector<void*> handles = {nullptr};
  for (auto& [d, handle] : l.streams)
    if (d == device) handles.push_back(handle);
  return handles;
}

// A thread has at most one entry per device, and none for the default stream.
thread_local std::vector<std::shared_ptr<Stream>> t_current;

void wait_for(Device device, void* handle) {
  Backend& b = backend_of(device);
  b.check(b.table().synchronize(b.table().ctx, device.index, handle), "synchronize");
}

} // namespace

std::shared_ptr<Stream> Stream::make(Device device, int priority) {
  Backend& b = backend_of(device);
  b.allocator(device.index);
  if (!b.table().stream_create) return default_of(device);
  void* handle = nullptr;
  b.check(b.table().stream_create(b.table().ctx, device.index, priority, &handle), "Stream");
  if (!handle) return default_of(device);
  std::shared_ptr<Stream> stream(new Stream(device, handle));
  b.allocator(device.index).add_stream(handle);
  Live& l = live();
  std::lock_guard lock(l.mutex);
  l.streams.emplace_back(device, handle);
  return stream;
}

std::shared_ptr<Stream> Stream::default_of(Device device) {
  backend_of(device).allocator(device.index);
  return std::shared_ptr<Stream>(new Stream(device, nullptr));
}

// Memory waiting for reuse on this stream goes to the default one, so the work in flight must be over.
Stream::~Stream() {
  if (!handle_) return;
  {
    Live& l = live();
    std::lock_guard lock(l.mutex);
    std::erase(l.streams, std::pair(device_, handle_));
  }
  Backend& b = backend_of(device_);
  b.table().synchronize(b.table().ctx, device_.index, handle_);
  b.allocator(device_.index).retire_stream(handle_);
  if (b.table().stream_destroy) b.table().stream_destroy(b.table().ctx, device_.index, handle_);
}

bool Stream::query() const {
  Backend& b = backend_of(device_);
  if (!b.table().stream_query) {
    Event now(device_, false);
    now.record(*this);
    return now.query();
  }
  int32_t done = 0;
  b.check(b.table().stream_query(b.table().ctx, device_.index, handle_, &done), "Stream.query");
  return done != 0;
}

void Stream::synchronize() const { wait_for(device_, handle_); }

Event::Event(Device device, bool timing) : device_(device), timing_(timing) {
  Backend& b = backend_of(device);
  b.allocator(device.index);
  const ts_backend& t = b.table();
  if (t.event_create && t.event_record)
    b.check(t.event_create(t.ctx, device.index, timing ? 1u : 0u, &handle_), "Event");
}

Event::~Event() {
  const ts_backend& t = backend_of(device_).table();
  if (handle_ && t.event_destroy) t.event_destroy(t.ctx, device_.index, handle_);
}

void Event::record(const Stream& stream) {
  TS_CHECK(stream.device() == device_, "Event.record: expected a stream of ", device_, ", got one of ",
           stream.device());
  Backend& b = backend_of(device_);
  if (handle_) {
    b.check(b.table().event_record(b.table().ctx, device_.index, handle_, stream.handle()), "Event.record");
  } else {
    stream.synchronize();
    reached_ = std::chrono::steady_clock::now();
  }
  recorded_ = true;
}

void Event::wait_on(const Stream& stream) const {
  if (!recorded_ || !handle_) return;
  const ts_backend& t = backend_of(device_).table();
  bool here = stream.device() == device_ && t.stream_wait_event;
  if (!here) return synchronize();
  backend_of(device_).check(t.stream_wait_event(t.ctx, device_.index, stream.handle(), handle_), "Event.wait");
}

bool Event::query() const {
  const ts_backend& t = backend_of(device_).table();
  if (!recorded_ || !handle_) return true;
  if (!t.event_query) {
    synchronize();
    return true;
  }
  int32_t done = 0;
  backend_of(device_).check(t.event_query(t.ctx, device_.index, handle_, &done), "Event.query");
  return done != 0;
}

void Event::synchronize() const {
  if (!recorded_ || !handle_) return;
  const ts_backend& t = backend_of(device_).table();
  if (!t.event_synchronize) return synchronize_device(device_);
  backend_of(device_).check(t.event_synchronize(t.ctx, device_.index, handle_), "Event.synchronize");
}

double Event::elapsed_ms(const Event& end) const {
  TS_CHECK_VALUE(timing_ && end.timing_, "Event.elapsed_time: expected events made with enable_timing=True");
  TS_CHECK_VALUE(recorded_ && end.recorded_, "Event.elapsed_time: expected two recorded events");
  TS_CHECK_VALUE(device_ == end.device_, "Event.elapsed_time: expected events of one device, got ", device_, " and ",
                 end.device_);
  const ts_backend& t = backend_of(device_).table();
  if (!handle_) return std::chrono::duration<double, std::milli>(end.reached_ - reached_).count();
  TS_CHECK(t.event_elapsed, "Event.elapsed_time: backend '", backend_of(device_).name(), "' does not time its events");
  double ms = 0;
  backend_of(device_).check(t.event_elapsed(t.ctx, device_.index, handle_, end.handle_, &ms), "Event.elapsed_time");
  return ms;
}

std::shared_ptr<Stream> current_stream(Device device) {
  for (auto& s : t_current)
    if (s->device() == device) return s;
  return Stream::default_of(device);
}

void* current_stream_handle(Device device) {
  for (auto& s : t_current)
    if (s->device() == device) return s->handle();
  return nullptr;
}

void set_current_stream(const std::shared_ptr<Stream>& stream) {
  std::erase_if(t_current, [&](auto& s) { return s->device() == stream->device(); });
  if (stream->handle()) t_current.push_back(stream);
  thread_state().on_stream = !t_current.empty();
}

void synchronize_device(Device device) {
  for (void* handle : live_handles(device)) wait_for(device, handle);
}

} // namespace ts
