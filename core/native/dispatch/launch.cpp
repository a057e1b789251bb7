#include "dispatch/launch.h"
#include "dispatch/describe.h"
#include "dispatch/tensor_descriptor.h"
#include "dispatch/watch.h"
#include "runtime/empty.h"
#include "runtime/recording_state.h"
#include "tensor/geometry.h"

namespace ts {

LowerProgram lower_program = nullptr;

Launch::Launch(const KernelId& id, Device device) : id_(id), device_(device) {
  call_.op = id.name(); // invoke and call_kernel set the rest
  call_.opcode = 0;
  call_.compute_dtype = -1;
  call_.program = call_.prologue = call_.epilogue = nullptr;
}

// Operators resolve what is pending before they launch: a body that made such a tensor and did not would compute with
// other values.
[[gnu::cold, gnu::noinline]] static void check_memory(const KernelId& id, const TensorImpl& t) {
  TS_CHECK(!(t.keys & key_bit(key::Python)) || t.storage || !t.numel || t.device.is_meta(), id.name(),
           ": expected memory, got a tensor of a class whose __torch_dispatch__ answers for it; unwrap it first");
  if (!(t.keys & pending_bits())) return;
  fail(ErrorKind::Runtime, id.name(), ": expected plain memory, got a tensor whose ",
       t.keys & key_bit(key::Conjugate) ? "conjugation" : "negation", " is pending; use resolve_conj(), resolve_neg()");
}

inline void Launch::note(const TensorImpl& t, int32_t ndim, bool contiguous) {
  TS_CHECK(t.device == device_, id_.name(),
           ": Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ",
           t.device);
  if (t.keys & (pending_bits() | key_bit(key::Python))) [[unlikely]]
    check_memory(id_, t);
  shape_.dtypes |= uint64_t{1} << static_cast<int>(t.dtype);
  shape_.offsets |= static_cast<uint64_t>(t.byte_offset);
  shape_.ndim = std::max(shape_.ndim, ndim);
  shape_.strided |= !contiguous;
  work_ = std::max(work_, t.numel);
}

inline void Launch::describe_tensor(ts_tensor& d, const Tensor& t, uint32_t flags) {
  d.flags = flags;
  if (!t.defined()) {
    d = ts_tensor{};
    d.struct_size = sizeof(ts_tensor);
    d.flags = flags | TS_T_NONE;
    return;
  }
  describe_impl(*t.impl(), d);
  note(*t.impl(), d.ndim, t.is_contiguous());
}

void Launch::describe_seen(ts_tensor& d, const Tensor& t, IntSpan sizes, IntSpan strides) {
  const bool contiguous = geometry_is_contiguous(sizes, strides);
  describe_memory(*t.impl(), d);
  d.sizes = sizes.data();
  d.strides = strides.data();
  d.ndim = static_cast<int32_t>(sizes.size());
  d.numel = 1;
  for (int64_t n : sizes) d.numel *= n;
  d.flags = contiguous ? TS_T_CONTIGUOUS : 0;
  note(*t.impl(), d.ndim, contiguous);
}

Launch& Launch::out(const Tensor& t, IntSpan sizes, IntSpan strides) {
  describe_seen(outputs_.grow(), t, sizes, strides);
  output_tensors_.push_back(t.impl());
  return *this;
}

Launch& Launch::in(const Tensor& t, IntSpan sizes, IntSpan strides) {
  describe_seen(inputs_.grow(), t, sizes, strides);
  input_tensors_.push_back(t.impl());
  return *this;
}

Launch& Launch::out(const Tensor& t) {
  describe_tensor(outputs_.grow(), t, 0);
  output_tensors_.push_back(t.impl());
  return *this;
}

Launch& Launch::in(const Tensor& t) {
  describe_tensor(inputs_.grow(), t, 0);
  input_tensors_.push_back(t.impl());
  return *this;
}

Launch& Launch::in_mutable(const Tensor& t) {
  describe_tensor(inputs_.grow(), t, TS_T_MUTABLE);
  input_tensors_.push_back(t.impl());
  return *this;
}

Launch& Launch::ins(TensorList list, bool mutated) {
  ts_value v{TS_V_TENSORS, static_cast<int32_t>(list.size()), {static_cast<int64_t>(inputs_.size())}};
  for (const Tensor& t : list) mutated ? in_mutable(t) : in(t);
  params_.push_back(v);
  return *this;
}

Launch& Launch::scalar(Scalar value, DType dtype) {
  ts_tensor& d = inputs_.grow();
  d = ts_tensor{};
  d.struct_size = sizeof(ts_tensor);
  d.numel = 1;
  d.dtype = static_cast<int32_t>(dtype);
  d.flags = TS_T_SCALAR | TS_T_CONTIGUOUS;
  if (is_floating(dtype) || value.is_complex())
    d.scalar.f = value.to_double();
  else
    d.scalar.i = value.is_float() ? static_cast<int64_t>(value.f) : value.i;
  input_tensors_.push_back(nullptr);
  return *this;
}

Launch& Launch::param(Value v) {
  params_.grow() = {static_cast<int32_t>(v.tag), v.len, {v.i}};
  return *this;
}
Launch& Launch::opcode(int code) {
  call_.opcode = code;
  return *this;
}
Launch& Launch::compute(DType t) {
  call_.compute_dtype = static_cast<int32_t>(t);
  return *this;
}
Launch& Launch::program(const ts_program* p) {
  call_.program = p;
  return *this;
}
Launch& Launch::prologue(const ts_program* p) {
  call_.prologue = p;
  needs_ |= TS_K_PROLOGUE;
  return *this;
}
Launch& Launch::epilogue(const ts_program* p) {
  call_.epilogue = p;
  needs_ |= TS_K_EPILOGUE;
  return *this;
}
Launch& Launch::random(uint64_t seed, uint64_t offset) {
  if (kernel_watchers.load(std::memory_order_relaxed) & kWatchTrace) [[unlikely]]
    draw_hook();
  RecordingState* recording = RecordingState::current();
  if (recording && recording->by_launches && recording->device == device_) [[unlikely]] {
    RecordingState::Draws* draws = recording->draws_at(seed, offset);
    if (!draws) recording->refuse("random numbers that were drawn before");
    int64_t two[] = {2};
    if (!draws->state.defined()) draws->state = empty_tensor(two, DType::UInt64, device_);
    in(draws->state);
    offset -= draws->begin;
    needs_ |= TS_K_DEVICE_RANDOM;
  }
  return param(static_cast<int64_t>(seed)).param(static_cast<int64_t>(offset));
}
Launch& Launch::work(int64_t elements) {
  work_ = elements;
  return *this;
}

int call_async_kernel(Backend& b, const ts_kernel& kernel, Device device, ts_call& call, int64_t work) {
  bool checked = checked_mode.load(std::memory_order_relaxed);
  b.note_launch(device.index, call.op);
  SuspendInterpreter suspend(checked ? INT64_MAX : work);
  int status = kernel.run(&call);
  if (status != TS_OK || !checked) return status;
  return b.table().synchronize(b.table().ctx, device.index, call.stream);
}

int Launch::invoke(Backend& b, const ts_kernel& kernel, const Backend::Limits& device) {
  call_.inputs = inputs_.data();
  call_.outputs = outputs_.data();
  call_.params = params_.data();
  call_.n_inputs = static_cast<int32_t>(inputs_.size());
  call_.n_outputs = static_cast<int32_t>(outputs_.size());
  call_.n_params = static_cast<int32_t>(params_.size());
  if (device.recovered.load(std::memory_order_relaxed)) [[unlikely]]
    check_not_gone();
  if (!device.lowers) [[likely]]
    return call_kernel(b, kernel, device_, call_, work_);
  const ts_program* given[] = {call_.program, call_.prologue, call_.epilogue};
  call_.program = program_for(device, given[0], call_.compute_dtype);
  call_.prologue = program_for(device, given[1], call_.compute_dtype);
  call_.epilogue = program_for(device, given[2], call_.compute_dtype);
  int status = call_kernel(b, kernel, device_, call_, work_);
  call_.program = given[0];
  call_.prologue = given[1];
  call_.epilogue = given[2];
  return status;
}

void Launch::check_not_gone() const {
  for (const auto* tensors : {&input_tensors_, &output_tensors_})
    for (const TensorImpl* t : *tensors)
      if (t && t->storage) ts::check_not_gone(*t->storage);
}

bool Launch::run() {
  if (device_.is_meta()) return true; // shapes only
  Backend& b = backend_of(device_);
  const ts_kernel* kernel = b.kernel(id_, device_.index);
  if (!kernel || (shape_.dtypes & ~kernel->dtypes) || (needs_ & ~kernel->flags)) return false;
  const Backend::Limits& device = b.limits(device_.index);
  if (!takes(*kernel, shape_) && !layouts_suit(*kernel)) return run_contiguous();
  if (shape_.ndim > device.max_ndim) return by_element() ? run_slices() : run_merged();
  if (shape_.offsets & device.misaligned) return run_aligned();
  int status = invoke(b, *kernel, device);
  if (status == TS_DECLINED) return false;
  b.check(status, id_.name());
  return true;
}

void Launch::run_required() {
  if (run()) return;
  TS_CHECK(!(needs_ & TS_K_DEVICE_RANDOM), "record: backend '", backend_of(device_).name(),
           "' cannot record random numbers that differ from replay to replay: its ", id_.name(),
           " does not declare TS_K_DEVICE_RANDOM");
  fall_back();
}

} // namespace ts
