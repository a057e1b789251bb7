// What a step of SGD and of Adam computes, as lines of arithmetic: the one statement of each. The core runs, records
// and shows them; a card compiles them into its kernels.
//
// 'param grad,STATES,NUMBERS:LINES': names, then lines between semicolons, of which those without a sign of equality
// are the results: the parameter and each state. Lines of numbers alone are computed once a call, in double.
#ifndef TESSERACK_STEPS_HPP
#define TESSERACK_STEPS_HPP

#include <cstddef>
#include <string_view>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {

// A text that is made while compiling as well as in a call.
struct StepText {
  static constexpr size_t kLongest = 800;
  char characters[kLongest] = {};
  size_t size = 0;

  constexpr StepText& operator+=(std::string_view more) {
    for (const char c : more) characters[size++] = c; // past the end it is no constant expression
    return *this;
  }
  constexpr std::string_view view() const { return {characters, size}; }
};

// Numbers: lr, momentum, dampening, weight_decay, maximize (0 or 1).
constexpr StepText sgd_step_text(bool momentum, bool nesterov, bool first_step, bool decay) {
  StepText rule;
  rule += momentum ? "param grad,momentum_buffer,lr momentum dampening weight_decay maximize:"
                   : "param grad,,lr momentum dampening weight_decay maximize:";
  rule += "sign=1 - 2 * maximize;k=sign * grad";
  if (decay) rule += " + weight_decay * param"; // not where it is 0: zero times an infinite parameter is no number
  if (momentum && first_step) rule += ";momentum_buffer_=copy(k)";
  if (momentum && !first_step) rule += ";rest=1 - dampening;momentum_buffer_=momentum * momentum_buffer + rest * k";
  rule += !momentum  ? ";param - lr * k"
          : nesterov ? ";param - lr * (k + momentum * momentum_buffer_)"
                     : ";param - lr * momentum_buffer_";
  if (momentum) rule += ";momentum_buffer_";
  return rule;
}

// Whether a weight decay, where it is not 0, is added to the gradient or shrinks the parameter apart from it.
enum class StepDecay { None, Coupled, Decoupled };

// Numbers: step (from 1), lr, beta1, beta2, weight_decay, eps, maximize (0 or 1). `from_mean`, where beta1
// is over a half: the mean moves from where it was towards the gradient, else from the gradient back, which is exact
// where beta1 is 0. expm1 keeps the digits of 1 - beta^step while the count is small.
constexpr StepText adam_step_text(bool amsgrad, StepDecay decay, bool from_mean) {
  StepText rule;
  rule += "param grad,exp_avg exp_avg_sq";
  if (amsgrad) rule += " max_exp_avg_sq";
  rule += ",step lr beta1 beta2 weight_decay eps maximize:"
          "sign=1 - 2 * maximize;rest1=1 - beta1;rest2=1 - beta2;"
          "rate=lr / -expm1(step * log(beta1));widen=1 / sqrt(-expm1(step * log(beta2)));";
  if (decay == StepDecay::Decoupled) rule += "shrink=1 - lr * weight_decay;";
  rule += "k=sign * grad";
  if (decay == StepDecay::Coupled) rule += " + weight_decay * param";
  rule += from_mean ? ";exp_avg_=exp_avg + rest1 * (k - exp_avg)" : ";exp_avg_=k - beta1 * (k - exp_avg)";
  rule += ";exp_avg_sq_=beta2 * exp_avg_sq + rest2 * k * k";
  if (amsgrad) rule += ";max_exp_avg_sq_=max(max_exp_avg_sq, exp_avg_sq_)";
  rule += decay == StepDecay::Decoupled ? ";shrink * param" : ";param";
  rule += amsgrad ? " - rate * (exp_avg_ / (sqrt(max_exp_avg_sq_) * widen + eps));exp_avg_;exp_avg_sq_;max_exp_avg_sq_"
                  : " - rate * (exp_avg_ / (sqrt(exp_avg_sq_) * widen + eps));exp_avg_;exp_avg_sq_";
  return rule;
}

} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_STEPS_HPP
