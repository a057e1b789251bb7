// Streams and events, and the stream each thread gives its work to. A backend without streams does everything in
// order, so its streams are all the default one and its events are reached when the device is idle.
#pragma once
#include "tensor/device.h"
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

namespace ts {

class Stream : public std::enable_shared_from_this<Stream> {
public:
  // RuntimeError from the backend when it cannot make one.
  static std::shared_ptr<Stream> make(Device device, int priority);
  static std::shared_ptr<Stream> default_of(Device device);
  // One that nobody else comes to know: no wait for the device waits for it. NULL where the backend has no streams.
  static std::shared_ptr<Stream> make_apart(Device device);
  // One that somebody else made and will destroy, after the last use of this.
  static std::shared_ptr<Stream> external(Device device, void* handle);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  void* handle() const { return handle_; } // NULL: the default stream
  void check_not_gone() const;             // DeviceLost error for one of before its device was recovered
  void synchronize() const;
  bool query() const; // whether everything given to it is done

private:
  Stream(Device device, void* handle, bool owned = true);
  Device device_;
  void* handle_;
  bool owned_;
  uint32_t epoch_; // of the device
};

class Event {
public:
  Event(Device device, bool timing);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Device device() const { return device_; }
  void record(const Stream& stream);  // RuntimeError for a stream of another device
  void record(void* stream);          // a handle of this device's
  void make_wait(void* stream) const; // one of this device's
  void wait_on(const Stream& stream) const;
  void* handle() const { return handle_; }
  bool query() const; // true before the first record, too
  void synchronize() const;
  double elapsed_ms(const Event& end) const; // RuntimeError unless both were recorded with timing

private:
  bool gone() const; // made before its device was recovered
  Device device_;
  bool timing_;
  uint32_t epoch_; // of the device
  std::atomic<bool> recorded_{false};
  void* handle_ = nullptr;                        // NULL where the backend has no events
  std::chrono::steady_clock::time_point reached_; // used instead
};

std::shared_ptr<Stream> current_stream(Device device);
void set_current_stream(const std::shared_ptr<Stream>& stream);
void* current_stream_handle(Device device);
// The streams other than default ones that a thread gives its work to, one per device; NULL: none.
using StreamChoice = std::shared_ptr<const std::vector<std::shared_ptr<Stream>>>;
const StreamChoice& stream_choice();
void set_stream_choice(StreamChoice choice);
// What is queued under `later` from now on begins when all that was queued under `earlier` so far is done.
void order_streams(const StreamChoice& later, const StreamChoice& earlier);
void* handle_in(const StreamChoice& choice, Device device);

// Of a device that was recovered: none of its streams is there any more.
void forget_streams(Device device);

// Waits for the default stream and every other stream of the device.
void synchronize_device(Device device);

} // namespace ts
