// Recordings of a device's work, to be done again without what led to it: by the card (ts_capture), or else call by
// call, of deep copies. Random numbers are new in every replay; memory that was allocated meanwhile stays, and is used
// again within a recording of the card's own, whose streams keep the uses in order.
#pragma once
#include "dispatch/watch.h"
#include "runtime/recording_pool.h"
#include "runtime/recording_state.h"
#include <optional>

namespace ts {

class Recording final : public RecordingState {
public:
  // `pool`: number of the memory pool of a card's own recording, which others may share; 0: one of its own.
  explicit Recording(Device device, uint64_t pool = 0);
  ~Recording() override;
  // Between the two, this thread's work for the device, on its current stream, is recorded. RuntimeError where another
  // recording is under way in the thread. Once it has ended, the work has been done once; that of a card's own
  // recording has not where `run` is false.
  void begin();
  void end(bool run = true);
  void cancel() noexcept;                                               // after an error
  void replay();                                                        // on the thread's current stream
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); } // 0 of a card's own recording
  int64_t prepared() const { return prepared_; }                        // of these, by ts_kernel.prepare

  void kernel_recorded(Backend& b, const ts_kernel& kernel, Device on, const ts_call& call, int64_t work) override;
  void copy_recorded(Device on, void* dst, int64_t dst_offset, void* src, int64_t src_offset, size_t bytes) override;

private:
  struct Step;
  void leave() noexcept;
  void step_draws(Step& step);
  void renew_draws();
  void run(Step& step);

  Backend& backend_;
  std::shared_ptr<RecordingPool> pool_;
  std::optional<RecordingPool::Use> use_;
  void* stream_ = nullptr;
  void* recording_ = nullptr;
  uint32_t epoch_; // of the device
  bool recording_now_ = false, complete_ = false;
  std::vector<std::unique_ptr<Step>> steps_;
  int64_t prepared_ = 0;
};

} // namespace ts
