// The recorder of OpenCL work. Its functions are called by tesserack_kernelgen/command_buffers.py.
#include "opencl_recording.h"
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace ts::kernelgen {
namespace {

constexpr uint32_t kKernelName = 0x1190, kKernelProgram = 0x1194;
constexpr uint64_t kBufferFlags = 0x1293, kSimultaneousUse = 1;
constexpr int kInvalidValue = -30, kInvalidOperation = -59;

// Functions of OpenCL by their signatures in cl.h and cl_ext.h, as command_buffers.py fills them in.
struct Functions {
  void* (*create_kernel)(void* program, const char* name, int* code);
  int (*kernel_info)(void* kernel, uint32_t what, size_t size, void* value, size_t* needed);
  int (*set_argument)(void* kernel, uint32_t index, size_t size, const void* value);
  int (*release_kernel)(void* kernel);
  int (*wait)(uint32_t n_events, void* const* events);
  int (*release_event)(void* event);
  void* (*create)(uint32_t n_queues, void* const* queues, const uint64_t* properties, int* code);
  int (*finalize)(void* buffer);
  int (*release)(void* buffer);
  int (*enqueue)(uint32_t n_queues, void** queues, void* buffer, uint32_t n_events, void* const* events, void** event);
  int (*kernel)(void* buffer, void* queue, const uint64_t* properties, void* kernel, uint32_t dims,
                const size_t* offset, const size_t* global, const size_t* local, uint32_t n_points,
                const uint32_t* points, uint32_t* point, void** handle);
  void* copy;               // has two signatures
  int32_t copy_properties;  // it takes properties, as it does since 0.9.6
  int32_t simultaneous_use; // a replay need not wait for the one before
};
using Copy = int (*)(void* buffer, void* queue, void* src, void* dst, size_t src_offset, size_t dst_offset, size_t size,
                     uint32_t n_points, const uint32_t* points, uint32_t* point, void** handle);
using CopyWithProperties = int (*)(void* buffer, void* queue, const uint64_t* properties, void* src, void* dst,
                                   size_t src_offset, size_t dst_offset, size_t size, uint32_t n_points,
                                   const uint32_t* points, uint32_t* point, void** handle);

struct Recording {
  explicit Recording(const Functions& functions) : f(functions) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() {
    if (last) f.release_event(last);
    if (buffer) f.release(buffer); // which its driver keeps until it is done
  }
  int noted(int code) { // of a command
    if (code && !refused) refused = code;
    commands += code == 0;
    return code;
  }

  const Functions f;
  void* buffer = nullptr;
  int64_t commands = 0;
  int refused = 0; // the first code by which the driver refused a command
  std::mutex mutex;
  void* last = nullptr; // the event of the latest replay, where the next one waits for it
};

// The recordings under way, by queue.
struct Recorded {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<Recording>> by_queue;
};
Recorded& recorded() {
  static auto* r = new Recorded; // threads may outlive static destruction
  return *r;
}

Recording* recording_of(void* queue) {
  auto found = recorded().by_queue.find(queue);
  return found == recorded().by_queue.end() ? nullptr : found->second.get();
}

std::unique_ptr<Recording> take(void* queue) {
  std::lock_guard lock(recorded().mutex);
  auto node = recorded().by_queue.extract(queue);
  if (node.empty()) return nullptr;
  recorded_queues.fetch_sub(1);
  return std::move(node.mapped());
}

// A kernel of the command's own: PoCL 3.1 reads the arguments at every replay, of the kernel as it is then.
void* own_kernel(const Functions& f, void* kernel, int& code) {
  void* program = nullptr;
  size_t length = 0;
  if ((code = f.kernel_info(kernel, kKernelProgram, sizeof program, &program, nullptr))) return nullptr;
  if ((code = f.kernel_info(kernel, kKernelName, 0, nullptr, &length))) return nullptr;
  std::string name(length, '\0');
  if ((code = f.kernel_info(kernel, kKernelName, length, name.data(), nullptr))) return nullptr;
  void* made = f.create_kernel(program, name.c_str(), &code);
  return code ? nullptr : made;
}

const char* write(Recording& r, const ts_launch* l, void* kernel, const size_t* global, const size_t* local,
                  int& code) {
  const Functions& f = r.f;
  void* own = own_kernel(f, kernel, code);
  if (!own) return "clCreateKernel";
  const char* by = "clSetKernelArg";
  for (int32_t i = 0; !code && i < l->n_arguments; ++i) {
    const ts_launch_argument* a = TS_LAUNCH_ARGUMENT(l, i);
    code = f.set_argument(own, static_cast<uint32_t>(i), a->size, a->value);
  }
  if (!code) {
    by = "clCommandNDRangeKernelKHR";
    code = f.kernel(r.buffer, nullptr, nullptr, own, 3, nullptr, global, local, 0, nullptr, nullptr, nullptr);
  }
  f.release_kernel(own); // the buffer has its own hold on it
  return by;
}

} // namespace

int record_launch(const ts_launch* l, void* queue, void* kernel, const size_t* global, const size_t* local) {
  std::lock_guard lock(recorded().mutex);
  Recording* r = recording_of(queue);
  if (!r) return TS_DECLINED;
  int code = 0;
  const char* by = write(*r, l, kernel, global, local, code);
  return r->noted(code) ? refused(l, by, code) : TS_OK;
}

} // namespace ts::kernelgen

