#include "ops/pointwise/fused.h"
#include "ops/pointwise/kernel_call.h"
#include "tensor/words.h"
#include <map>

namespace ts {
namespace {

pointwise::Expr parse_with(std::string_view text, const std::vector<std::string>& names,
                           const std::map<std::string, pointwise::Expr>& known) {
  std::vector<std::string> all(names);
  for (const auto& [name, expr] : known) all.push_back(name);
  pointwise::Expr e = pointwise::parse(text, all);
  size_t at = names.size();
  for (const auto& [name, expr] : known) e = pointwise::substitute(e, static_cast<int>(at++), expr);
  return e;
}

std::unique_ptr<const pointwise::Program> compile(const char* variables, const std::vector<const char*>& lines) {
  const std::vector<std::string> names = words_of(variables);
  std::map<std::string, pointwise::Expr> known;
  std::vector<pointwise::Expr> outputs;
  for (std::string_view text : lines) {
    size_t sign = text.find('=');
    if (sign == std::string_view::npos)
      outputs.push_back(parse_with(text, names, known));
    else
      known[std::string(text.substr(0, sign))] = parse_with(text.substr(sign + 1), names, known);
  }
  return pointwise::compile(outputs, names, true);
}

} // namespace

void Fused::run(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                std::span<const double> numbers) const {
  const Tensor& first = outputs.front();
  if (first.numel() == 0 || first.device().is_meta()) return;
  std::call_once(compiled_, [&] { program_ = compile(variables_, lines_); });
  DType compute = compute_type(first.dtype());
  Launch launch(kPointwise, first.device());
  for (const Tensor& t : outputs) launch.out(t);
  for (const Tensor& t : inputs) {
    if (t.defined())
      launch.in(t);
    else
      launch.scalar(Scalar(0.0), compute);
  }
  for (double number : numbers) launch.scalar(Scalar(number), compute);
  launch.program(&program_->c).compute(compute).run_required();
}

} // namespace ts
