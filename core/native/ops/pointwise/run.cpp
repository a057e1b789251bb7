// Running a pointwise operator: a fast path for operands of one shape and dtype, and the general one.
#include "ops/pointwise/run.h"
#include "dispatch/describe.h"
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "ops/common/variants.h"
#include "ops/pointwise/kernel_call.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

bool equal_number(const Value& a, const Value& b) {
  if (a.tag == Tag::Int && b.tag == Tag::Int) return a.i == b.i;
  if ((a.tag == Tag::Bool) != (b.tag == Tag::Bool)) return false; // alpha=True is not alpha=1
  return a.tag != Tag::Complex && b.tag != Tag::Complex && a.is_number() && b.is_number() &&
         a.as_double() == b.as_double();
}

const pointwise::Program& choose(const PointwiseInfo& info, const Operator& functional, const Frame& f) {
  if (!info.default_program) return *info.program;
  for (int k : info.scalar_args)
    if (!equal_number(f.args[k], functional.schema->args[static_cast<size_t>(k)].default_value)) return *info.program;
  return *info.default_program;
}

// Result dtype when all tensors share `dtype` and numbers do not raise it; Undefined otherwise.
DType fast_result(const PointwiseInfo& info, DType dtype) {
  switch (info.promote) {
  case Promote::Arith:
  case Promote::Number: return is_bool(dtype) ? DType::Undefined : dtype;
  case Promote::Float: return is_floating(dtype) ? dtype : DType::Undefined;
  case Promote::Compare: return DType::Bool;
  case Promote::Same:
  case Promote::Keep: return dtype;
  case Promote::Integer: return is_integral(dtype, true) ? dtype : DType::Undefined;
  default: return DType::Undefined;
  }
}

// One element stands for all, as in the gradient of a sum.
bool is_uniform(const TensorImpl& t) {
  for (size_t d = 0; d < t.ndim; ++d)
    if (t.strides()[d] != 0 && t.sizes()[d] != 1) return false;
  return true;
}

// Same shape and dtype, each contiguous or uniform, one device: no broadcasting, no merging. Flat, since every call of
// a helper costs what a small operation can be measured in.
[[gnu::flatten]] bool run_fast(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, Frame& f) {
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
      if (!v.is_number() || v.tag == Tag::Complex || v.tag == Tag::Bool) return false;
    }
  }
  if (!first || first->numel == 0 || first->device.is_meta() || !is_plain(first->dtype)) return false;
  if (any_number && !is_floating(first->dtype) && (float_number || is_bool(first->dtype))) return false;
  if (info.boolean_arg >= 0 || (is_integral(first->dtype, true) && (info.no_integer || info.no_bool))) return false;
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
  const bool compares_halves = info.rounds() && is_half(first->dtype);
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
      fill_scalar(in[n_in++], compares_halves ? rounded_to_half(v.as_scalar(), first->dtype) : v.as_scalar(), compute);
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

void add_to(CallShape& shape, const ts_tensor& t) {
  if (t.flags & TS_T_SCALAR) return;
  shape.dtypes |= uint64_t{1} << t.dtype;
  shape.strided |= !(t.flags & TS_T_CONTIGUOUS);
}

// Operands that no kernel takes, beside others that decide on the dtype: a float of 8 bits without dims.
bool widen_narrow(PointwisePlan& plan) {
  bool any = false;
  for (PointwiseOperand& o : plan.operands) {
    if (!o.tensor || !is_narrow(o.tensor->dtype)) continue;
    plan.copies.push_back(raw_cast(Tensor::share(const_cast<TensorImpl*>(o.tensor)), DType::Float32));
    o.tensor = plan.copies.back().impl();
    any = true;
  }
  return any;
}

void run_merged(const Operator& op, const pointwise::Program& p, const PointwisePlan& plan, const Tensor& out) {
  Merged m = merge_dims(op, plan, out);
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
  if (PointwisePlan wide = plan; widen_narrow(wide)) return run_merged(op, p, wide, out);
  Launch launch(kPointwise, plan.device); // on copies: contiguous ones, or on the cpu
  std::vector<Tensor> shared;             // the launch only refers to its tensors
  launch.out(out, m.sizes, m.strides_of(0)).program(&p.c).compute(plan.compute);
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    const TensorImpl* t = plan.operands[k].tensor;
    if (!t)
      launch.scalar(plan.operands[k].number, plan.compute);
    else
      launch.in(shared.emplace_back(Tensor::share(const_cast<TensorImpl*>(t))), m.sizes, m.strides_of(k + 1));
  }
  launch.run_required();
}

