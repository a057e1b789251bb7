#include "dispatch/launch_recording.h"
#include "runtime/recording_state.h"
#include <algorithm>
#include <map>
#include <optional>

namespace ts {
namespace {

// Where a device's calls are written down: streams of its own, of which no thread knows, one recording at a time.
struct Desk {
  std::atomic<bool> taken{false};
  std::vector<std::shared_ptr<Stream>> streams; // it begins and ends on the first
  std::vector<std::unique_ptr<Event>> events;   // the first forks and joins, each other is reached by one piece
  uint32_t epoch = 0;                           // of the device, when they were made

  // Made before anything is written down. False: the device has none.
  bool prepare(Device device, uint32_t now, const Branches& branches) {
    if (epoch != now) {
      streams.clear();
      events.clear();
      epoch = now;
    }
    while (streams.size() < branches.streams) {
      std::shared_ptr<Stream> made = Stream::make_apart(device);
      if (!made) return false;
      streams.push_back(std::move(made));
    }
    if (branches.streams == 1) return true;
    const auto awaited = static_cast<size_t>(std::ranges::count_if(branches.pieces, &Branches::Piece::awaited));
    while (events.size() <= awaited) events.push_back(std::make_unique<Event>(device, false));
    return true;
  }
};

Desk& desk_of(Device device) {
  static auto* desks = new std::map<std::pair<int, int>, Desk>; // streams may not outlive their driver
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  return (*desks)[{device.backend, device.index}];
}

struct Taken {
  explicit Taken(std::atomic<bool>& flag) : flag_(flag), mine(!flag.exchange(true, std::memory_order_acquire)) {}
  ~Taken() {
    if (mine) flag_.store(false, std::memory_order_release);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

private:
  std::atomic<bool>& flag_;

public:
  const bool mine;
};

// While the card writes down what this thread gives it. What cannot be written down is refused where it is done. What
// is done side by side has scratch memory of its own, by stream.
class Writing final : public RecordingState {
public:
  using Pools = std::vector<std::shared_ptr<RecordingPool>>;
  Writing(Device d, const Desk& desk, const StreamChoice& replayed_on, const Pools& pools)
      : RecordingState(d), desk_(desk), pools_(pools), before_(replayed_on) {
    by_launches = true;
    go_to(0);
    thread_state().capture = this;
  }
  ~Writing() override {
    thread_state().capture = nullptr;
    set_stream_choice(before_);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  void go_to(size_t stream) {
    if (use_ && at_ == stream) return;
    use_.reset();
    set_current_stream(desk_.streams[stream]);
    use_.emplace(pools_[stream], &before_);
    at_ = stream;
  }
  void note_draw(Generator&, uint64_t) override { refuse("random numbers"); }
  void kernel_recorded(Backend&, const ts_kernel&, Device, const ts_call&, int64_t) override {}
  void copy_recorded(Device, void*, int64_t, void*, int64_t, size_t) override {}

private:
  const Desk& desk_;
  const Pools& pools_;
  const StreamChoice before_;
  std::optional<RecordingPool::Use> use_;
  size_t at_ = 0;
};

// Gives pieces to the streams of a recording, which fork from the first and join it again.
class Spread {
public:
  Spread(Desk& desk, Writing& writing, const Branches& branches)
      : desk_(desk), writing_(writing), branches_(branches) {}

  void run(const std::function<void(size_t)>& work) {
    if (branches_.streams > 1) desk_.events[0]->record(stream(0));
    std::vector<const Event*> reached(branches_.pieces.size());
    size_t events = 0;
    for (size_t k = 0; k < branches_.pieces.size(); ++k) {
      const Branches::Piece& piece = branches_.pieces[k];
      writing_.go_to(piece.stream);
      if (piece.behind.empty() && is_outside(piece.stream)) wait(piece.stream, *desk_.events[0]);
      for (uint32_t other : piece.behind) wait(piece.stream, *reached[other]);
      work(k);
      if (!piece.awaited) continue;
      Event& event = *desk_.events[++events];
      event.record(stream(piece.stream));
      reached[k] = &event;
    }
  }
  void join() {
    for (size_t s = 1; s < branches_.streams; ++s) {
      if (is_outside(s)) continue;
      desk_.events[0]->record(stream(s));
      desk_.events[0]->make_wait(stream(0));
      forked_ &= ~(1U << s);
    }
  }
  // After an error, which may have ended the writing; then `end` has the card let go of all streams.
  void join_if_possible() noexcept {
    while (forked_) {
      try {
        join();
      } catch (...) {
        forked_ &= forked_ - 1; // the one that could not
      }
    }
  }

private:
  void* stream(size_t s) const { return desk_.streams[s]->handle(); }
  bool is_outside(size_t s) const { return s && !(forked_ >> s & 1); }
  void wait(size_t s, const Event& event) {
    event.make_wait(stream(s));
    if (s) forked_ |= 1U << s;
  }

