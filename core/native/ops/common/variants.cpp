#include "ops/common/variants.h"
#include "autograd/forward_level.h"
#include "autograd/meta.h"
#include "autograd/record.h"
#include "autograd/view_history.h"
#include "dispatch/describe.h"
#include "dispatch/op_handles.h"
#include "dispatch/primitive.h"
#include "extend/override.h"
#include "ops/common/check.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "tensor/geometry.h"
#include <algorithm>

namespace ts {
namespace {

// --- primitives: into the target itself -----------------------------------------------------------------------------

// Whether writing the target before all is read could change an argument.
bool reads_target(const Operator& primitive, const Frame& f, const Tensor& target) {
  if (!target->storage) return false;
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && v.tensor->storage == target->storage &&
        !(k == 0 && primitive.reuses_self && v.as_tensor().is(target)))
      return true;
    if (v.tag != Tag::Tensors) continue;
    for (const Tensor& t : v.as_tensors())
      if (t.defined() && t->storage == target->storage) return true;
  }
  return false;
}

// Whether the target is itself an argument: resizing it first would change what is read.
bool is_argument(const Frame& f, const Tensor& target) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && v.tensor == target.impl()) return true;
    if (v.tag != Tag::Tensors) continue;
    for (const Tensor& t : v.as_tensors())
      if (t.is(target)) return true;
  }
  return false;
}

bool laid_out_as(const Tensor& target, const TensorImpl& outline) {
  return target.dtype() == outline.dtype && same(target.sizes(), outline.sizes()) &&
         (target.is_contiguous() ? outline.has(TensorImpl::kContiguous) : same(target.strides(), outline.strides()));
}

bool has_rule(const Operator& op, OutRule rule) { return (op.functional->out_rules & rule) != 0; }

void check_cast(const Operator& op, DType result, DType target) {
  if (has_rule(op, kAnyDtype)) return;
  TS_CHECK_KIND(has_rule(op, kDtypeIsType) ? ErrorKind::Type : ErrorKind::Runtime, can_cast(result, target), op.name(),
                ": result type ", result, " can't be cast to the desired output type ", target);
}

// What makes tensors of numbers resizes what it is given without a word, except arange.
bool resizes_quietly(const Schema& functional) {
  if (functional.base == "arange") return false;
  for (const Argument& a : functional.args)
    if (a.type.kind == TypeKind::Tensor || a.type.kind == TypeKind::Operand) return false;
  return true;
}

// Sequences fill an out= of as many elements in order, whatever its shape, as in PyTorch.
bool keeps_shape(const Operator& op, const Tensor& target, int64_t numel) {
  const std::string& base = op.functional->schema->base;
  return op.variant == Variant::Out && target.numel() == numel &&
         (base == "arange" || base == "linspace" || base == "logspace");
}

void check_apart(const Operator& op, const Frame& f, TensorList targets) {
  if (!has_rule(op, kApart)) return;
  auto begin = [](const Tensor& t) { return t->byte_offset; };
  auto end = [](const Tensor& t) {
    int64_t last = 0;
    for (int64_t d = 0; d < t.ndim(); ++d) last += (t.sizes()[d] - 1) * t.strides()[d];
    return t->byte_offset + (last + 1) * t.item_size();
  };
  auto check = [&](const Tensor& operand) {
    for (const Tensor& target : targets)
      TS_CHECK(!operand.defined() || !operand->storage || operand->storage != target->storage || operand.numel() == 0 ||
                   target.numel() == 0 || begin(operand) >= end(target) || begin(target) >= end(operand),
               op.name(),
               ": unsupported operation: some elements of the input tensor and the written-to tensor refer "
               "to a single memory location. Please clone() the tensor before performing the operation.");
  };
  for (int32_t k = 0; k < f.nargs; ++k) {
    if (f.args[k].tag == Tag::Tensor) check(f.args[k].as_tensor());
    if (f.args[k].tag == Tag::Tensors)
      for (const Tensor& t : f.args[k].as_tensors()) check(t);
  }
}

// out= that has just been resized is laid out as the result that it takes, where that is dense.
void lay_as(const Tensor& out, IntSpan sizes, IntSpan strides) {
  if (same(out.sizes(), sizes) && out.numel() > 0 && is_dense(sizes, strides)) out.impl()->set_geometry(sizes, strides);
}

