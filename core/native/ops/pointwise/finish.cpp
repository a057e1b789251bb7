#include "ops/pointwise/info.h"

namespace ts {
namespace {

using pointwise::Expr;

// Scalar arguments replaced by their defaults; NULL when there are none or nothing gets simpler.
Expr at_defaults(const Operator& op, PointwiseInfo& info) {
  Expr e = info.expr;
  for (size_t k = 0; k < op.schema->args.size(); ++k) {
    const Argument& a = op.schema->args[k];
    if (a.type.kind != TypeKind::Scalar || !a.has_default || !a.default_value.is_number()) continue;
    info.scalar_args.push_back(static_cast<int>(k));
    e = pointwise::substitute(e, static_cast<int>(k), pointwise::constant(a.default_value.as_double()));
  }
  return info.scalar_args.empty() ? nullptr : e;
}

} // namespace

void finish_pointwise(Operator& op, PointwiseInfo& info) {
  info.program = pointwise::compile({&info.expr, 1}, info.variables);
  if (Expr d = at_defaults(op, info)) info.default_program = pointwise::compile({&d, 1}, info.variables);
  TS_CHECK(op.schema->args.size() <= kMaxPointwiseArgs && info.program->inputs.size() <= 14, op.name(),
           ": a pointwise operator takes at most ", kMaxPointwiseArgs, " arguments");
  op.body = run_pointwise;
  op.any_device = true; // checked while planning: 0-d host tensors may join any device
  op.composite = false;
  op.table.set(key::Autograd, {pointwise_autograd, nullptr, op.origin});
}

} // namespace ts
