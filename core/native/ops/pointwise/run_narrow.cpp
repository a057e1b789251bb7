// The few pointwise operators that take floats of 8 bits: computed in float32, and rounded once.
#include "ops/common/copy.h"
#include "ops/common/raw.h"
#include "ops/common/storage_dtypes.h"
#include "ops/pointwise/run.h"
#include <cmath>

namespace ts {
namespace {

// An operand in the common dtype, to which numbers are rounded as well; infinities, which most have not, stay.
Tensor operand(const Value& v, DType common, Device device) {
  if (v.tag != Tag::Tensor) {
    bool infinite = v.tag == Tag::Float && std::isinf(v.f);
    return filled({}, v.as_scalar(), infinite ? DType::Float32 : common, device);
  }
  return raw_cast(v.as_tensor(), common);
}

// As PyTorch's, whose kernel has no form for one number beside many.
void check_product(const Operator& op, const Frame& f, DType t) {
  const Value& other = f.args[1];
  TS_CHECK_KIND(ErrorKind::NotImplemented, other.tag == Tag::Tensor && other.tensor->ndim > 0, op.name(),
                ": not implemented for dtype ", t, " beside a number; try .to(float32)");
}

} // namespace

void run_narrow(const Operator& op, Frame& f, PointwisePlan& plan) {
  check_storage_dtype(op, plan.common);
  const Operator& functional = op.functional ? *op.functional : op;
  if (functional.schema->base == "mul") check_product(op, f, plan.common);
  bool moves = functional.schema->base == "where"; // whose elements are not looked at
  size_t n = functional.schema->args.size();
  std::vector<Tensor> held(n);
  std::vector<Value> args(f.args, f.args + n);
  for (size_t k = 0; k < n; ++k) {
    bool taken = args[k].tag == Tag::Tensor ? is_narrow(args[k].tensor->dtype) : args[k].is_number();
    if (!taken) continue;
    held[k] = operand(args[k], plan.common, plan.device);
    held[k] = moves ? as_bytes(held[k], DType::UInt8) : raw_cast(held[k], DType::Float32);
    args[k] = Value(held[k]);
  }
  Value computed;
  Frame inner{args.data(), &computed, static_cast<int32_t>(n), 1};
  run_pointwise(functional, inner);
  Tensor result = Tensor::adopt(computed.tensor);
  if (is_narrow(plan.result)) result = moves ? as_bytes(result, plan.result) : raw_cast(result, plan.result);
  if (op.variant == Variant::Functional) return f.give(0, std::move(result));
  Tensor out = pointwise_target(op, f, plan);
  if (!plan.device.is_meta() && out.numel() > 0) raw_copy(out, result);
  f.give(0, std::move(out));
}

} // namespace ts
