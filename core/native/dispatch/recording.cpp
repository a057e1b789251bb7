#include "dispatch/recording.h"
#include "dispatch/kernel_signatures.h"
#include "dispatch/launch.h"
#include "dispatch/prepared_call.h"
#include "runtime/call_copy.h"
#include "runtime/empty.h"

namespace ts {
struct Recording::Step {
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() { free_call(call); }
  ts_call* call = nullptr; // NULL: a copy
  ts_kernel kernel{};
  std::unique_ptr<PreparedCall> prepared;
  int64_t work = 0;
  int key = -1;   // which parameter is the key of its random numbers
  int draws = -1; // index in Recording::draws of the random numbers it makes, at `position` from their begin
  uint64_t position = 0;
  void *dst = nullptr, *src = nullptr; // of a copy
  int64_t dst_offset = 0, src_offset = 0;
  size_t bytes = 0;
};

Recording::Recording(Device d, uint64_t pool) : RecordingState(d), backend_(backend_of(d)) {
  backend_.allocator(d.index);
  epoch_ = backend_.epoch(d.index);
  by_launches = backend_.table().capture != nullptr;
  if (by_launches) pool_ = RecordingPool::of(d, pool);
}

Recording::~Recording() {
  cancel();
  const ts_backend& t = backend_.table();
  if (recording_ && epoch_ == backend_.epoch(device.index)) t.capture->destroy(t.ctx, device.index, recording_);
}

void Recording::begin() {
  TS_CHECK(!RecordingState::current(), "record: this thread is recording already");
  TS_CHECK(!complete_ && !recording_now_, "record: a recording is made once");
  stream_ = backend_.stream(device.index);
  const ts_backend& t = backend_.table();
  if (by_launches) backend_.check(t.capture->begin(t.ctx, device.index, stream_), "capture");
  recording_now_ = true;
  if (pool_) use_.emplace(pool_);
  enter_recording(*this);
}

void Recording::leave() noexcept {
  use_.reset();
  leave_recording();
  recording_now_ = false;
}

void Recording::end(bool run) {
  TS_CHECK(recording_now_ && RecordingState::current() == this, "record: this thread is not recording");
  leave();
  const ts_backend& t = backend_.table();
  if (by_launches) {
    backend_.check(t.capture->end(t.ctx, device.index, stream_, &recording_), "capture");
    TS_CHECK(recording_, "record: backend '", backend_.name(), "' gave no recording");
  }
  complete_ = true;
  for (Draws& d : draws)
    TS_CHECK(d.end >= d.begin, "record: a generator was seeded while its numbers were recorded; seed it before");
  if (!by_launches || !run) return;
  // What the card wrote down has not been done yet: with the numbers that were drawn meanwhile.
  for (Draws& d : draws) {
    uint64_t now[2] = {d.generator->seed, d.begin};
    if (d.state.defined()) copy_bytes_from_host(d.state, now, sizeof now);
  }
  backend_.check(t.capture->replay(t.ctx, device.index, recording_, stream_), "capture");
}

void Recording::cancel() noexcept {
  if (!recording_now_) return;
  leave();
  const ts_backend& t = backend_.table();
  if (by_launches) t.capture->end(t.ctx, device.index, stream_, &recording_);
}

void Recording::step_draws(Step& step) {
  const KernelSignature* known = kernel_signature(step.call->op);
  step.key = known ? known->seed : -1;
  if (step.key < 0 || step.call->n_params < step.key + 2) return;
  auto position = static_cast<uint64_t>(step.call->params[step.key + 1].as.i);
  Draws* at = draws_at(static_cast<uint64_t>(step.call->params[step.key].as.i), position);
  if (!at) return; // numbers of an earlier draw, made again
  step.draws = static_cast<int>(at - draws.data());
  step.position = position - at->begin;
}

void Recording::kernel_recorded(Backend& b, const ts_kernel& kernel, Device on, const ts_call& call, int64_t work) {
  if (by_launches || !(on == device)) return;
  auto step = std::make_unique<Step>();
  step->call = copy_call(call);
  if (!step->call) throw std::bad_alloc();
  step->call->op = call.op; // which lives as long as the process, where a profile may name it
  step->kernel = kernel;
  step->work = work;
  step_draws(*step);
  if (step->draws < 0) step->prepared = PreparedCall::make(b, kernel, *step->call);
  prepared_ += step->prepared != nullptr;
  steps_.push_back(std::move(step));
}

void Recording::copy_recorded(Device on, void* dst, int64_t dst_offset, void* src, int64_t src_offset, size_t bytes) {
  if (by_launches || !(on == device)) return;
  auto step = std::make_unique<Step>();
  step->dst = dst;
  step->src = src;
  step->dst_offset = dst_offset;
  step->src_offset = src_offset;
  step->bytes = bytes;
  steps_.push_back(std::move(step));
}

// Numbers that no run before has had.
void Recording::renew_draws() {
  for (Draws& d : draws) {
    uint64_t now[2] = {d.generator->seed, d.generator->advance(d.end - d.begin)};
    if (d.state.defined()) copy_bytes_from_host(d.state, now, sizeof now);
    for (auto& step : steps_) {
      if (step->draws != &d - draws.data()) continue;
      auto* params = const_cast<ts_value*>(step->call->params);
      params[step->key].as.i = static_cast<int64_t>(now[0]);
      params[step->key + 1].as.i = static_cast<int64_t>(now[1] + step->position);
    }
  }
}

void Recording::run(Step& step) {
  const ts_backend& t = backend_.table();
  if (!step.call)
    return backend_.check(t.copy_within(t.ctx, device.index, step.dst, step.dst_offset, step.src, step.src_offset,
                                        step.bytes, backend_.stream(device.index)),
                          "copy_within");
  const ts_kernel kernel = step.prepared ? step.prepared->kernel() : step.kernel;
  backend_.check(call_kernel(backend_, kernel, device, *step.call, step.work), step.call->op);
}

void Recording::replay() {
  if (epoch_ != backend_.epoch(device.index))
    fail(ErrorKind::DeviceLost, "replay: expected a recording made since ", device, " was recovered; record again");
  TS_CHECK(complete_, "record: expected a recording that has ended");
  TS_CHECK(!RecordingState::current(), "record: a recording is not replayed within another");
  renew_draws();
  if (!by_launches) {
    for (auto& step : steps_) run(*step);
    return;
  }
  const ts_backend& t = backend_.table();
  backend_.check(t.capture->replay(t.ctx, device.index, recording_, backend_.stream(device.index)), "capture");
}

} // namespace ts
