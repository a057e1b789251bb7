// Running a pointwise operator: result dtype and shape, allocation, merging of dimensions, the kernel call.
#include "dispatch/describe.h"
#include "dispatch/launch.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/promotion.h"
#include "ops/pointwise/info.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include "tensor/inline_array.h"
#include <algorithm>
#include <string_view>

namespace ts {
namespace {

const KernelId kPointwise("pointwise");
constexpr int kMaxOperands = 16, kUsualOperands = 4; // room for more costs every call

struct Operand {
  const TensorImpl* tensor = nullptr; // NULL: a number
  Scalar number;
};

bool equal_number(const Value& a, const Value& b) {
  return a.tag != Tag::Complex && b.tag != Tag::Complex && a.is_number() && b.is_number() &&
         a.as_double() == b.as_double();
}

const pointwise::Program& choose(const PointwiseInfo& info, const Operator& functional, const Frame& f) {
  if (!info.default_program) return *info.program;
  for (int k : info.scalar_args)
    if (!equal_number(f.args[k], functional.schema->args[static_cast<size_t>(k)].default_value)) return *info.program;
  return *info.default_program;
}

void fill_scalar(ts_tensor& d, Scalar s, DType compute) {
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

void fill_tensor(ts_tensor& d, const TensorImpl& t, const int64_t* sizes, const int64_t* strides, int ndim,
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

// Result dtype when all tensors share `dtype` and numbers do not raise it; Undefined otherwise.
DType fast_result(const PointwiseInfo& info, DType dtype) {
  switch (info.promote) {
  case Promote::Arith:
  case Promote::Number: return is_bool(dtype) ? DType::Undefined : dtype;
  case Promote::Float: return is_floating(dtype) ? dtype : DType::Undefined;
  case Promote::Compare: return DType::Bool;
  case Promote::Keep: return dtype;
  default: return DType::Undefined;
  }
}

bool is_misaligned(const Backend::Limits& limits, const ts_tensor* out, const ts_tensor* in, int n_in) {
  auto offset = static_cast<uint64_t>(out->byte_offset);
  for (int k = 0; k < n_in; ++k) offset |= static_cast<uint64_t>(in[k].byte_offset);
  return offset & limits.misaligned;
}

// TS_DECLINED also where there is no kernel that takes tensors like these.
int run_kernel(Device device, const pointwise::Program& p, DType compute, ts_tensor* out, ts_tensor* in, int n_in,
               const CallShape& shape, int64_t work) {
  Backend& b = backend_of(device);
  const ts_kernel* kernel = b.kernel(kPointwise, device.index);
  if (!kernel || !takes(*kernel, shape)) return TS_DECLINED;
  const Backend::Limits& limits = b.limits(device.index);
  if (out->ndim > limits.max_ndim || (limits.misaligned && is_misaligned(limits, out, in, n_in))) [[unlikely]]
    return TS_DECLINED;
  ts_call call{};
  call.struct_size = sizeof call;
  call.host = host_table();
  call.op = kPointwise.name();
  call.device_index = device.index;
  call.compute_dtype = static_cast<int32_t>(compute);
  call.n_outputs = 1;
  call.n_inputs = n_in;
  call.tensor_size = sizeof(ts_tensor);
  call.outputs = out;
  call.inputs = in;
  call.program = program_for(limits, &p.c, call.compute_dtype);
  return call_kernel(b, *kernel, device, call, work);
}

void add_to(CallShape& shape, const ts_tensor& t) {
  if (t.flags & TS_T_SCALAR) return;
  shape.dtypes |= uint64_t{1} << t.dtype;
  shape.strided |= !(t.flags & TS_T_CONTIGUOUS);
}

// One element stands for all, as in the gradient of a sum.
bool is_uniform(const TensorImpl& t) {
  for (size_t d = 0; d < t.ndim; ++d)
    if (t.strides()[d] != 0 && t.sizes()[d] != 1) return false;
  return true;
}

// Same shape and dtype, each contiguous or uniform, one device: no broadcasting, no merging.
bool run_fast(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, Frame& f) {
  const TensorImpl* first = nullptr;
  bool float_number = false, any_number = false;
  for (int a : p.inputs) {
    const Value& v = f.args[a];
    if (v.tag == Tag::Tensor) {
      const TensorImpl* t = v.tensor;
      if (!t->has(TensorImpl::kContiguous) && !is_uniform(*t)) return false;
      if (!first)
        first = t;
      else if (t->dtype != first->dtype || !(t->device == first->device) || t->has(TensorImpl::kNumber) ||
               !same(t->sizes(), first->sizes()))
        return false;
    } else {
      any_number = true;
      float_number |= v.tag == Tag::Float;
      if (!v.is_number() || v.tag == Tag::Complex) return false;
    }
  }
  if (!first || first->numel == 0 || first->device.is_meta() || is_complex(first->dtype)) return false;
  if (any_number && !is_floating(first->dtype) && (float_number || is_bool(first->dtype))) return false;
  if (is_integral(first->dtype, true) && (info.no_integer || info.no_bool || info.boolean_arg >= 0)) return false;
  DType result = fast_result(info, first->dtype);
  if (result == DType::Undefined) return false;
  Tensor out;
  if (op.variant == Variant::Functional) {
    out = empty_tensor(first->sizes(), result, first->device);
  } else {
    const TensorImpl* target = f.args[op.variant == Variant::Inplace ? 0 : f.nargs - 1].tensor;
    if (target->dtype != result || !target->has(TensorImpl::kContiguous) || !same(target->sizes(), first->sizes()) ||
        op.variant == Variant::Out || target->has(TensorImpl::kConstantData) ||
        (target->has(TensorImpl::kInference) && !thread_state().inference))
      return false;
    for (int a : p.inputs) // identical or disjoint storage only
      if (const Value& v = f.args[a];
          v.tag == Tag::Tensor && v.tensor != target && v.tensor->storage == target->storage)
        return false;
    out = Tensor::share(const_cast<TensorImpl*>(target));
  }
  DType compute = compute_type(first->dtype);
  int64_t n = first->numel, one = 1, zero = 0;
  ts_tensor in[kMaxOperands], od;
  int n_in = 0;
  CallShape shape{uint64_t{1} << static_cast<int>(first->dtype) | uint64_t{1} << static_cast<int>(result)};
  for (int a : p.inputs) {
    const Value& v = f.args[a];
    if (v.tag == Tag::Tensor) {
      bool contiguous = v.tensor->has(TensorImpl::kContiguous);
      shape.strided |= !contiguous;
      fill_tensor(in[n_in++], *v.tensor, &n, contiguous ? &one : &zero, 1, n, contiguous);
    } else
      fill_scalar(in[n_in++], v.as_scalar(), compute);
  }
  fill_tensor(od, *out.impl(), &n, &one, 1, n, true);
  int status = run_kernel(first->device, p, compute, &od, in, n_in, shape, n);
  if (status != TS_OK) [[unlikely]] {
    if (status == TS_DECLINED) return false; // the general path falls back
    backend_of(first->device).check(status, op.name().c_str());
  }
  f.give(0, std::move(out));
  return true;
}

// Operands at the common shape, ready to be merged.
struct Plan {
  SmallVector<Operand, kUsualOperands> operands;
  std::vector<Tensor> copies; // of operands that writing the result would change
  Dims sizes;
  Device device;
  DType common = DType::Undefined, result = DType::Undefined, compute = DType::Undefined;
};

// A single value written into a tensor that keeps its dtype has to fit it, as in fill_.
void fit_written_value(const Operator& op, const TensorImpl* target, int arg, Operand& o) {
  const Argument& a = op.schema->args[static_cast<size_t>(arg)];
  if (!target || a.type.kind == TypeKind::Scalar || is_complex(target->dtype)) return;
  if (o.tensor) {
    auto number = o.tensor->dtype == target->dtype ? std::nullopt : host_number(*o.tensor);
    if (!number) return;
    o = {nullptr, *number};
  }
  o.number = convert_scalar(o.number, target->dtype, op.name().c_str());
}

void choose_dtypes(const Operator& op, const PointwiseInfo& info, const ResultType& types, const TensorImpl* first,
                   Plan& plan) {
  DType t = types.get();
  if (t == DType::Undefined) t = default_dtype();
  plan.common = t;
  switch (info.promote) {
  case Promote::Arith: plan.result = t; break;
  case Promote::Number: plan.common = plan.result = is_bool(t) ? DType::Int64 : t; break;
  case Promote::Float: plan.common = plan.result = to_floating(t); break;
  case Promote::Compare: plan.result = DType::Bool; break;
  case Promote::Integer:
    TS_CHECK_KIND(ErrorKind::NotImplemented, is_integral(t, true), op.name(),
                  ": expected integer or bool operands, got ", t);
    plan.result = t;
    break;
  case Promote::Keep: plan.common = plan.result = first ? first->dtype : t; break;
  }
  TS_CHECK(!info.no_integer || is_differentiable(plan.common), op.name(), ": expected a floating dtype, got ", t);
  plan.compute = compute_type(is_complex(plan.common) ? real_type(plan.common) : plan.common);
}

// Of any operand: a mask beside numbers is more likely a mistake than a number.
bool any_bool(const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k)
    if (const Value& v = f.args[k]; v.tag == Tag::Bool || (v.tag == Tag::Tensor && is_bool(v.tensor->dtype)))
      return true;
  return false;
}

// Those whose operands may all be numbers, as in PyTorch.
bool takes_numbers(const Operator& op) {
  constexpr std::string_view kNames[] = {"add",      "sub",      "mul",          "div",        "divide",
                                         "multiply", "subtract", "floor_divide", "true_divide"};
  const std::string& base = op.schema->base;
  return base.starts_with('_') || std::find(std::begin(kNames), std::end(kNames), base) != std::end(kNames);
}

Plan make_plan(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, const Frame& f) {
  Plan plan;
  ResultType types;
  const TensorImpl* first = nullptr;
  bool float_scalar = false, complex_scalar = false;
  for (int32_t k = 0; k < f.nargs - (op.variant == Variant::Out); ++k) {
    const Value& v = f.args[k];
    bool parameter =
        op.schema->args[static_cast<size_t>(k)].type.kind == TypeKind::Scalar; // takes no part in promotion
    if (v.tag == Tag::Tensor) {
      if (k == info.boolean_arg)
        TS_CHECK(is_bool(v.tensor->dtype), op.name(), ": expected ", op.schema->args[static_cast<size_t>(k)].name,
                 " to be a bool tensor, got ", v.tensor->dtype);
      else
        types.add(*v.tensor);
      if (!first && k != info.boolean_arg) first = v.tensor;
      if (v.tensor->ndim > 0 || !plan.device.defined()) {
        if (!plan.device.defined() || !(host_number(*v.tensor) && !(v.tensor->device == plan.device)))
          plan.device = v.tensor->device;
      }
    } else if (v.is_number()) {
      if (!parameter)
        types.add(v);
      else
        complex_scalar |= v.tag == Tag::Complex,
            float_scalar |= v.tag == Tag::Float && &p != info.default_program.get();
    }
  }
  for (int a : p.inputs) {
    const Value& v = f.args[a];
    Operand o;
    if (v.tag != Tag::Tensor)
      o.number = v.as_scalar();
    else if (v.tensor->device == plan.device)
      o.tensor = v.tensor;
    else {
      auto number = host_number(*v.tensor); // takes part as one
      if (!number) check_same_device(op, f);
      o.number = *number;
    }
    if (info.promote == Promote::Keep && a != info.boolean_arg) fit_written_value(op, first, a, o);
    plan.operands.push_back(o);
    if (o.tensor)
      plan.sizes = plan.operands.size() == 1 ? Dims(o.tensor->sizes())
                                             : broadcast_sizes(plan.sizes, o.tensor->sizes(), op.name().c_str());
  }
  if (!plan.device.defined()) {
    plan.device = default_device();
    TS_CHECK_TYPE(takes_numbers(op), op.name(), ": expected a tensor among the operands, got numbers alone");
  }
  TS_CHECK(!info.no_bool || !any_bool(f), op.name(),
           ": expected a numeric dtype, got bool; try logical_xor, logical_not or .to() a number type");
  choose_dtypes(op, info, types, first, plan);
  TS_CHECK(!complex_scalar || is_complex(plan.common), op.name(),
           ": for non-complex input tensors, number arguments must not be complex");
  TS_CHECK(!float_scalar || info.truncate_numbers || is_differentiable(plan.common), op.name(),
           ": for integral input tensors, number arguments must not be floating point");
  return plan;
}

// Whether dim a of the result lies further in than dim b: the first operand that has a step along both decides.
int compare_dims(std::span<const Dims> strides, IntSpan sizes, int64_t a, int64_t b) {
  for (const Dims& s : strides) {
    if (s[a] == 0 || s[b] == 0) continue;
    if (s[a] != s[b]) return s[a] < s[b] ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

// The result's dims lie in memory in the order of the operands' dims, as in PyTorch.
Tensor allocate_result(const Plan& plan, const char* op) {
  InlineArray<Dims, kUsualOperands> strides;
  strides.resize(plan.operands.size());
  size_t n = 0;
  for (const Operand& o : plan.operands) {
    if (!o.tensor) continue;
    if (n == 0 && o.tensor->has(TensorImpl::kContiguous) && same(o.tensor->sizes(), plan.sizes)) break;
    strides[n++] = expand_strides(o.tensor->sizes(), o.tensor->strides(), plan.sizes, op);
  }
  if (n == 0 || plan.sizes.size() < 2) return empty_tensor(plan.sizes, plan.result, plan.device);
  Dims order(plan.sizes.size()); // innermost first
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
  for (size_t i = 1; i < order.size(); ++i) {
    for (size_t at = i, j = i; j-- > 0;) {
      int c = compare_dims({strides.begin(), n}, plan.sizes, order[j], order[at]);
      if (c < 0) break;
      if (c > 0) {
        std::swap(order[j], order[at]);
        at = j;
      }
    }
  }
  Dims laid(plan.sizes.size());
  int64_t step = 1;
  for (int64_t d : order) {
    laid[d] = step;
    TS_CHECK(!__builtin_mul_overflow(step, std::max<int64_t>(1, plan.sizes[d]), &step), op, ": shape ",
             IntSpan(plan.sizes), " has more elements than fit in 64 bits");
  }
  return empty_strided_tensor(plan.sizes, laid, plan.result, plan.device);
}

// Sorts dims by the output's strides and merges neighbours that are contiguous to each other in every operand.
struct Merged {
  Dims sizes;
  SmallVector<int64_t, 64> strides; // operand-major: output first
};
Merged merge_dims(IntSpan sizes, IntSpan out_strides, std::span<const Dims> operand_strides) {
  Merged m;
  Dims order = memory_order(sizes, out_strides);
  size_t n_ops = operand_strides.size() + 1;
  auto stride = [&](size_t operand, int64_t dim) {
    return operand == 0 ? out_strides[dim] : operand_strides[operand - 1][static_cast<size_t>(dim)];
  };
  Dims kept; // representative (innermost) dim of each merged run
  for (int64_t d : order) {
    if (sizes[d] == 1) continue;
    bool joins = !kept.empty();
    for (size_t o = 0; joins && o < n_ops; ++o) joins = stride(o, kept.back()) == stride(o, d) * sizes[d];
    if (joins) {
      m.sizes.back() *= sizes[d];
      kept.back() = d;
    } else {
      m.sizes.push_back(sizes[d]);
      kept.push_back(d);
    }
  }
  if (kept.empty()) m.sizes.push_back(1);
  for (size_t o = 0; o < n_ops; ++o) {
    if (kept.empty()) m.strides.push_back(1);
    for (int64_t d : kept) m.strides.push_back(stride(o, d));
  }
  return m;
}

void run_merged(const Operator& op, const pointwise::Program& p, const Plan& plan, const Tensor& out) {
  InlineArray<Dims, kUsualOperands> strides;
  strides.resize(plan.operands.size());
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    const Operand& o = plan.operands[k];
    strides[k] = o.tensor ? expand_strides(o.tensor->sizes(), o.tensor->strides(), plan.sizes, op.name().c_str())
                          : Dims(plan.sizes.size(), 0);
  }
  Merged m = merge_dims(plan.sizes, out.strides(), {strides.begin(), strides.size()});
  int ndim = static_cast<int>(m.sizes.size());
  int64_t n = out.numel();
  ts_tensor in[kMaxOperands], od;
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    const int64_t* s = m.strides.data() + (k + 1) * static_cast<size_t>(ndim);
    if (const TensorImpl* t = plan.operands[k].tensor)
      fill_tensor(in[k], *t, m.sizes.data(), s, ndim, n,
                  geometry_is_contiguous(m.sizes, {s, static_cast<size_t>(ndim)}));
    else
      fill_scalar(in[k], plan.operands[k].number, plan.compute);
  }
  fill_tensor(od, *out.impl(), m.sizes.data(), m.strides.data(), ndim, n,
              geometry_is_contiguous(m.sizes, {m.strides.data(), static_cast<size_t>(ndim)}));
  CallShape shape;
  add_to(shape, od);
  for (size_t k = 0; k < plan.operands.size(); ++k) add_to(shape, in[k]);
  int status = run_kernel(plan.device, p, plan.compute, &od, in, static_cast<int>(plan.operands.size()), shape, n);
  if (status == TS_OK) return;
  if (status != TS_DECLINED) backend_of(plan.device).check(status, op.name().c_str());
  Launch launch(kPointwise, plan.device); // on copies: contiguous ones, or on the cpu
  auto geometry = [&](size_t k) { return IntSpan(m.strides.data() + k * m.sizes.size(), m.sizes.size()); };
  std::vector<Tensor> shared; // the launch only refers to its tensors
  launch.out(out, m.sizes, geometry(0)).program(&p.c).compute(plan.compute);
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    const TensorImpl* t = plan.operands[k].tensor;
    if (!t)
      launch.scalar(plan.operands[k].number, plan.compute);
    else
      launch.in(shared.emplace_back(Tensor::share(const_cast<TensorImpl*>(t))), m.sizes, geometry(k + 1));
  }
  launch.run_required();
}

// Apart from `t`, which is about to be given another shape.
void keep_operands(const Tensor& t, Plan& plan) {
  for (Operand& o : plan.operands) {
    if (!o.tensor || !t->storage || o.tensor->storage != t->storage) continue;
    plan.copies.push_back(
        copy_as(Tensor::share(const_cast<TensorImpl*>(o.tensor)), o.tensor->dtype, MemoryFormat::Contiguous));
    o.tensor = plan.copies.back().impl();
  }
}

// --- complex operands -----------------------------------------------------------------------------------------------

uint64_t complex_arguments(const pointwise::Program& p, const Frame& f) {
  uint64_t bits = 0;
  for (int a : p.inputs) {
    const Value& v = f.args[a];
    if (v.tag == Tag::Complex || (v.tag == Tag::Tensor && is_complex(v.tensor->dtype))) bits |= uint64_t{1} << a;
  }
  return bits;
}

// One part of a complex tensor as a real one of this geometry, which counts in complex elements.
Tensor part(const Tensor& t, bool imaginary, IntSpan sizes, IntSpan strides) {
  Dims doubled(strides);
  for (int64_t& s : doubled) s *= 2;
  DType real = real_type(t.dtype());
  Tensor out = alias(t, sizes, doubled, t->byte_offset + (imaginary ? item_size(real) : 0));
  out->dtype = real;
  return out;
}

// The program over parts of the operands, as one kernel call with an output for each part of the result.
void run_complex(const Operator& op, const ComplexProgram& complex, const pointwise::Program& p, const Plan& plan,
                 const Tensor& out) {
  InlineArray<Dims, kUsualOperands> strides;
  strides.resize(plan.operands.size());
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    const Operand& o = plan.operands[k];
    strides[k] = o.tensor ? expand_strides(o.tensor->sizes(), o.tensor->strides(), plan.sizes, op.name().c_str())
                          : Dims(plan.sizes.size(), 0);
  }
  Merged m = merge_dims(plan.sizes, out.strides(), {strides.begin(), strides.size()});
  auto geometry = [&](size_t operand) { return IntSpan(m.strides.data() + operand * m.sizes.size(), m.sizes.size()); };
  std::vector<Tensor> views; // the launch only refers to its tensors
  views.reserve(complex.program->inputs.size() + 2);
  Launch launch(kPointwise, plan.device);
  launch.program(&complex.program->c).compute(plan.compute).work(out.numel());
  bool halves = is_complex(out.dtype());
  launch.out(views.emplace_back(halves ? part(out, false, m.sizes, geometry(0))
                                       : alias(out, m.sizes, geometry(0), out->byte_offset)));
  if (halves) launch.out(views.emplace_back(part(out, true, m.sizes, geometry(0))));
  for (int input : complex.program->inputs) {
    auto at = std::find(p.inputs.begin(), p.inputs.end(), input / 2);
    auto k = static_cast<size_t>(at - p.inputs.begin());
    const Operand& o = plan.operands[k];
    bool imaginary = input % 2;
    if (!o.tensor) {
      launch.scalar(imaginary ? o.number.imag() : o.number.real(), plan.compute);
      continue;
    }
    Tensor t = Tensor::share(const_cast<TensorImpl*>(o.tensor));
    launch.in(views.emplace_back(is_complex(t.dtype()) ? part(t, imaginary, m.sizes, geometry(k + 1))
                                                       : alias(t, m.sizes, geometry(k + 1), t->byte_offset)));
  }
  launch.run_required();
}

const ComplexProgram& choose_complex(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p,
                                     const Frame& f, const Plan& plan, DType result) {
  bool defaults = &p == info.default_program.get();
  const ComplexProgram& complex = info.complex_program(complex_arguments(p, f), defaults, is_complex(result));
  TS_CHECK_KIND(ErrorKind::NotImplemented, complex.program, op.name(), ": not implemented for dtype ", plan.common,
                "; complex numbers have no order, and not every function is defined for them");
  return complex;
}

// The tensor the result goes to: fresh, self, or out= (resized when its shape is wrong).
Tensor target(const Operator& op, Frame& f, Plan& plan) {
  if (op.variant == Variant::Functional) return allocate_result(plan, op.name().c_str());
  const Tensor& t = f.args[op.variant == Variant::Inplace ? 0 : f.nargs - 1].as_tensor();
  TS_CHECK(can_cast(plan.result, t.dtype()), op.name(), ": result type ", plan.result,
           " can't be cast to the desired output type ", t.dtype());
  TS_CHECK(t.device() == plan.device, op.name(),
           ": Expected all tensors to be on the same device, but found at least two devices, ", t.device(), " and ",
           plan.device);
  if (op.variant == Variant::Out && !same(t.sizes(), plan.sizes)) {
    keep_operands(t, plan);
    resize_output(t, plan.sizes, op.name().c_str());
  }
  TS_CHECK(same(t.sizes(), plan.sizes), op.name(), ": output with shape ", t.sizes(),
           " doesn't match the broadcast shape ", plan.sizes.span());
  check_inplace(t, op.name().c_str());
  for (Operand& o : plan.operands) {
    if (!o.tensor) continue;
    Tensor in = Tensor::share(const_cast<TensorImpl*>(o.tensor));
    if (!overlaps_partly(t, in, op.name().c_str())) continue;
    plan.copies.push_back(copy_as(in, in.dtype(), MemoryFormat::Contiguous));
    o.tensor = plan.copies.back().impl();
  }
  return t;
}

void run_over_parts(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, Frame& f, Plan& plan) {
  choose_complex(op, info, p, f, plan, plan.result); // complains before anything is written
  Tensor out = target(op, f, plan);
  if (!plan.device.is_meta() && out.numel() > 0)
    run_complex(op, choose_complex(op, info, p, f, plan, out.dtype()), p, plan, out);
  f.give(0, std::move(out));
}

// Whether out= of another dtype would keep what the result's own does not hold: carries of integers, digits of halves.
bool narrows_first(const Operator& op, const PointwiseInfo& info, const Plan& plan, const Tensor& out) {
  if (op.variant != Variant::Out || out.dtype() == plan.result || info.promote == Promote::Compare) return false;
  return is_half(plan.result) || (is_integral(plan.result, true) && plan.result != DType::Int64);
}

} // namespace

void run_pointwise(const Operator& op, Frame& f) {
  const PointwiseInfo& info = *op.pointwise;
  const pointwise::Program& p = choose(info, op.functional ? *op.functional : op, f);
  if (run_fast(op, info, p, f) || run_complex_form(op, f)) return;
  Plan plan = make_plan(op, info, p, f);
  if (is_complex(plan.common)) return run_over_parts(op, info, p, f, plan);
  Tensor out = target(op, f, plan);
  if (!plan.device.is_meta() && out.numel() > 0) {
    bool narrow = narrows_first(op, info, plan, out);
    Tensor result = narrow ? allocate_result(plan, op.name().c_str()) : out;
    run_merged(op, p, plan, result);
    if (narrow) raw_copy(out, result);
  }
  f.give(0, std::move(out));
}

} // namespace ts
