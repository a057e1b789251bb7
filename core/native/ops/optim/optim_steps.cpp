// Optimizer steps that are one pointwise program over a parameter, its gradient and its state.
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/optim/optim_lists.h"
#include "ops/optim/step_rule.h"
#include <array>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kOptimStepsCode = "one fused program a parameter, which the rule's text is";

using namespace optim;

const char* const kOptimStepsName = "_optimizer_step_";

void check_step(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second,
                TensorList third) {
  const StepRule& known = StepRule::of(rule);
  check_params(kOptimStepsName, params);
  check_state(kOptimStepsName, "grads", params, grads);
  std::array<TensorList, 3> states{first, second, third};
  for (size_t k = 0; k < states.size(); ++k) {
    if (k < known.states())
      check_state(kOptimStepsName, "state", params, states[k]);
    else
      TS_CHECK(states[k].empty(), kOptimStepsName, ": the rule has ", known.states(), " lists of state, got more");
    written(kOptimStepsName, states[k]);
  }
  written(kOptimStepsName, params);
}
void step_rule(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second,
               TensorList third, double, double, double, double, double, double, double, double, double, double) {
  check_step(rule, params, grads, first, second, third);
}

void step(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second, TensorList third,
          double n0, double n1, double n2, double n3, double n4, double n5, double n6, double n7, double n8,
          double n9) {
  const std::array<double, StepRule::kMaxNumbers> numbers{n0, n1, n2, n3, n4, n5, n6, n7, n8, n9};
  const TensorList states[] = {first, second, third};
  StepRule::of(rule).step(params, grads, states, numbers);
}

} // namespace

TS_OPERATORS(optim_steps) {
  def("_optimizer_step_(str rule, Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] first, Tensor(c!)[] second, "
      "Tensor(d!)[] third, float n0=0, float n1=0, float n2=0, float n3=0, float n4=0, float n5=0, float n6=0, float "
      "n7=0, float n8=0, float n9=0) -> ()")
      .rule<step_rule>()
      .computation<step, 0>(kOptimStepsCode)
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("One step on every parameter by a rule, 'param grad,m,rate:m_=m + grad;param - rate * m_;m_': one launch "
           "each. "
           "first, second and third are the lists of state that the rule has, n0 to n9 its numbers.");
}

} // namespace ts