void check_target(const Operator& op, const Tensor& target, const TensorImpl& outline) {
  const char* name = op.name().c_str();
  if (op.variant == Variant::Out) check_output_dtype(op, outline.dtype, target.dtype());
  check_cast(op, outline.dtype, target.dtype());
  TS_CHECK(outline.device == target.device(), name,
           ": expected out on the device of the result, got out on another device");
  if (keeps_shape(op, target, outline.numel)) return check_inplace(target, name);
  if (op.variant == Variant::Out) {
    bool resized = !same(target.sizes(), outline.sizes());
    resize_output(target, outline.sizes(), name, resizes_quietly(*op.functional->schema));
    if (resized) lay_as(target, outline.sizes(), outline.strides());
  } else
    TS_CHECK(same(outline.sizes(), target.sizes()), name, ": result shape ", outline.sizes(),
             " doesn't match the shape of the tensor modified in place, ", target.sizes());
  check_inplace(target, name);
}

// Whether a mode, a tensor's class or a tracer is shown the calls that the form is made of.
bool is_shown(const Frame& f, TensorList targets) {
  const ThreadState& state = thread_state();
  KeySet keys = state.include;
  for (const Tensor& t : targets) keys |= t.defined() ? t->keys : 0;
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && v.tensor) keys |= v.tensor->keys;
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors()) keys |= t.defined() ? t->keys : 0;
  }
  return (keys & ~state.exclude & (key_bit(key::Python) | key_bit(key::Leaf) | key_bit(key::Tracer))) != 0;
}

// `call` is the primitive's, its results not yet there. False, with nothing done, where some kernel hides the
// computation.
bool compute_into(const Operator& op, Frame& call, TensorList targets) {
  const Operator& primitive = *op.functional;
  if (!primitive.compute || is_shown(call, targets)) return false;
  if (!primitive.any_device) check_same_device(primitive, call);
  ExcludeKeys no_grad(key_bit(key::Autograd));
  Results outlines;
  call.rets = outlines.data();
  primitive.rule(primitive, call);
  if (outlines[0].tag != Tag::Tensor) return false;
  Device device = outlines[0].tensor->device;
  if (!device.is_meta() && !computes(primitive, device.backend)) return false;
  for (size_t k = 0; k < targets.size(); ++k)
    if (op.variant == Variant::Out && !same(targets[k].sizes(), outlines[static_cast<int>(k)].tensor->sizes()) &&
        is_argument(call, targets[k]))
      return false;
  for (size_t k = 0; k < targets.size(); ++k) check_target(op, targets[k], *outlines[static_cast<int>(k)].tensor);
  if (device.is_meta()) return true;
  bool work = false;
  for (int k = 0; k < call.nrets; ++k) {
    const Tensor& target = targets[static_cast<size_t>(k)];
    TensorImpl& outline = *outlines[k].tensor;
    work |= outline.numel > 0;
    if (laid_out_as(target, outline) && !reads_target(primitive, call, target)) {
      outlines.take(k);
      call.give(k, target);
    } else {
      give_memory(outline);
    }
  }
  if (work) compute_on(primitive, call, device);
  for (int k = 0; k < call.nrets; ++k) {
    const Tensor& target = targets[static_cast<size_t>(k)];
    if (Tensor made = outlines.take(k); !made.is(target))
      raw_copy(target, keeps_shape(op, target, made.numel()) ? reshaped(made, target.sizes()) : made);
  }
  return true;
}

// The in-place form of an operator without one of its own: compute, then copy into self.
void inplace_by_copy(const Operator& op, Frame& f, bool recorded) {
  const Tensor& self = f.args[0].as_tensor();
  std::vector<Value> args(f.args, f.args + f.nargs);
  Tensor before;
  if (recorded && !is_unrecorded_write(self)) {
    check_inplace_history(op, self);
    // By way of the base: a view may reach outside the view it was made of.
    if (self->base && requires_grad(self)) refresh_view_history(self);
    // Gradients may need the values that are about to go.
    before = ops::clone(self);
    for (Value& v : args)
      if (v.tag == Tag::Tensor && v.tensor == self.impl()) v = before;
  }
  Results r;
  Frame inner{args.data(), r.data(), f.nargs, 1};
  call(*op.functional, inner);
  Tensor result = r.take(0);
  TS_CHECK(same(result.sizes(), self.sizes()), op.name(), ": result shape ", result.sizes(),
           " doesn't match the shape of the tensor modified in place, ", self.sizes());
  TS_CHECK(can_cast(result.dtype(), self.dtype()), op.name(), ": result type ", result.dtype(),
           " can't be cast to the desired output type ", self.dtype());
  ops::copy_(self, result);
  self->undo_bump(); // the caller counts the write
  f.give(0, self);
}

