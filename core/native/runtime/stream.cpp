#include "runtime/stream.h"
#include "runtime/recording_state.h"
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

thread_local StreamChoice t_current;

void wait_for(Device device, void* handle) {
  check_recordable(device, "a wait for the device");
  Backend& b = backend_of(device);
  b.check_wait(b.table().synchronize(b.table().ctx, device.index, handle), device.index, "synchronize");
}

} // namespace

Stream::Stream(Device device, void* handle, bool owned)
    : device_(device), handle_(handle), owned_(owned), epoch_(backend_of(device).epoch(device.index)) {}

void Stream::check_not_gone() const {
  if (!handle_ || epoch_ == backend_of(device_).epoch(device_.index)) [[likely]]
    return;
  fail(ErrorKind::DeviceLost, "expected a stream made since ", device_,
       " was recovered, got one of before; make another");
}

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

std::shared_ptr<Stream> Stream::make_apart(Device device) {
  Backend& b = backend_of(device);
  b.allocator(device.index);
  void* handle = nullptr;
  if (b.table().stream_create) b.check(b.table().stream_create(b.table().ctx, device.index, 0, &handle), "Stream");
  if (!handle) return nullptr;
  std::shared_ptr<Stream> stream(new Stream(device, handle));
  b.allocator(device.index).add_stream(handle);
  return stream;
}

std::shared_ptr<Stream> Stream::default_of(Device device) {
  backend_of(device).allocator(device.index);
  return std::shared_ptr<Stream>(new Stream(device, nullptr));
}

// Its pool stays when this goes: another of the same handle may be there, or come.
std::shared_ptr<Stream> Stream::external(Device device, void* handle) {
  Backend& b = backend_of(device);
  b.allocator(device.index);
  TS_CHECK(b.has_streams(), "ExternalStream: backend '", b.name(), "' has no streams");
  if (!handle) return default_of(device);
  std::shared_ptr<Stream> stream(new Stream(device, handle, false));
  b.allocator(device.index).add_stream(handle);
  Live& l = live();
  std::lock_guard lock(l.mutex);
  l.streams.emplace_back(device, handle);
  return stream;
}

// Memory waiting for reuse on this stream goes to the default one, so the work in flight must be over.
Stream::~Stream() {
  if (!handle_) return;
  {
    Live& l = live();
    std::lock_guard lock(l.mutex);
    auto found = std::find(l.streams.begin(), l.streams.end(), std::pair(device_, handle_));
    if (found != l.streams.end()) l.streams.erase(found);
  }
  Backend& b = backend_of(device_);
  if (!owned_ || epoch_ != b.epoch(device_.index)) return;
  b.table().synchronize(b.table().ctx, device_.index, handle_);
  b.allocator(device_.index).retire_stream(handle_);
  if (b.table().stream_destroy) b.table().stream_destroy(b.table().ctx, device_.index, handle_);
}