using namespace ts::kernelgen;

// What the queue is given from now on is written down. Statuses are OpenCL's; -59: it is recorded already.
TS_EXPORT int tesserack_opencl_record(const void* functions, size_t size, void* queue) {
  if (size != sizeof(Functions)) return kInvalidValue;
  auto made = std::make_unique<Recording>(*static_cast<const Functions*>(functions));
  const uint64_t properties[] = {kBufferFlags, made->f.simultaneous_use ? kSimultaneousUse : 0, 0};
  std::lock_guard lock(recorded().mutex);
  if (recording_of(queue)) return kInvalidOperation;
  int code = 0;
  made->buffer = made->f.create(1, &queue, made->f.simultaneous_use ? properties : nullptr, &code);
  if (code || !made->buffer) return code ? code : kInvalidValue;
  recorded().by_queue[queue] = std::move(made);
  recorded_queues.fetch_add(1);
  return 0;
}

// A copy, as part of what the queue is given. -59: the queue is not recorded.
TS_EXPORT int tesserack_opencl_record_copy(void* queue, void* src, void* dst, size_t src_offset, size_t dst_offset,
                                           size_t size) {
  std::lock_guard lock(recorded().mutex);
  Recording* r = recording_of(queue);
  if (!r) return kInvalidOperation;
  if (r->f.copy_properties)
    return r->noted(reinterpret_cast<CopyWithProperties>(r->f.copy)(r->buffer, nullptr, nullptr, src, dst, src_offset,
                                                                    dst_offset, size, 0, nullptr, nullptr, nullptr));
  return r->noted(reinterpret_cast<Copy>(r->f.copy)(r->buffer, nullptr, src, dst, src_offset, dst_offset, size, 0,
                                                    nullptr, nullptr, nullptr));
}

// Ends the writing, whatever it gives. `out`: the recording, unless the driver refused a part of it.
TS_EXPORT int tesserack_opencl_recorded(void* queue, void** out) {
  *out = nullptr;
  std::unique_ptr<Recording> made = take(queue);
  if (!made) return kInvalidOperation;
  int code = made->refused;
  if (!code && made->commands) code = made->f.finalize(made->buffer);
  if (!code) *out = made.release();
  return code;
}

TS_EXPORT int tesserack_opencl_replay(void* recording, void* queue) {
  auto* r = static_cast<Recording*>(recording);
  if (!r->commands) return 0;
  std::lock_guard lock(r->mutex);
  void* before = std::exchange(r->last, nullptr);
  int code = before && !r->f.simultaneous_use ? r->f.wait(1, &before) : 0;
  if (before) r->f.release_event(before);
  void** event = r->f.simultaneous_use ? nullptr : &r->last;
  if (!code) code = r->f.enqueue(1, &queue, r->buffer, 0, nullptr, event);
  if (!code) launches.fetch_add(1, std::memory_order_relaxed);
  return code;
}

TS_EXPORT void tesserack_opencl_release_recording(void* recording) { delete static_cast<Recording*>(recording); }

// The queue is gone with its context: what was written for it goes without a word to the driver.
TS_EXPORT void tesserack_opencl_forget_recorded(void* queue) {
  if (std::unique_ptr<Recording> gone = take(queue)) gone->buffer = nullptr;
}