void write_output(const Operator& op, const Tensor& out, const Tensor& result, const std::vector<Value>& args) {
  check_output_dtype(op, result.dtype(), out.dtype());
  check_cast(op, result.dtype(), out.dtype());
  for (const Value& v : args) // refused of what is made of others as of what has a kernel
    if (v.tag == Tag::Tensor && same(v.tensor->sizes(), result.sizes()) && same(out.sizes(), result.sizes()))
      overlaps_partly(out, v.as_tensor(), op.name().c_str());
  TS_CHECK(result.device() == out.device(), op.name(),
           ": expected out on the device of the result, got out on another device");
  bool keeps = keeps_shape(op, out, result.numel());
  if (!keeps && !same(out.sizes(), result.sizes())) {
    resize_output(out, result.sizes(), op.name().c_str(), resizes_quietly(*op.functional->schema));
    lay_as(out, result.sizes(), result.strides());
  }
  ops::copy_(out, keeps ? ops::reshape(result, out.sizes()) : result);
  out->undo_bump(); // the caller counts the write
}

// A factory makes what `out` holds, where the call does not say.
void default_to_out(const Operator& op, std::vector<Value>& args, const Tensor& out) {
  const Schema& functional = *op.functional->schema;
  for (const Value& v : args)
    if (!has_rule(op, kComputesInOut) && (v.tag == Tag::Tensor || v.tag == Tag::Tensors)) return;
  auto fill = [&](const char* name, Value v) {
    int k = functional.find(name);
    if (k >= 0 && args[static_cast<size_t>(k)].is_none()) args[static_cast<size_t>(k)] = v;
  };
  int k = functional.find("dtype");
  TS_CHECK(k < 0 || args[static_cast<size_t>(k)].is_none() ||
               Unbox<DType>::get(args[static_cast<size_t>(k)]) == out.dtype(),
           functional.base, ": dtype ", Unbox<DType>::get(args[static_cast<size_t>(k)]),
           " does not match dtype of out parameter (", out.dtype(), ")");
  fill("dtype", out.dtype());
  fill("device", out.device());
}

} // namespace

void check_output_dtype(const Operator& op, DType result, DType out) {
  const bool several = op.schema->returns.size() > 1 && !has_rule(op, kCasts);
  const bool exact = several || has_rule(op, kSameDtype) || (has_rule(op, kSameOrByte) && out != DType::UInt8);
  TS_CHECK(result == out || !exact, op.name(), ": expected out of dtype ", result, ", got ", out,
           "; try out= of that dtype, or .to() of the result");
}

void run_inplace_form(const Operator& op, Frame& f) {
  const Tensor& self = f.args[0].as_tensor();
  Frame inner{f.args, nullptr, f.nargs, 1};
  if (compute_into(op, inner, {&self, 1})) return f.give(0, self);
  inplace_by_copy(op, f, false);
}

void record_inplace_form(const Operator& op, Frame& f) { inplace_by_copy(op, f, true); }

void record_out_form(const Operator& op, Frame&) { refuse_out_gradient(op); }

void run_out_form(const Operator& op, Frame& f) {
  int32_t n = static_cast<int32_t>(op.schema->returns.size());
  const Value& out = f.args[f.nargs - 1];
  TS_CHECK_TYPE(n == 1 || (out.tag == Tag::Tensors && out.len == n), op.name(), ": expected out= a tuple of ", n,
                " tensors");
  TensorList targets = n == 1 ? TensorList(&out.as_tensor(), 1) : out.as_tensors();
  std::vector<Value> args(f.args, f.args + f.nargs - 1);
  if (n == 1) default_to_out(op, args, out.as_tensor());
  Results r;
  Frame inner{args.data(), r.data(), f.nargs - 1, n};
  check_apart(op, inner, targets);
  if (has_rule(op, kLikeFirst) && f.args[0].tag == Tag::Tensor)
    TS_CHECK(targets[0].dtype() == f.args[0].as_tensor().dtype(), op.name(), ": Expected out tensor to have dtype ",
             f.args[0].as_tensor().dtype(), ", but got ", targets[0].dtype(), " instead");
  if (!compute_into(op, inner, targets)) {
    inner.rets = r.data();
    ExcludeKeys no_grad(key_bit(key::Autograd));
    call(*op.functional, inner);
    for (int k = 0; k < n; ++k) write_output(op, targets[static_cast<size_t>(k)], r.take(k), args);
  }
  for (int k = 0; k < n; ++k) f.give(k, targets[static_cast<size_t>(k)]);
}

} // namespace ts
