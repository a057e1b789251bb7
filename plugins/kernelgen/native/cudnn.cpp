// The launcher of cuDNN's execution plans: graph and engine were chosen when the plan was made.
#include "launcher.h"
#include <cstring>
#include <memory>
#include <mutex>

namespace ts::kernelgen {
namespace {

// The functions of cuDNN that an execution needs, by their signatures in cudnn_graph.h.
using Create = int (*)(int type, void** descriptor);
using Destroy = int (*)(void* descriptor);
using SetAttribute = int (*)(void* descriptor, int name, int type, int64_t count, const void* elements);
using Finalize = int (*)(void* descriptor);
using Execute = int (*)(void* handle, void* plan, void* variant_pack);
using SetStream = int (*)(void* handle, void* stream);
using SetContext = int (*)(void* context);
constexpr int kVariantPack = 16;                                        // CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
constexpr int kUniqueIds = 1000, kDataPointers = 1001, kScratch = 1003; // CUDNN_ATTR_VARIANT_PACK_*
constexpr int kInt64 = 3, kVoidPointer = 6;                             // CUDNN_TYPE_*
constexpr int kMostTensors = 4;

// What the plan's maker fills in, by the same struct in tesserack_kernelgen/launcher.py.
struct Description {
  Create create;
  Destroy destroy;
  SetAttribute set_attribute;
  Finalize finalize;
  Execute execute;
  SetStream set_stream;
  SetContext set_context;
  void* context;
  void* handle;
  void* lock; // of the handle, which serves one thread at a time
  void* plan;
  int64_t workspace_bytes; // of the launch; the graph's own part stands first
  int64_t uids[kMostTensors];
  int64_t staged[kMostTensors]; // where in the workspace a tensor lies, or -1: it is an operand of the launch
  int32_t n_tensors, reserved;
};

struct Call {
  const Description& d;
  void* pack = nullptr;
  explicit Call(const Description& description) : d(description) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (pack) d.destroy(pack);
  }
};

// Arguments: memory of the tensors that are not staged, of the workspace where there is one; at last their offsets.
int launch(const ts_launch* l) {
  const auto& d = *static_cast<const Description*>(l->kernel);
  int memory = 0;
  for (int32_t k = 0; k < d.n_tensors; ++k) memory += d.staged[k] < 0;
  const int all = memory + (d.workspace_bytes > 0) + 1;
  if (l->n_arguments != all) return refused(l, "the launcher of cuDNN", all);
  const ts_launch_argument* offsets = TS_LAUNCH_ARGUMENT(l, all - 1);
  if (offsets->size != sizeof(int64_t) * static_cast<size_t>(memory))
    return refused(l, "the launcher of cuDNN", static_cast<int>(offsets->size));
  auto handle = [&](int k) {
    void* value;
    std::memcpy(&value, TS_LAUNCH_ARGUMENT(l, k)->value, sizeof value);
    return static_cast<unsigned char*>(value);
  };
  unsigned char* workspace = d.workspace_bytes > 0 ? handle(memory) : nullptr;
  void* pointers[kMostTensors];
  for (int32_t k = 0, next = 0; k < d.n_tensors; ++k) {
    if (d.staged[k] >= 0) {
      pointers[k] = workspace + d.staged[k];
      continue;
    }
    int64_t offset;
    std::memcpy(&offset, static_cast<const unsigned char*>(offsets->value) + sizeof offset * static_cast<size_t>(next),
                sizeof offset);
    pointers[k] = handle(next++) + offset;
  }
  if (d.context) {
    if (int code = d.set_context(d.context)) return refused(l, "cuCtxSetCurrent", code);
  }
  Call call(d);
  if (int code = d.create(kVariantPack, &call.pack)) return refused(l, "cudnnBackendCreateDescriptor", code);
  void* scratch = workspace;
  int code = d.set_attribute(call.pack, kDataPointers, kVoidPointer, d.n_tensors, pointers);
  if (!code) code = d.set_attribute(call.pack, kUniqueIds, kInt64, d.n_tensors, d.uids);
  if (!code) code = d.set_attribute(call.pack, kScratch, kVoidPointer, 1, &scratch);
  if (code) return refused(l, "cudnnBackendSetAttribute", code);
  if ((code = d.finalize(call.pack))) return refused(l, "cudnnBackendFinalize", code);
  std::lock_guard lock(*static_cast<std::mutex*>(d.lock));
  if ((code = d.set_stream(d.handle, l->stream))) return refused(l, "cudnnSetStream", code);
  if ((code = d.execute(d.handle, d.plan, call.pack))) return refused(l, "cudnnBackendExecute", code);
  launches.fetch_add(1, std::memory_order_relaxed);
  return TS_OK;
}

} // namespace
} // namespace ts::kernelgen

// The lock of a handle. Lives until the process ends.
TS_EXPORT void* tesserack_cudnn_lock() { return std::make_unique<std::mutex>().release(); }

// What a plan names as kernel, from a Description of this size; NULL where the two sides disagree about it. Lives until
// the process ends: captured graphs may hold the engine's kernels.
TS_EXPORT void* tesserack_cudnn_graph(const void* description, size_t bytes) {
  using namespace ts::kernelgen;
  if (bytes != sizeof(Description)) return nullptr;
  auto made = std::make_unique<Description>();
  std::memcpy(made.get(), description, bytes);
  return made.release();
}

TS_EXPORT int tesserack_cudnn_launch(const ts_launch* l) { return ts::kernelgen::launch(l); }
