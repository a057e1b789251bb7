// A few kernel calls as the card wrote them down (ts_capture), to be launched at once on the same memory again.
#pragma once
#include "runtime/recording_pool.h"
#include "tensor/block_users.h"
#include <functional>

namespace ts {

class Backend;
class DeviceAllocator;

// Pieces of work in order, the streams of a recording that they go to, and whom they come behind.
struct Branches {
  static constexpr size_t kMost = 4; // streams
  struct Piece {
    uint8_t stream = 0;
    bool awaited = false;         // some are behind it
    std::vector<uint32_t> behind; // pieces of other streams; those of its own are before it anyway
  };
  std::vector<Piece> pieces;
  size_t streams = 1;
};

// It goes before any of its memory goes back to the device, and where memory is short. Kernels' scratch memory stays as
// long as it does.
class LaunchRecording final : public BlockUser {
public:
  // Whether calls on memory of this device can be recorded: the card can, and memory comes again at its addresses.
  static bool serves(Device device);
  static bool spans_streams(Device device); // side by side, too (TS_CAPTURE_STREAMS)

  enum class Outcome : uint8_t { Made, Busy, Refused };
  struct Made {
    Outcome outcome;
    std::shared_ptr<LaunchRecording> recording;
  };
  // Of what `work` gives the current stream for each piece, on lent blocks (DeviceAllocator::lent). It is not done by
  // that. Busy: another thread records just now. Refused: the card, or a kernel, did not want to; nothing was done.
  // What an interruption raises is raised.
  static Made make(Device device, std::span<void* const> blocks, const Branches& branches,
                   const std::function<void(size_t)>& work);

  ~LaunchRecording() override;
  LaunchRecording(const LaunchRecording&) = delete;
  LaunchRecording& operator=(const LaunchRecording&) = delete;

  // On the current stream, which must be that of `make`. False, with nothing done: it is gone, or another thread
  // replays it. The caller holds the memory.
  bool replay();
  bool is_gone() const;
  size_t streams() const { return pools_.size(); }
  void blocks_go() noexcept override { destroy(); }
  void memory_short() noexcept override;

private:
  explicit LaunchRecording(Device device);
  template <class Spread> bool write(void* stream, Spread& spread, const std::function<void(size_t)>& work);
  void destroy() noexcept;

  Device device_;
  Backend& backend_;
  DeviceAllocator& allocator_;
  uint32_t epoch_; // of the device
  std::vector<void*> blocks_;
  std::vector<std::shared_ptr<RecordingPool>> pools_; // by stream
  std::atomic<void*> recording_{nullptr};
  std::atomic<bool> replaying_{false};
};

} // namespace ts