// Apart from `t`, which is about to be given another shape.
void keep_operands(const Tensor& t, PointwisePlan& plan) {
  for (PointwiseOperand& o : plan.operands) {
    if (!o.tensor || !t->storage || o.tensor->storage != t->storage) continue;
    plan.copies.push_back(
        copy_as(Tensor::share(const_cast<TensorImpl*>(o.tensor)), o.tensor->dtype, MemoryFormat::Contiguous));
    o.tensor = plan.copies.back().impl();
  }
}

// Whether out= of another dtype would keep what the result's own does not hold: carries of integers, digits of halves.
// And a program over real numbers writes none with an imaginary part.
bool narrows_first(const Operator& op, const PointwiseInfo& info, const PointwisePlan& plan, const Tensor& out) {
  if (op.variant != Variant::Out || out.dtype() == plan.result) return false;
  if (!is_plain(out.dtype())) return true;
  if (info.promote == Promote::Compare) return false;
  return is_half(plan.result) || (is_integral(plan.result, true) && plan.result != DType::Int64);
}

} // namespace

Tensor pointwise_target(const Operator& op, Frame& f, PointwisePlan& plan) {
  if (op.variant == Variant::Functional) return allocate_result(plan, op.name().c_str());
  const Tensor& t = f.args[op.variant == Variant::Inplace ? 0 : f.nargs - 1].as_tensor();
  if (op.variant == Variant::Out) check_output_dtype(op, plan.result, t.dtype());
  TS_CHECK(can_cast(plan.result, t.dtype()), op.name(), ": result type ", plan.result,
           " can't be cast to the desired output type ", t.dtype());
  TS_CHECK(t.device() == plan.device, op.name(), ": ", devices_differ(t.device(), plan.device));
  if (op.variant == Variant::Out && !same(t.sizes(), plan.sizes)) {
    keep_operands(t, plan);
    resize_output(t, plan.sizes, op.name().c_str());
    if (same(t.sizes(), plan.sizes)) lay_as_result(t, plan, op.name().c_str());
  }
  TS_CHECK(same(t.sizes(), plan.sizes), op.name(), ": output with shape ", t.sizes(),
           " doesn't match the broadcast shape ", plan.sizes.span());
  check_inplace(t, op.name().c_str());
  for (PointwiseOperand& o : plan.operands) {
    if (!o.tensor) continue;
    Tensor in = Tensor::share(const_cast<TensorImpl*>(o.tensor));
    if (!overlaps_partly(t, in, op.name().c_str())) continue;
    plan.copies.push_back(copy_as(in, in.dtype(), MemoryFormat::Contiguous));
    o.tensor = plan.copies.back().impl();
  }
  return t;
}

// masked_fill_ of an expanded tensor: a place is filled where any of its elements is masked.
void fill_expanded(const Operator& op, Frame& f) {
  const Tensor& self = f.args[0].as_tensor();
  check_filled(self, op.name().c_str());
  Dims sizes(self.sizes()), repeated;
  for (int64_t d = 0; d < self.ndim(); ++d)
    if (self.strides()[d] == 0 && sizes[d] > 1) sizes[d] = 1, repeated.push_back(d);
  static const Op any_of("any.dims");
  Tensor mask = any_of(raw_expand(f.args[1].as_tensor(), self.sizes(), "masked_fill_"), IntSpan(repeated), true);
  Tensor once = alias(self, sizes, self.strides(), self->byte_offset);
  Value args[] = {once, mask, f.args[2]};
  Results made;
  Frame inner{args, made.data(), 3, 1};
  run_pointwise(op, inner);
  f.give(0, self);
}

void run_pointwise(const Operator& op, Frame& f) {
  const PointwiseInfo& info = *op.pointwise;
  const pointwise::Program& p = choose(info, op.functional ? *op.functional : op, f);
  if (run_fast(op, info, p, f) || run_complex_form(op, f)) return;
  static const Operator& masked_fill_ = get_operator("masked_fill_");
  if (&op == &masked_fill_ && is_expanded(f.args[0].as_tensor().sizes(), f.args[0].as_tensor().strides()))
    return fill_expanded(op, f);
  PointwisePlan plan = make_plan(op, info, p, f);
  if (!is_plain(plan.common))
    return is_complex(plan.common) ? run_over_parts(op, info, p, f, plan) : run_narrow(op, f, plan);
  Tensor out = pointwise_target(op, f, plan);
  if (!plan.device.is_meta() && out.numel() > 0) {
    bool narrow = narrows_first(op, info, plan, out);
    Tensor result = narrow ? allocate_result(plan, op.name().c_str()) : out;
    run_merged(op, p, plan, result);
    if (narrow) raw_copy(out, result);
  }
  f.give(0, std::move(out));
}

} // namespace ts
