#include "dispatch/launch_recording.h"
#include "runtime/recording_state.h"
#include <map>

namespace ts {
namespace {

// Where a device's calls are written down: a stream of its own, of which no thread knows, one recording at a time.
struct Desk {
  std::atomic<bool> taken{false};
  std::shared_ptr<Stream> stream;
  uint32_t epoch = 0; // of the device, when it was made
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

// While the card writes down what this thread gives it. What cannot be written down is refused where it is done.
class Writing final : public RecordingState {
public:
  Writing(Device d, std::shared_ptr<Stream> on, const StreamChoice& replayed_on, std::shared_ptr<RecordingPool> pool)
      : RecordingState(d), use_(std::move(pool), &replayed_on), before_(replayed_on) {
    by_launches = true;
    set_current_stream(on);
    thread_state().capture = this;
  }
  ~Writing() override {
    thread_state().capture = nullptr;
    set_stream_choice(before_);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  void note_draw(Generator&, uint64_t) override { refuse("random numbers"); }
  void kernel_recorded(Backend&, const ts_kernel&, Device, const ts_call&, int64_t) override {}
  void copy_recorded(Device, void*, int64_t, void*, int64_t, size_t) override {}

private:
  RecordingPool::Use use_;
  StreamChoice before_;
};

} // namespace

bool LaunchRecording::serves(Device device) {
  Backend& b = backend_of(device);
  return b.table().capture && b.has_streams() && b.allocator(device.index).keeps_blocks();
}

LaunchRecording::LaunchRecording(Device device)
    : device_(device), backend_(backend_of(device)), allocator_(backend_.allocator(device.index)),
      epoch_(backend_.epoch(device.index)) {}

LaunchRecording::~LaunchRecording() {
  destroy();
  allocator_.block_users().forget(blocks_);
}

LaunchRecording::Made LaunchRecording::make(Device device, std::span<void* const> blocks,
                                            const std::function<void()>& work) {
  Desk& desk = desk_of(device);
  const Taken taken(desk.taken);
  if (!taken.mine) return {Outcome::Busy, nullptr};
  std::shared_ptr<LaunchRecording> made(new LaunchRecording(device));
  const StreamChoice here = stream_choice(); // which is changed meanwhile
  try {
    if (!desk.stream || desk.epoch != made->epoch_) {
      desk.stream = Stream::make_apart(device);
      desk.epoch = made->epoch_;
    }
    if (!desk.stream) return {Outcome::Refused, nullptr};
    made->pool_ = RecordingPool::of_stream(device, made->backend_.stream(device.index));
    const Writing writing(device, desk.stream, here, made->pool_);
    if (!made->write(desk.stream->handle(), work)) return {Outcome::Refused, nullptr};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Interrupted) throw;
    return {Outcome::Refused, nullptr};
  }
  made->blocks_.assign(blocks.begin(), blocks.end());
  made->allocator_.block_users().add(blocks, made);
  return {Outcome::Made, std::move(made)};
}

bool LaunchRecording::write(void* stream, const std::function<void()>& work) {
  const ts_backend& t = backend_.table();
  backend_.check(t.capture->begin(t.ctx, device_.index, stream), "capture");
  void* recording = nullptr;
  auto end = [&] {
    const int status = t.capture->end(t.ctx, device_.index, stream, &recording);
    recording_.store(recording, std::memory_order_release);
    return status;
  };
  try {
    work();
  } catch (...) {
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
  pool_.reset();
}

} // namespace ts