bool Stream::query() const {
  check_not_gone();
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

void Stream::synchronize() const {
  check_not_gone();
  wait_for(device_, handle_);
}

Event::Event(Device device, bool timing) : device_(device), timing_(timing) {
  Backend& b = backend_of(device);
  epoch_ = b.epoch(device.index);
  b.allocator(device.index);
  const ts_backend& t = b.table();
  if (t.event_create && t.event_record)
    b.check(t.event_create(t.ctx, device.index, timing ? 1u : 0u, &handle_), "Event");
}

Event::~Event() {
  const ts_backend& t = backend_of(device_).table();
  if (handle_ && t.event_destroy && !gone()) t.event_destroy(t.ctx, device_.index, handle_);
}

bool Event::gone() const { return epoch_ != backend_of(device_).epoch(device_.index); }

void Event::record(const Stream& stream) {
  stream.check_not_gone();
  TS_CHECK(stream.device() == device_, "Event.record: expected a stream of ", device_, ", got one of ",
           stream.device());
  record(stream.handle());
}

void Event::record(void* stream) {
  Backend& b = backend_of(device_);
  if (gone())
    fail(ErrorKind::DeviceLost, "Event.record: expected an event made since ", device_,
         " was recovered, got one of before; make another");
  if (handle_) {
    b.check(b.table().event_record(b.table().ctx, device_.index, handle_, stream), "Event.record");
  } else {
    wait_for(device_, stream);
    reached_ = std::chrono::steady_clock::now();
  }
  recorded_ = true;
}

void Event::wait_on(const Stream& stream) const {
  if (!recorded_ || !handle_ || gone()) return; // nothing of before is under way
  const ts_backend& t = backend_of(device_).table();
  stream.check_not_gone();
  if (stream.device() == device_ && t.stream_wait_event)
    make_wait(stream.handle());
  else
    synchronize();
}

void Event::make_wait(void* stream) const {
  const ts_backend& t = backend_of(device_).table();
  if (!recorded_ || !handle_ || gone()) return;
  if (!t.stream_wait_event) return synchronize();
  backend_of(device_).check(t.stream_wait_event(t.ctx, device_.index, stream, handle_), "Event.wait");
}

bool Event::query() const {
  const ts_backend& t = backend_of(device_).table();
  if (!recorded_ || !handle_ || gone()) return true;
  if (!t.event_query) {
    synchronize();
    return true;
  }
  int32_t done = 0;
  backend_of(device_).check(t.event_query(t.ctx, device_.index, handle_, &done), "Event.query");
  return done != 0;
}

void Event::synchronize() const {
  if (!recorded_ || !handle_ || gone()) return;
  const ts_backend& t = backend_of(device_).table();
  if (!t.event_synchronize) return synchronize_device(device_);
  backend_of(device_).check_wait(t.event_synchronize(t.ctx, device_.index, handle_), device_.index,
                                 "Event.synchronize");
}

double Event::elapsed_ms(const Event& end) const {
  TS_CHECK_VALUE(timing_ && end.timing_, "Event.elapsed_time: expected events made with enable_timing=True");
  TS_CHECK_VALUE(recorded_ && end.recorded_, "Event.elapsed_time: expected two recorded events");
  TS_CHECK_VALUE(device_ == end.device_, "Event.elapsed_time: expected events of one device, got ", device_, " and ",
                 end.device_);
  const ts_backend& t = backend_of(device_).table();
  if (gone() || end.gone())
    fail(ErrorKind::DeviceLost, "Event.elapsed_time: the times were lost with ", device_, "; measure again");
  if (!handle_) return std::chrono::duration<double, std::milli>(end.reached_ - reached_).count();
  TS_CHECK(t.event_elapsed, "Event.elapsed_time: backend '", backend_of(device_).name(), "' does not time its events");
  double ms = 0;
  backend_of(device_).check(t.event_elapsed(t.ctx, device_.index, handle_, end.handle_, &ms), "Event.elapsed_time");
  return ms;
}

static const std::shared_ptr<Stream>* chosen(const StreamChoice& choice, Device device) {
  if (choice)
    for (auto& s : *choice)
      if (s->device() == device) return &s;
  return nullptr;
}

std::shared_ptr<Stream> current_stream(Device device) {
  auto* s = chosen(t_current, device);
  return s ? *s : Stream::default_of(device);
}

void* handle_in(const StreamChoice& choice, Device device) {
  auto* s = chosen(choice, device);
  if (!s) return nullptr;
  (*s)->check_not_gone();
  return (*s)->handle();
}

void* current_stream_handle(Device device) { return handle_in(t_current, device); }

void set_current_stream(const std::shared_ptr<Stream>& stream) {
  std::vector<std::shared_ptr<Stream>> others;
  if (t_current)
    for (auto& s : *t_current)
      if (!(s->device() == stream->device())) others.push_back(s);
  if (stream->handle()) others.push_back(stream);
  using Streams = std::vector<std::shared_ptr<Stream>>;
  set_stream_choice(others.empty() ? nullptr : std::make_shared<const Streams>(std::move(others)));
}

const StreamChoice& stream_choice() { return t_current; }

void set_stream_choice(StreamChoice choice) {
  t_current = std::move(choice);
  thread_state().on_stream = t_current != nullptr;
}

void order_streams(const StreamChoice& later, const StreamChoice& earlier) {
  auto order = [&](Device device) {
    void *to = handle_in(later, device), *from = handle_in(earlier, device);
    if (to == from) return;
    Event reached(device, false);
    reached.record(from);
    reached.make_wait(to);
  };
  if (later)
    for (auto& s : *later) order(s->device());
  if (earlier)
    for (auto& s : *earlier)
      if (!chosen(later, s->device())) order(s->device());
}

void forget_streams(Device device) {
  Live& l = live();
  std::lock_guard lock(l.mutex);
  std::erase_if(l.streams, [&](const auto& s) { return s.first == device; });
}

void synchronize_device(Device device) {
  for (void* handle : live_handles(device)) wait_for(device, handle);
}

} // namespace ts
