#include "ops/pointwise/operands.h"
#include "dispatch/describe.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace ts {
namespace {

// A single value written into a tensor that keeps its dtype has to fit it, as in fill_.
void fit_written_value(const Operator& op, const TensorImpl* target, int arg, PointwiseOperand& o) {
  const Argument& a = op.schema->args[static_cast<size_t>(arg)];
  if (!target || a.type.kind == TypeKind::Scalar || is_complex(target->dtype)) return;
  if (o.tensor) {
    TS_CHECK(!is_complex(o.tensor->dtype), op.name(), ": value cannot be converted to type ", target->dtype,
             " without overflow, got ", o.tensor->dtype, "; try .real");
    auto number = o.tensor->dtype == target->dtype ? std::nullopt : host_number(*o.tensor);
    if (!number) return;
    o = {nullptr, *number};
  }
  o.number = convert_scalar(o.number, target->dtype, op.name().c_str());
}

void choose_dtypes(const Operator& op, const PointwiseInfo& info, const ResultType& types, const TensorImpl* first,
                   PointwisePlan& plan) {
  DType t = types.get();
  if (t == DType::Undefined) t = default_dtype();
  plan.common = t;
  switch (info.promote) {
  case Promote::Same:
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

void check_one_floating(const Operator& op, const Frame& f, std::pair<int, int> args) {
  auto dtype_of = [&](int k) { return f.args[k].tag == Tag::Tensor ? f.args[k].tensor->dtype : DType::Float32; };
  DType a = dtype_of(args.first), b = dtype_of(args.second);
  TS_CHECK(!is_integral(a, true) || !is_integral(b, true), op.name(), ": Integer division with ", op.name(),
           " is no longer supported, got ", a, " and ", b, "; try .to() a floating dtype for one of them");
}

// What is compared is first of the common dtype: x == 0.1 where x holds the nearest to 0.1.
void round_to_half(PointwisePlan& plan) {
  for (PointwiseOperand& o : plan.operands) {
    if (!o.tensor) {
      o.number = rounded_to_half(o.number, plan.common);
    } else if (o.tensor->dtype != plan.common && !is_bool(o.tensor->dtype) && !plan.device.is_meta()) {
      plan.copies.push_back(raw_cast(Tensor::share(const_cast<TensorImpl*>(o.tensor)), plan.common));
      o.tensor = plan.copies.back().impl();
    }
  }
}

// Those whose operands may all be numbers, as in PyTorch.
bool takes_numbers(const Operator& op) {
  constexpr std::string_view kNames[] = {"add",      "sub",      "mul",          "div",         "divide",
                                         "multiply", "subtract", "floor_divide", "true_divide", "div_trunc"};
  const std::string& base = op.schema->base;
  return base.starts_with('_') || std::find(std::begin(kNames), std::end(kNames), base) != std::end(kNames);
}

} // namespace

Scalar rounded_to_half(Scalar number, DType half) {
  const double v = static_cast<double>(static_cast<float>(number.to_double()));
  const int digits = half == DType::Float16 ? 11 : 8, least = half == DType::Float16 ? -13 : -125;
  if (v == 0 || !std::isfinite(v)) return Scalar(v);
  int exponent;
  std::frexp(v, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent, least) - digits), r = std::nearbyint(v / step) * step;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, 1 - digits), half == DType::Float16 ? 15 : 127);
  return Scalar(std::fabs(r) > largest ? std::copysign(std::numeric_limits<double>::infinity(), r) : r);
}

PointwisePlan make_plan(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, const Frame& f) {
  PointwisePlan plan;
  ResultType types;
  const TensorImpl* first = nullptr;
  bool float_scalar = false, complex_scalar = false, bool_alpha = false;
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
      TS_CHECK(k != info.single_arg || v.tensor->ndim == 0, op.name(), ": only supports a 0-dimensional ",
               op.schema->args[static_cast<size_t>(k)].name, " tensor, but got tensor with ", v.tensor->ndim,
               " dimension(s); try where");
      TS_CHECK(info.promote != Promote::Same || !first || first->dtype == v.tensor->dtype, op.name(),
               ": not implemented for tensors with different dtypes, got ", first->dtype, " and ", v.tensor->dtype,
               "; try .to()");
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
            bool_alpha |= v.tag == Tag::Bool && op.schema->args[static_cast<size_t>(k)].name == "alpha",
            float_scalar |= v.tag == Tag::Float && &p != info.default_program.get();
    }
  }
  for (int a : p.inputs) {
    const Value& v = f.args[a];
    PointwiseOperand o;
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
  if (info.rounds() && is_half(plan.common)) round_to_half(plan);
  if (info.floating_one_of) check_one_floating(op, f, *info.floating_one_of);
  TS_CHECK(!bool_alpha || is_bool(plan.common), op.name(),
           ": Boolean alpha only supported for Boolean results, got dtype ", plan.common);
  TS_CHECK(!complex_scalar || is_complex(plan.common), op.name(),
           ": for non-complex input tensors, number arguments must not be complex");
  TS_CHECK(!float_scalar || info.truncate_numbers || is_differentiable(plan.common), op.name(),
           ": for integral input tensors, number arguments must not be floating point");
  return plan;
}

} // namespace ts
