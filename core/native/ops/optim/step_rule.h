// An optimizer's step as lines of arithmetic: the one statement of it, of which the step by fused programs, the step
// that is recorded (core/tesserack/optim/_rules.py) and the kernels of generated cards follow.
#pragma once
#include "ops/pointwise/fused.h"
#include <optional>
#include <string>
#include <string_view>

namespace ts::optim {

// 'param grad,STATES,NUMBERS:LINES': names, then lines between semicolons, of which those without a sign of equality
// are the results: the parameter and the state. Lines of numbers alone are computed once a call, in double.
class StepRule {
public:
  static constexpr size_t kMaxNumbers = 10, kMaxStates = 3;
  static const StepRule& of(std::string_view text); // ValueError; rules are few, and kept
  explicit StepRule(std::string_view text);
  size_t states() const { return states_; }
  size_t numbers() const { return numbers_; }
  // Of every parameter, one launch each, in place.
  void step(TensorList params, TensorList grads, std::span<const TensorList> states,
            std::span<const double> numbers) const;

private:
  std::string text_, variables_;       // variables: of the program
  std::vector<std::string> names_;     // of numbers, given ones first
  std::vector<pointwise::Expr> lines_; // of those that follow, over the ones before
  std::vector<size_t> used_;           // by the program
  std::vector<std::string> program_lines_;
  size_t states_ = 0, numbers_ = 0;
  std::optional<Fused> program_;
};

// The texts of tesserack/steps.hpp.
std::string sgd_rule(bool momentum, bool nesterov, bool first_step, bool decay);
std::string adam_rule(bool amsgrad, bool decay, bool decoupled, bool from_mean);

} // namespace ts::optim