  Desk& desk_;
  Writing& writing_;
  const Branches& branches_;
  uint32_t forked_ = 0; // by stream, a bit
};

} // namespace

bool LaunchRecording::serves(Device device) {
  Backend& b = backend_of(device);
  return b.table().capture && b.has_streams() && b.allocator(device.index).keeps_blocks();
}

bool LaunchRecording::spans_streams(Device device) {
  const ts_capture* capture = backend_of(device).table().capture;
  constexpr size_t kEnd = offsetof(ts_capture, flags) + sizeof(ts_capture::flags);
  return serves(device) && capture->struct_size >= kEnd && (capture->flags & TS_CAPTURE_STREAMS);
}

LaunchRecording::LaunchRecording(Device device)
    : device_(device), backend_(backend_of(device)), allocator_(backend_.allocator(device.index)),
      epoch_(backend_.epoch(device.index)) {}

LaunchRecording::~LaunchRecording() {
  destroy();
  allocator_.block_users().forget(blocks_);
}

LaunchRecording::Made LaunchRecording::make(Device device, std::span<void* const> blocks, const Branches& branches,
                                            const std::function<void(size_t)>& work) {
  Desk& desk = desk_of(device);
  const Taken taken(desk.taken);
  if (!taken.mine) return {Outcome::Busy, nullptr};
  std::shared_ptr<LaunchRecording> made(new LaunchRecording(device));
  const StreamChoice here = stream_choice(); // which is changed meanwhile
  try {
    if (!desk.prepare(device, made->epoch_, branches)) return {Outcome::Refused, nullptr};
    for (size_t s = 0; s < branches.streams; ++s)
      made->pools_.push_back(RecordingPool::of_stream(device, made->backend_.stream(device.index), s));
    Writing writing(device, desk, here, made->pools_);
    Spread spread(desk, writing, branches);
    if (!made->write(desk.streams[0]->handle(), spread, work)) return {Outcome::Refused, nullptr};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Interrupted) throw;
    return {Outcome::Refused, nullptr};
  }
  made->blocks_.assign(blocks.begin(), blocks.end());
  made->allocator_.block_users().add(blocks, made);
  return {Outcome::Made, std::move(made)};
}

template <class Spread>
bool LaunchRecording::write(void* stream, Spread& spread, const std::function<void(size_t)>& work) {
  const ts_backend& t = backend_.table();
  backend_.check(t.capture->begin(t.ctx, device_.index, stream), "capture");
  void* recording = nullptr;
  auto end = [&] {
    const int status = t.capture->end(t.ctx, device_.index, stream, &recording);
    recording_.store(recording, std::memory_order_release);
    return status;
  };
  try {
    spread.run(work);
    spread.join();
  } catch (...) {
    spread.join_if_possible();
    end();
    take_last_error();
    throw;
  }
  backend_.check(end(), "capture");
  return recording != nullptr;
}

bool LaunchRecording::replay() {
  const Taken taken(replaying_);
  if (!taken.mine || is_gone()) return false;
  const ts_backend& t = backend_.table();
  void* recording = recording_.load(std::memory_order_acquire);
  const int status = t.capture->replay(t.ctx, device_.index, recording, backend_.stream(device_.index));
  backend_.check(status, "capture");
  return true;
}

// One that is replayed stays.
void LaunchRecording::memory_short() noexcept {
  const Taken taken(replaying_);
  if (taken.mine) destroy();
}

bool LaunchRecording::is_gone() const {
  return !recording_.load(std::memory_order_acquire) || epoch_ != backend_.epoch(device_.index);
}

void LaunchRecording::destroy() noexcept {
  void* recording = recording_.exchange(nullptr, std::memory_order_acq_rel);
  if (!recording) return;
  const ts_backend& t = backend_.table();
  if (epoch_ == backend_.epoch(device_.index)) t.capture->destroy(t.ctx, device_.index, recording);
  pools_.clear();
}

} // namespace ts
