// Calls one kernel of a backend: `Launch(id, device).out(y).in(x).param(dim).run()`.
#pragma once
#include "dispatch/value.h"
#include "dispatch/watch.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"

namespace ts {

// What a call's tensors are, as a kernel's registration limits them.
struct CallShape {
  uint64_t dtypes = 0;  // a bit each
  uint64_t offsets = 0; // bits that are set in some tensor's offset in bytes
  int32_t ndim = 0;     // the most of any
  bool strided = false; // some tensor is not contiguous
};
inline bool takes(const ts_kernel& kernel, const CallShape& shape) {
  return !(shape.dtypes & ~kernel.dtypes) && (!shape.strided || kernel.layouts == TS_L_STRIDED);
}

// With a note of it for errors that arrive late; in checked mode, they arrive here.
int call_async_kernel(Backend& b, const ts_kernel& kernel, Device device, ts_call& call, int64_t work);

// The one place where kernels of backends are called; the caller has made sure that the kernel takes the call. Fills
// in what is the same for all. `work`, in elements, decides whether the interpreter is released. Profiler
// and recordings stand behind run_watched.
inline int call_kernel(Backend& b, const ts_kernel& kernel, Device device, ts_call& call, int64_t work) {
  CallMemory memory(b, device.index);
  call.struct_size = sizeof(ts_call);
  call.host = host_table();
  call.tensor_size = sizeof(ts_tensor);
  call.device_index = device.index;
  call.reserved = 0;
  call.number = 0;
  call.core = &memory;
  call.backend_ctx = b.table().ctx;
  call.kernel_ctx = kernel.ctx;
  call.stream = b.stream(device.index);
  call.flags = call_flags.load(std::memory_order_relaxed);
  if (kernel_watchers.load(std::memory_order_relaxed)) [[unlikely]]
    return run_watched(b, kernel, device, call, work);
  if (b.is_async(device.index)) [[unlikely]]
    return call_async_kernel(b, kernel, device, call, work);
  SuspendInterpreter suspend(work);
  return kernel.run(&call);
}

// A program in the instructions that the device has: the same one for equal programs. Of a higher layer, which sets it
// before the first call.
using LowerProgram = const ts_program* (*)(const ts_program& program, const uint64_t* instructions, int32_t compute);
extern LowerProgram lower_program;
inline const ts_program* program_for(const Backend::Limits& device, const ts_program* p, int32_t compute) {
  if (!p || !device.lowers) return p;
  for (int32_t k = 0; k < p->n_instructions; ++k)
    if (uint16_t op = p->instructions[k].op; !(device.instructions[op / 64] >> (op % 64) & 1))
      return lower_program(*p, device.instructions, compute);
  return p;
}

class Launch {
public:
  Launch(const KernelId& id, Device device);
  Launch& out(const Tensor& t);
  Launch& in(const Tensor& t); // undefined: an absent optional tensor
  // The same memory, of a defined tensor, seen in another geometry, which must outlive the run.
  Launch& out(const Tensor& t, IntSpan sizes, IntSpan strides);
  Launch& in(const Tensor& t, IntSpan sizes, IntSpan strides);
  Launch& in_mutable(const Tensor& t);                // written as well as read
  Launch& ins(TensorList list, bool mutated = false); // a list argument: tensors in inputs, a TENSORS value in params
  Launch& scalar(Scalar value, DType dtype);          // a 0-d operand without storage
  Launch& param(Value v);
  Launch& opcode(int code);
  Launch& compute(DType t);
  Launch& program(const ts_program* p);
  // Part of a reduction or product: run() is false where the kernel does not take it (TS_K_PROLOGUE, TS_K_EPILOGUE).
  Launch& prologue(const ts_program* p);
  Launch& epilogue(const ts_program* p);
  // Two parameters: whose random numbers, and which. In a recording by the card itself, which replays one call, an
  // input more tells both: run() is false for kernels that do not read it (TS_K_DEVICE_RANDOM).
  Launch& random(uint64_t seed, uint64_t offset);
  Launch& work(int64_t elements); // decides whether the interpreter is released; default: largest operand

  // False when the backend has no kernel for this case (missing, dtype not taken, declined): the caller decomposes.
  bool run();
  // Falls back to the cpu backend, visibly, when there is none; an error when that is impossible.
  void run_required();

private:
  void note(const TensorImpl& t, int32_t ndim, bool contiguous);
  void describe_tensor(ts_tensor& d, const Tensor& t, uint32_t flags);
  void describe_seen(ts_tensor& d, const Tensor& t, IntSpan sizes, IntSpan strides);
  Tensor input(size_t k) const; // as the kernel is to see it; undefined for numbers and absent tensors
  Tensor output(size_t k) const;
  void check_not_gone() const; // of a device that was recovered: all memory is of after that
  int invoke(Backend& backend, const ts_kernel& kernel, const Backend::Limits& device);
  bool by_element() const; // the kernel looks at one element of each operand at a time
  bool layouts_suit(const ts_kernel& kernel) const;
  bool run_contiguous(); // with contiguous copies of strided operands
  bool outputs_share_bytes() const;
  bool run_aligned(); // with copies of operands whose offsets the device does not take, as they lie
  bool run_slices();  // element by element along the outermost dim
  bool run_merged();  // on contiguous operands, with the dims on either side of the kernel's own merged
  void fall_back();   // on the cpu backend, with copies
  struct Copies {
    std::vector<Tensor> ins, outs;
    Dims flat; // the one size of pointwise operands
  };
  Launch on_copies(Device device, Copies& copies) const;
  bool mutable_input(size_t k) const { return inputs_[k].flags & TS_T_MUTABLE; }

  const KernelId& id_;
  Device device_;
  ts_call call_;
  SmallVector<ts_tensor, 8> inputs_, outputs_;
  SmallVector<TensorImpl*, 8> input_tensors_, output_tensors_;
  SmallVector<ts_value, 12> params_;
  CallShape shape_;
  int64_t work_ = 0;
  uint32_t needs_ = 0; // of a kernel's flags
};

// What runs on the cpu for want of a kernel, of a case as in "float32[2, 3]": counted, told of the first time, shown to
// the transfer guard, or refused, as set_fallback says.
void note_fallback(std::string_view name, const Backend& here, const std::string& case_text);
// Under set_fallback: 0 allow, 1 warn once per operator (default), 2 error. Counts by operator name.
void set_fallback_mode(int mode);
int fallback_mode();
std::vector<std::pair<std::string, int64_t>> fallback_counts();
void reset_fallback_counts();

} // namespace ts
