#include "ops/common/kernel_call.h"
#include "dispatch/boxing.h"
#include "dispatch/launch.h"
#include "ops/common/layout.h"
#include "ops/common/raw.h"
#include "runtime/computed_dtypes.h"
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace ts {
namespace {

const Tensor& tensor_at(const Frame& f, int arg) { return Unbox<const Tensor&>::get(f.args[arg]); }

// What the operands' dtypes refer to: the first result, or where there is none the first tensor.
const Tensor& reference(const KernelSpec& spec, const Frame& f) {
  if (spec.results) return f.rets[0].as_tensor();
  for (const KernelOperand& o : spec.operands) {
    const Value& v = f.args[o.arg];
    if (v.tag == Tag::Tensor) return v.as_tensor();
    if (v.tag == Tag::Tensors && v.len) return v.tensors[0];
  }
  static const Tensor none;
  return none;
}

DType dtype_of(const KernelOperand& o, const Tensor& t, DType result, Device device) {
  switch (o.as) {
  case AsDType::Own: return t.dtype();
  case AsDType::Result: return result;
  case AsDType::Accumulate: return accumulate_type(result, device);
  case AsDType::Parameter: return t.dtype() == accumulate_type(result, device) ? t.dtype() : result;
  case AsDType::Fixed: return o.dtype;
  }
  return t.dtype();
}

// A declared kernel's call: prepared operands live as long as it.
class DeclaredCall {
public:
  DeclaredCall(const Operator& op, Frame& f, Device device)
      : spec_(*op.kernel), f_(f), launch_(op.kernel->id, device), device_(device), required_(!op.decompose) {}

  // False where the call is none for the kernel.
  bool prepare(DType result) {
    result_ = result;
    if (spec_.leads) [[unlikely]]
      find_layout();
    for (int r = 0; r < spec_.results; ++r) launch_.out(Unbox<const Tensor&>::get(f_.rets[r]));
    for (const KernelOperand& o : spec_.operands)
      if (!(o.list ? add_list(o) : add(o))) return false;
    for (const KernelParameter& p : spec_.parameters)
      if (!add(p)) return false;
    if (spec_.work != Work::Largest) count_work();
    return true;
  }

  bool run() { return finish(launch_.run()); }
  void run_required() {
    launch_.run_required();
    finish(true);
  }

private:
  void find_layout() {
    for (uint64_t rest = spec_.leads; rest; rest &= rest - 1) {
      const Tensor& t = tensor_at(f_, std::countr_zero(rest));
      channels_last_ |= t.defined() && is_channels_last(t);
    }
  }

  bool lies_so(const KernelOperand& o, const Tensor& t) const {
    if (o.lie == Lie::Any) return true;
    return lies_in_layout(t, o.lie == Lie::Layout && channels_last_);
  }
  Tensor prepared(const KernelOperand& o, const Tensor& t, DType dtype) const {
    Tensor cast = raw_cast(t, dtype);
    return o.lie == Lie::Any ? cast : in_layout(cast, o.lie == Lie::Layout && channels_last_);
  }

  bool add(const KernelOperand& o) {
    const Tensor& t = tensor_at(f_, o.arg);
    if (!t.defined()) {
      launch_.in(t);
      return true;
    }
    if (!t.numel() && !o.empty) return false;
    const DType dtype = dtype_of(o, t, result_, device_);
    const bool written = o.written && (o.written_if < 0 || f_.args[o.written_if].i);
    if (t.dtype() == dtype && lies_so(o, t)) [[likely]] {
      written ? launch_.in_mutable(t) : launch_.in(t);
      return true;
    }
    if (o.only || !is_taken()) return false;
    Tensor& kept = keep(prepared(o, t, dtype), written ? t : Tensor());
    written ? launch_.in_mutable(kept) : launch_.in(kept);
    return true;
  }

  // Tensors without elements are left out.
  bool add_list(const KernelOperand& o) {
    TensorList given = Unbox<TensorList>::get(f_.args[o.arg]);
    bool ready = true;
    for (const Tensor& t : given) {
      const bool so = t.dtype() == dtype_of(o, t, result_, device_) && lies_so(o, t);
      if (o.only && !so && t.numel()) return false;
      ready &= so && t.numel() > 0;
    }
    if (ready) {
      launch_.ins(given, o.written);
      return true;
    }
    if (!is_taken()) return false;
    std::vector<Tensor>& list = lists_.emplace_back();
    for (const Tensor& t : given) {
      if (!t.numel()) continue;
      const DType dtype = dtype_of(o, t, result_, device_);
      const bool so = t.dtype() == dtype && lies_so(o, t);
      list.push_back(so ? t : keep(prepared(o, t, dtype), o.written ? t : Tensor()));
    }
    launch_.ins(list, o.written);
    return true;
  }

  bool add(const KernelParameter& p) {
    if (p.from == ParameterFrom::Number) {
      launch_.param(p.number);
      return true;
    }
    const Value* v = &f_.args[p.arg];
    if (p.other >= 0 && (v->is_none() || (v->tag == Tag::Ints && !v->len))) v = &f_.args[p.other];
    switch (p.from) {
    case ParameterFrom::Wrapped: {
      const int64_t ndim = (p.of == kFirstResult ? f_.rets[0].as_tensor() : tensor_at(f_, p.of)).ndim();
      if (!ndim) return false;
      launch_.param(v->i < 0 ? v->i + ndim : v->i);
      return true;
    }
    case ParameterFrom::EachDim: return add_repeated(*v, dims_of(f_.args[p.of]) - 2);
    case ParameterFrom::EachOf: return add_repeated(*v, p.number);
    default: launch_.param(*v); return true;
    }
  }

  // Whether copies are worth making: the backend has the kernel for results like these, or the cpu's will do.
  bool is_taken() const {
    if (required_) return true;
    const ts_kernel* kernel = backend_of(device_).kernel(spec_.id, device_.index);
    return kernel && (kernel->dtypes >> static_cast<int>(result_) & 1);
  }

  static int64_t dims_of(const Value& v) { return v.tag == Tag::Tensor ? v.as_tensor().ndim() : v.len; }

  bool add_repeated(const Value& v, int64_t count) {
    if (v.tag != Tag::Ints || v.len != 1 || count == 1) {
      launch_.param(v);
      return true;
    }
    if (repeated_ + count > static_cast<int64_t>(numbers_.size())) return false;
    int64_t* to = numbers_.data() + repeated_;
    repeated_ += count;
    std::fill_n(to, count, v.ints[0]);
    launch_.param(IntSpan(to, static_cast<size_t>(count)));
    return true;
  }

  void count_work() {
    int64_t work = INT64_MAX;
    if (spec_.work == Work::Product) {
      const int64_t n = tensor_at(f_, spec_.work_of).numel(),
                    times = tensor_at(f_, spec_.work_arg).size(spec_.work_dim);
      if (__builtin_mul_overflow(n, times, &work)) work = INT64_MAX;
    }
    launch_.work(work);
  }

  Tensor& keep(Tensor made, const Tensor& written) {
    if (made_.capacity() == made_.size()) made_.reserve(capacity());
    made_.push_back({std::move(made), written});
    return made_.back().tensor;
  }
  // Of all that may be kept: references to them last.
  size_t capacity() const {
    size_t n = 0;
    for (const KernelOperand& o : spec_.operands) n += o.list ? Unbox<TensorList>::get(f_.args[o.arg]).size() : 1;
    return n;
  }

  bool finish(bool ran) {
    if (ran)
      for (const Made& m : made_)
        if (m.written.defined()) raw_copy(m.written, m.tensor);
    return ran;
  }

  struct Made {
    Tensor tensor, written; // what it is to be copied back to
  };
  const KernelSpec& spec_;
  Frame& f_;
  Launch launch_;
  Device device_;
  bool required_;
  DType result_ = DType::Undefined;
  bool channels_last_ = false;
  std::vector<Made> made_;
  std::vector<std::vector<Tensor>> lists_;
  std::array<int64_t, 24> numbers_;
  int64_t repeated_ = 0;
};

// Sums of nothing.
void fill_zeros(const KernelSpec& spec, const Frame& f) {
  for (int r = 0; r < spec.results; ++r) raw_fill(f.rets[r].as_tensor(), 0);
}

} // namespace

void compute_by_kernel(const Operator& op, Frame& f) {
  const KernelSpec& spec = *op.kernel;
  const Tensor& first = reference(spec, f);
  if (!first.defined()) return; // lists of nothing
  const Device device = first.device();
  if (op.decompose && kernels_withheld.load(std::memory_order_relaxed)) [[unlikely]]
    return op.decompose(op, f);
  DeclaredCall call(op, f, device);
  if (!op.decompose) {
    return call.prepare(first.dtype()) ? call.run_required() : fill_zeros(spec, f);
  }
  if (!call.prepare(first.dtype()) || !call.run()) op.decompose(op, f);
}

// A tensor argument, or an undefined tensor for none.
static inline const Tensor& operand(const Frame& f, const KernelOperand& o) { return f.args[o.arg].as_tensor(); }

static inline bool is_ready(const KernelOperand& o, const Tensor& t, DType result, Device device) {
  if (!t.defined()) return true;
  return (o.as == AsDType::Own || t.dtype() == dtype_of(o, t, result, device)) &&
         (o.lie == Lie::Any || t.is_contiguous()) && (t.numel() || o.empty);
}

// With copies of operands that do not lie as they must.
[[gnu::noinline]] static void compute_prepared(const Operator& op, Frame& f) {
  const KernelSpec& spec = *op.kernel;
  const Tensor& first = f.rets[0].as_tensor();
  const ts_kernel* kernel = backend_of(first.device()).kernel(spec.id, first.device().index);
  if (!kernel || !(kernel->dtypes >> static_cast<int>(first.dtype()) & 1)) return op.decompose(op, f);
  std::array<Value, kPlainArguments> args;
  std::array<Tensor, kPlainArguments> held;
  std::copy_n(f.args, f.nargs, args.begin());
  for (const KernelOperand& o : spec.operands) {
    const Tensor& t = tensor_at(f, o.arg);
    if (is_ready(o, t, first.dtype(), first.device())) continue;
    if (o.only || (!t.numel() && !o.empty)) return op.decompose(op, f);
    Tensor& made = held[static_cast<size_t>(o.arg)];
    const DType dtype = dtype_of(o, t, first.dtype(), first.device());
    if (t.dtype() != dtype) made = raw_cast(t, dtype);
    if (const Tensor& cast = made.defined() ? made : t; o.lie != Lie::Any && !cast.is_contiguous())
      made = raw_contiguous(cast);
    args[static_cast<size_t>(o.arg)] = made;
  }
  Frame inner{args.data(), f.rets, f.nargs, f.nrets};
  compute_by_plain_kernel(op, inner);
}

void compute_by_plain_kernel(const Operator& op, Frame& f) {
  const KernelSpec& spec = *op.kernel;
  const Tensor& first = f.rets[0].as_tensor();
  if (!op.decompose || kernels_withheld.load(std::memory_order_relaxed)) [[unlikely]]
    return compute_by_kernel(op, f);
  for (const KernelOperand& o : spec.operands)
    if (!is_ready(o, operand(f, o), first.dtype(), first.device())) [[unlikely]]
      return compute_prepared(op, f);
  Launch launch(spec.id, first.device());
  for (int r = 0; r < spec.results; ++r) launch.out(f.rets[r].as_tensor());
  for (const KernelOperand& o : spec.operands) launch.in(operand(f, o));
  for (const KernelParameter& p : spec.parameters) {
    Value v = f.args[p.arg];
    if (p.from == ParameterFrom::Wrapped) {
      const int64_t ndim = (p.of == kFirstResult ? first : f.args[p.of].as_tensor()).ndim();
      if (!ndim) return op.decompose(op, f);
      if (v.i < 0) v.i += ndim;
    }
    launch.param(v);
  }
  if (!launch.run()) op.decompose(op, f);
}

void fill_from_parts(const Operator& op, Frame& f) {
  Results results;
  Frame inner{f.args, results.data(), f.nargs, f.nrets};
  op.parts(op, inner);
  for (int k = 0; k < f.nrets; ++k)
    if (Tensor made = results.take(k); made.defined()) raw_copy(f.rets[k].as_tensor(), made);
}

} // namespace ts
