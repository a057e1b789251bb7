// The kernel call of a pointwise operator, written out for the fast path: nothing is cleared that is set anyway.
#pragma once
#include "dispatch/launch.h"
#include "ops/pointwise/expr.h"

namespace ts {

inline const KernelId kPointwise("pointwise");
constexpr int kMaxOperands = 16;

inline void fill_scalar(ts_tensor& d, Scalar s, DType compute) {
  d = ts_tensor{};
  d.struct_size = sizeof(ts_tensor);
  d.numel = 1;
  d.flags = TS_T_SCALAR;
  d.dtype = static_cast<int32_t>(compute);
  if (is_floating(compute))
    d.scalar.f = s.to_double();
  else
    d.scalar.i = s.is_float() ? static_cast<int64_t>(s.f) : s.i;
}

inline void fill_tensor(ts_tensor& d, const TensorImpl& t, const int64_t* sizes, const int64_t* strides, int ndim,
                        int64_t numel, bool contiguous) {
  d.struct_size = sizeof(ts_tensor);
  d.handle = t.storage ? t.storage->handle : nullptr;
  d.byte_offset = t.byte_offset;
  d.numel = numel;
  d.sizes = sizes;
  d.strides = strides;
  d.dtype = static_cast<int32_t>(t.dtype);
  d.ndim = ndim;
  d.flags = contiguous ? TS_T_CONTIGUOUS : 0;
  d.reserved = 0;
  d.scalar.i = 0;
}

inline bool is_misaligned(const Backend::Limits& limits, const ts_tensor* out, const ts_tensor* in, int n_in) {
  auto offset = static_cast<uint64_t>(out->byte_offset);
  for (int k = 0; k < n_in; ++k) offset |= static_cast<uint64_t>(in[k].byte_offset);
  return offset & limits.misaligned;
}

// TS_DECLINED also where there is no kernel that takes tensors like these.
inline int run_kernel(Device device, const pointwise::Program& p, DType compute, ts_tensor* out, ts_tensor* in,
                      int n_in, const CallShape& shape, int64_t work) {
  Backend& b = backend_of(device);
  const ts_kernel* kernel = b.kernel(kPointwise, device.index);
  if (!kernel || !takes(*kernel, shape)) return TS_DECLINED;
  const Backend::Limits& limits = b.limits(device.index);
  if (out->ndim > limits.max_ndim || (limits.misaligned && is_misaligned(limits, out, in, n_in)) ||
      limits.recovered.load(std::memory_order_relaxed)) [[unlikely]]
    return TS_DECLINED; // Launch brings them into form, or refuses what is gone
  ts_call call;         // call_kernel sets the rest
  call.op = kPointwise.name();
  call.opcode = 0;
  call.compute_dtype = static_cast<int32_t>(compute);
  call.n_outputs = 1;
  call.n_inputs = n_in;
  call.n_params = 0;
  call.outputs = out;
  call.inputs = in;
  call.params = nullptr;
  call.program = program_for(limits, &p.c, static_cast<int32_t>(compute));
  call.prologue = call.epilogue = nullptr;
  return call_kernel(b, *kernel, device, call, work);
}

} // namespace ts
