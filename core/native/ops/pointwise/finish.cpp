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
    e = pointwise::substitute(e, static_cast<int>(k),
                              a.default_value.tag == Tag::Int ? pointwise::constant(a.default_value.i)
                                                              : pointwise::constant(a.default_value.as_double()));
  }
  return info.scalar_args.empty() ? nullptr : e;
}

// Names of the parts, as generated source has them.
std::vector<std::string> part_names(const std::vector<std::string>& variables) {
  std::vector<std::string> names;
  for (const std::string& v : variables) {
    names.push_back(v + "_re");
    names.push_back(v + "_im");
  }
  return names;
}

} // namespace

const ComplexProgram& PointwiseInfo::complex_program(uint64_t complex_args, bool defaults, bool complex_result) const {
  std::lock_guard lock(mutex_);
  auto [it, fresh] = complex_programs_.try_emplace({complex_args, (defaults ? 1 : 0) + (complex_result ? 2 : 0)});
  if (!fresh) return it->second;
  pointwise::Pair p = pointwise::lower(defaults ? default_expr : expr, {complex_args, conjugate, conjugate_result});
  if (!p.re || (p.im && !complex_result)) return it->second;
  std::vector<Expr> outputs = {p.re};
  if (complex_result) outputs.push_back(p.im ? p.im : pointwise::constant(0));
  it->second.program = pointwise::compile(outputs, part_names(variables));
  return it->second;
}

void finish_pointwise(Operator& op, PointwiseInfo& info) {
  info.program = pointwise::compile({&info.expr, 1}, info.variables);
  if ((info.default_expr = at_defaults(op, info)))
    info.default_program = pointwise::compile({&info.default_expr, 1}, info.variables);
  TS_CHECK(op.schema->args.size() <= kMaxPointwiseArgs && info.program->inputs.size() <= 14, op.name(),
           ": a pointwise operator takes at most ", kMaxPointwiseArgs, " arguments");
  op.body = run_pointwise;
  op.any_device = true; // checked while planning: 0-d host tensors may join any device
  op.kind = OperatorKind::Pointwise;
  op.table.set(key::Autograd, {pointwise_autograd, nullptr, op.origin});
}

} // namespace ts
