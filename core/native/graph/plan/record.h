// One run of a graph, watched: which kernels each node ran, on which memory, and what its results were.
//
// Memory is known by numbers, `buffers`: that of the tensors given (those that share one have one), and what was
// allocated on the way. So a call that was seen is a call that can be made again on other memory.
#pragma once
#include "graph/graph.h"
#include "runtime/call_copy.h"
#include "runtime/recording_state.h"
#include <memory>
#include <unordered_map>

namespace ts::graph {

struct Place { // of an operand of a call
  Id buffer = kNone;
  int64_t offset = 0; // in bytes; in given memory from where the tensor given begins
  friend bool operator==(const Place&, const Place&) = default;
};

struct Buffer {
  size_t nbytes = 0;
  Id node = kNone;     // that allocated it
  Id external = kNone; // of given memory: which of the inputs, then captures, is the first in it
};

struct FreeCall {
  void operator()(ts_call* call) const { free_call(call); }
};

// A kernel's call, or a copy within a device.
struct Work {
  Id node = kNone;
  std::unique_ptr<ts_call, FreeCall> call; // NULL: a copy
  ts_kernel kernel{};
  int64_t work = 0;
  size_t bytes = 0;            // of a copy
  std::vector<Place> places;   // outputs, then inputs; of a copy: to, from
  std::shared_ptr<void> owned; // what the call refers to besides
  bool is_part = false;        // of the card's compiler: places say which buffers it uses, not which bytes of them

  int32_t n_outputs() const { return call ? call->n_outputs : 1; }
  bool reads(size_t k) const { return k >= static_cast<size_t>(n_outputs()); }
  bool writes(size_t k) const {
    return !reads(k) || (call && (TS_IN(call.get(), k - static_cast<size_t>(call->n_outputs))->flags & TS_T_MUTABLE));
  }
  const ts_tensor& tensor(size_t k) const { // of a kernel
    return reads(k) ? *TS_IN(call.get(), k - static_cast<size_t>(call->n_outputs)) : *TS_OUT(call.get(), k);
  }
};

// A tensor that a node gave.
struct Seen {
  bool defined = false;
  bool plain = false;     // nothing but new memory with a geometry
  bool row_major = false; // with the strides of a new tensor: a dim of one may have others and be contiguous
  Id same_as = kNone;     // the argument that was given back
  Id base = kNone;        // the value that it is a view of
  Id buffer = kNone;
  int64_t offset = 0;
  DType dtype = DType::Undefined;
  Dims sizes, strides;
  KeySet keys = 0;
  uint8_t flags = 0;
};

class Recorder final : public RecordingState {
public:
  // From here on this thread is watched. `given`: inputs, then captures.
  Recorder(const Graph& g, Device device, std::vector<const TensorImpl*> given);
  ~Recorder() override;
  void begin(Id node);
  void end(std::span<const Tensor> values); // of all values, by number
  void leave() noexcept;
  std::vector<Id> sharing() const; // by given tensor: the first in the same memory

  void keep(Storage* s) override;
  void note_draw(Generator&, uint64_t) override { opaque_now_ = true; }
  void kernel_recorded(Backend& b, const ts_kernel& kernel, Device on, const ts_call& call, int64_t work) override;
  void copy_recorded(Device on, void* dst, int64_t dst_offset, void* src, int64_t src_offset, size_t bytes) override;
  void host_meets(Device, const char*) override { opaque_now_ = varies_now_ = true; }
  void depends_on_more() override { opaque_now_ = varies_now_ = true; }

  std::vector<Buffer> buffers;
  std::vector<Work> work;   // in order
  std::vector<Seen> seen;   // by value
  std::vector<bool> opaque; // by node: calling it anew is the only way
  std::vector<bool> varies; // by node: its results may be of other sizes, where values are others
  std::vector<std::vector<std::pair<Id, uint32_t>>> bumps; // by node: versions of given tensors that it counts up

private:
  bool place(void* handle, int64_t offset, Place& out) const;
  void see(Id v, std::span<const Tensor> values);
  bool note_geometry(Seen& s, const TensorImpl& t) const; // whether its memory is known
  Id value_of(const TensorImpl* t, std::span<const Tensor> values) const;
  bool moves_arguments(const Node& n, std::span<const Tensor> values) const;
  bool has_ruled_sizes(const Operator* op) const;
  void count_versions();

  const Graph& g_;
  std::vector<const TensorImpl*> given_;
  std::vector<uint32_t> versions_;
  std::vector<int64_t> origins_; // where given tensors began in their memory
  std::vector<void*> storages_;  // of given tensors; to be compared alone
  std::unordered_map<void*, Id> handles_;
  std::unordered_map<const TensorImpl*, Id> values_; // of live tensors; checked before it is believed
  Id node_ = kNone;
  bool opaque_now_ = false, varies_now_ = false, on_ = false;
};

} // namespace ts::graph
