#include "ops/optim/step_rule.h"
#include "ops/optim/optim_lists.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include "tensor/words.h"
#include "tesserack/steps.hpp"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <mutex>

namespace ts::optim {
namespace {

const char* const kStepRuleName = "_optimizer_step_";
constexpr size_t kLongest = 2000;

bool mentions(std::string_view text, std::string_view name) {
  auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    size_t end = at + name.size();
    if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
  }
  return false;
}

bool mentions_any(std::string_view text, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) { return mentions(text, name); });
}

double evaluate(const pointwise::Expr& e, std::span<const double> numbers) {
  if (e->kind == pointwise::ExprNode::Constant) return e->value;
  if (e->kind == pointwise::ExprNode::Variable) return numbers[static_cast<size_t>(e->variable)];
  const double a = evaluate(e->a, numbers), b = e->b ? evaluate(e->b, numbers) : 0;
  switch (e->op) {
  case TS_I_NEG: return -a;
  case TS_I_RECIP: return 1 / a;
  case TS_I_SQRT: return std::sqrt(a);
  case TS_I_EXP: return std::exp(a);
  case TS_I_EXPM1: return std::expm1(a);
  case TS_I_LOG: return std::log(a);
  case TS_I_ADD: return a + b;
  case TS_I_SUB: return a - b;
  case TS_I_MUL: return a * b;
  case TS_I_DIV: return a / b;
  case TS_I_POW: return std::pow(a, b);
  default:
    fail(ErrorKind::Value, kStepRuleName, ": ", pointwise::instruction_name(e->op),
         " of numbers alone is not known; use + - * /, sqrt, exp, expm1, log, pow");
  }
}

Tensor flat(const Tensor& t) {
  int64_t sizes[] = {t.numel()}, strides[] = {1};
  return alias(t, sizes, strides, t->byte_offset);
}

} // namespace

StepRule::StepRule(std::string_view given) : text_(given) {
  const size_t colon = given.find(':');
  std::vector<std::string_view> groups = split(given.substr(0, std::min(colon, given.size())), ',');
  TS_CHECK_VALUE(colon != given.npos && given.size() <= kLongest && groups.size() <= 3, kStepRuleName,
                 ": expected a rule 'param grad,states,numbers:lines' of at most ", kLongest, " characters, got '",
                 given.substr(0, 80), "'");
  groups.resize(3);
  variables_ = concat(groups[0], ' ', groups[1]);
  std::vector<std::string> of_tensors = words_of(variables_);
  names_ = words_of(groups[2]);
  states_ = words_of(groups[1]).size();
  numbers_ = names_.size();
  size_t results = 0;
  const bool named = words_of(groups[0]).size() == 2;
  for (std::string_view line : split(given.substr(colon + 1), ';')) {
    const size_t sign = line.find('=');
    const std::string name(line.substr(0, sign));
    if (sign != line.npos && !mentions_any(line.substr(sign + 1), of_tensors)) {
      lines_.push_back(pointwise::parse(line.substr(sign + 1), names_));
      names_.push_back(name);
      continue;
    }
    if (sign != line.npos) of_tensors.push_back(name);
    results += sign == line.npos;
    program_lines_.emplace_back(line);
  }
  TS_CHECK_VALUE(named && states_ <= kMaxStates && numbers_ <= kMaxNumbers && results == states_ + 1, kStepRuleName,
                 ": expected a rule of a parameter, its gradient, at most ", kMaxStates, " states and ", kMaxNumbers,
                 " numbers, with a result for the parameter and each state, got '", text_, "'");
  std::vector<const char*> pointers;
  for (const std::string& line : program_lines_) pointers.push_back(line.c_str());
  for (size_t k = 0; k < names_.size(); ++k) {
    auto uses = [&](const std::string& line) { return mentions(line.substr(line.find('=') + 1), names_[k]); };
    if (!std::ranges::any_of(program_lines_, uses)) continue;
    used_.push_back(k);
    variables_ += ' ' + names_[k];
  }
  program_.emplace(variables_.c_str(), std::move(pointers));
}

const StepRule& StepRule::of(std::string_view text) {
  static std::mutex mutex;
  static auto* rules = new std::map<std::string_view, std::unique_ptr<const StepRule>>;
  std::lock_guard lock(mutex);
  if (auto found = rules->find(text); found != rules->end()) return *found->second;
  auto made = std::make_unique<const StepRule>(text);
  std::string_view key = made->text_;
  return *rules->try_emplace(key, std::move(made)).first->second;
}

void StepRule::step(TensorList params, TensorList grads, std::span<const TensorList> states,
                    std::span<const double> given) const {
  std::vector<double> all(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(numbers_)), numbers;
  for (const pointwise::Expr& line : lines_) all.push_back(evaluate(line, all));
  for (size_t k : used_) numbers.push_back(all[k]);
  Contiguous p(params), g(grads);
  std::vector<Contiguous> s;
  for (size_t k = 0; k < states_; ++k) s.emplace_back(states[k]);
  for (size_t k = 0; k < p.list().size(); ++k) {
    std::vector<Tensor> results{flat(p.list()[k])}, operands{results[0], flat(g.list()[k])};
    for (const Contiguous& state : s) {
      results.push_back(flat(state.list()[k]));
      operands.push_back(results.back());
    }
    program_->run(results, operands, numbers);
  }
  p.write_back();
  for (const Contiguous& state : s) state.write_back();
}

std::string sgd_rule(bool momentum, bool nesterov, bool first_step, bool decay) {
  return std::string(tesserack::backend::sgd_step_text(momentum, nesterov, first_step, decay).view());
}

std::string adam_rule(bool amsgrad, bool decay, bool decoupled, bool from_mean) {
  using enum tesserack::backend::StepDecay;
  return std::string(tesserack::backend::adam_step_text(amsgrad,
                                                        !decay      ? None
                                                        : decoupled ? Decoupled
                                                                    : Coupled,
                                                        from_mean)
                         .view());
}

} // namespace ts::optim
