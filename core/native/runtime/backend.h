// Registered backends: their tables, devices, kernels and default streams.
#pragma once
#include "runtime/allocator.h"
#include "tensor/tensor.h"
#include "tesserack/abi.h"
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ts {

// A kernel name, interned once; backends cache their kernels by its index.
class KernelId {
public:
  explicit KernelId(const char* name);
  int index() const { return index_; }
  const char* name() const { return name_; }
  static bool known(const std::string& name); // interned already
  static constexpr int kChunk = 256, kMax = 256 * kChunk;

private:
  int index_;
  const char* name_;
};

class Backend {
public:
  Backend(int16_t id, const ts_backend* table, std::string source);
  int16_t id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::string& vendor() const { return vendor_; }
  const std::string& version() const { return version_; }
  const std::string& source() const { return source_; }
  const ts_backend& table() const { return table_; }
  bool has_streams() const { return table_.stream_create != nullptr; }
  // The address of a handle; NULL where the host cannot address it.
  void* host_pointer(int index, void* handle) const {
    return host_memory(index) && handle ? table_.host_pointer(table_.ctx, index, handle) : nullptr;
  }

  bool first_use() { return !used_.exchange(true); }
  int device_count(); // probes once; 0 with `reason()` when there is none
  const std::string& reason();
  ts_properties properties(int index);
  // Opens the device when it is first used. RuntimeError for an index that does not exist.
  DeviceAllocator& allocator(int index) {
    if (DeviceAllocator* known = opened(index)) [[likely]]
      return *known;
    return open(index);
  }
  DeviceAllocator* opened(int index) const { // NULL before
    bool exists =
        probed_.load(std::memory_order_acquire) && static_cast<unsigned>(index) < static_cast<unsigned>(device_count_);
    return exists ? devices_[static_cast<size_t>(index)].allocator.load(std::memory_order_acquire) : nullptr;
  }
  void check_index(int index); // RuntimeError for one that does not exist
  // What the device says of itself that never changes; of one that is open.
  struct Limits {
    uint64_t max_allocation = 0;        // 0: none
    uint64_t misaligned = 0;            // bits that are 0 in every byte offset a kernel is given
    int32_t max_ndim = INT32_MAX;       // of what a kernel is given
    bool lowers = false;                // programs are written with its instructions alone
    std::atomic<bool> recovered{false}; // memory of before it was lost may still be named
    uint64_t instructions[TS_INSTRUCTION_WORDS] = {};
  };
  const Limits& limits(int index) const { return devices_[static_cast<size_t>(index)].limits; }
  // Of the first device these are known from the probe on, of the others once they are open.
  bool host_memory(int index = 0) const { return index < device_count_ && devices_[static_cast<size_t>(index)].host; }
  // Work may be under way when a slot has returned.
  bool is_async(int index) const { return devices_[static_cast<size_t>(index)].async; }
  // A lost device is made usable again, without anything that was on it. RuntimeError where the backend cannot.
  void recover(int index);
  uint32_t epoch(int index) const { // times it was recovered
    return index < device_count_ ? devices_[static_cast<size_t>(index)].epoch.load(std::memory_order_relaxed) : 0;
  }
  bool probed() const { return probed_.load(std::memory_order_acquire); }
  // The kernel that was queued last, which an error that arrives late is told with.
  void note_launch(int index, const char* op) const {
    devices_[static_cast<size_t>(index)].last_launch.store(op, std::memory_order_relaxed);
  }
  void check_wait(int status, int index, const char* what) const; // of a slot that waits
  // NULL when the backend has no such kernel.
  const ts_kernel* kernel(const KernelId& id, int index) {
    auto at = static_cast<size_t>(id.index());
    const Chunk* chunk =
        devices_[static_cast<size_t>(index)].kernels[at / KernelId::kChunk].load(std::memory_order_acquire);
    const Entry* e = chunk ? (*chunk)[at % KernelId::kChunk].load(std::memory_order_acquire) : nullptr;
    if (!e) [[unlikely]]
      e = resolve(id, index);
    return e->present ? &e->kernel : nullptr;
  }
  // The calling thread's current stream; NULL is the default one.
  void* stream(int index) const { return thread_state().on_stream ? chosen_stream(index) : nullptr; }
  void check(int status, const char* what) const; // raises the error a callback returned
  void forget_kernel(const KernelId& id);         // asks the backend anew at the next call

private:
  void* chosen_stream(int index) const;
  struct Entry {
    bool present;
    ts_kernel kernel;
  };
  using Chunk = std::array<std::atomic<const Entry*>, KernelId::kChunk>;
  // What is known of one device.
  struct DeviceEntry {
    ~DeviceEntry();
    std::mutex opening;
    std::unique_ptr<DeviceAllocator> owned;
    std::atomic<DeviceAllocator*> allocator{nullptr};
    mutable std::atomic<const char*> last_launch{nullptr};
    Limits limits;
    std::atomic<uint32_t> epoch{0};
    std::vector<std::unique_ptr<DeviceAllocator>> abandoned; // whose memory is gone, but not the tensors
    bool host = false, async = false;
    std::array<std::atomic<Chunk*>, KernelId::kMax / KernelId::kChunk> kernels{}; // by index of the name
  };
  void check_claims(int index, const ts_properties& p); // RuntimeError where properties cannot be true
  void note_memory(DeviceEntry& d, const ts_properties& p) const;
  std::atomic<const Entry*>& kernel_slot(int index, const KernelId& id); // under the lock
  const Entry* resolve(const KernelId& id, int index);
  void probe();
  DeviceAllocator& open(int index);

  int16_t id_;
  ts_backend table_;
  std::string name_, vendor_, version_, source_, reason_;
  std::atomic<bool> probed_{false};
  std::atomic<bool> used_{false};
  int device_count_ = 0;
  std::mutex mutex_;
  std::unique_ptr<DeviceEntry[]> devices_;
  std::vector<std::unique_ptr<Entry>> owned_;
  std::atomic<uint64_t> forgotten_{0}; // times that a kernel was forgotten
};

// The scratch memory of one kernel call, which goes back when the kernel has returned.
struct CallMemory {
  CallMemory(Backend& b, int device_index) : backend(b), index(device_index) {}
  ~CallMemory() {
    if (given) [[unlikely]]
      release();
  }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;
  void* take(size_t bytes); // OutOfMemory as for tensors
  void release();
  // In checked mode bytes that are known lie behind scratch memory: TS_ERROR, with a message, where they are gone.
  int check(const char* op) const;

  struct Given {
    Storage* storage;
    size_t bytes;
    bool guarded;
  };
  Backend& backend;
  int index;
  std::unique_ptr<std::vector<Given>> given; // NULL: none so far
};

// Registers a table (copied; what it points to must outlive the process). Returns the backend.
// RuntimeError on another ABI major, a missing required slot, a taken name.
Backend& register_backend(const ts_backend* table, const std::string& source);
// Opens a shared library and registers what its entry point returns. RuntimeError with the cause.
Backend& load_backend(const std::string& path);
Backend* find_backend(const std::string& name); // registered ones only
Backend* load_by_name(const std::string& name); // registered or loaded now; NULL, or what the loader raises
// 0 stays empty: meta. One that is replaced is not freed: other threads may be using it.
extern constinit std::array<std::atomic<Backend*>, kMaxBackends> backend_slots;
[[noreturn, gnu::cold]] void fail_no_backend(Device device);
inline Backend& backend_of(Device device) {
  auto id = static_cast<size_t>(device.backend); // of devices without a backend: 0, or beyond
  Backend* b = id < kMaxBackends ? backend_slots[id].load(std::memory_order_acquire) : nullptr;
  if (!b) [[unlikely]]
    fail_no_backend(device);
  return *b;
}
// Whether the device has been recovered since: what the memory held is gone.
inline bool is_gone(const Storage& s) { return backend_of(s.device).epoch(s.device.index) != s.epoch; }
void check_not_gone(const Storage& s); // DeviceLost error
std::vector<Backend*> backends();

// Called with the name of a backend not registered yet: loads it or raises what to install.
void set_backend_loader(std::function<void(const std::string&)> loader);

// Called once per backend, when a device of it is first named.
void set_backend_ready_hook(void (*hook)(Backend&));

// "acme", "acme:1", "meta" -> device. RuntimeError on malformed text, unknown name or missing index.
Device parse_device(const std::string& text);
std::string to_string(Device device); // "acme:0"; "cpu" alone for single-device host backends, as PyTorch prints
void append_to(std::string& out, Device device); // as a part of a message

// Device of factories called without one.
Device default_device();
void set_default_device(Device device); // undefined: back to the declared default

// Message of the last failing callback of this thread.
void set_last_error(const char* message);
std::string take_last_error();
extern constinit ts_host host_functions;
inline const ts_host* host_table() { return &host_functions; }
void set_dispatch_table(const ts_dispatch* table); // of a higher layer, before the first library is opened

// Raises the error for a kernel or runtime status other than TS_OK.
[[noreturn]] void fail_status(int status, const std::string& backend, const char* what);

// In checked mode every kernel is waited for, so that its error is raised where it was called. Slow: for debugging.
extern std::atomic<bool> checked_mode;
bool checked_at_start(); // TESSERACK_CHECKED

void synchronize(Device device);
void copy_bytes_from_host(const Tensor& dst, const void* src, size_t bytes); // dst contiguous
// src contiguous. Reading values is a hidden wait for the device, which the transfer guard reports as `op`.
void copy_bytes_to_host(void* dst, const Tensor& src, size_t bytes, const char* op = "read");
// Between tensors of one device; contiguous, not overlapping.
void copy_bytes_within(const Tensor& dst, const Tensor& src, size_t bytes);
// Straight from one device to another, where dst's backend knows how to. False: go through the host.
bool copy_bytes_peer(const Tensor& dst, const Tensor& src, size_t bytes);
void move_bytes_to_host(void* dst, const Tensor& src, size_t bytes); // as part of a transfer reported already

} // namespace ts
