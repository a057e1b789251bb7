// Optimizer steps over lists of parameters, in place.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/optim/optim_lists.h"
#include "ops/optim/step_rule.h"

namespace ts {
namespace {

using namespace optim;

void check_sgd(TensorList params, TensorList grads, TensorList buffers, double, double momentum, double dampening,
               double, bool nesterov, bool, bool) {
  const char* op = "sgd_step_";
  check_params(op, params);
  check_state(op, "grads", params, grads);
  if (momentum != 0)
    check_state(op, "momentum_buffers", params, buffers);
  else
    TS_CHECK(buffers.empty(), op, ": expected no momentum_buffers without momentum, got ", buffers.size());
  TS_CHECK_VALUE(!nesterov || (momentum > 0 && dampening == 0), op,
                 ": Nesterov momentum requires a momentum and zero dampening");
  written(op, params);
  written(op, buffers);
}

void sgd_parts(TensorList params, TensorList grads, TensorList buffers, double lr, double momentum, double dampening,
               double weight_decay, bool nesterov, bool maximize, bool first_step) {
  const double numbers[] = {lr, momentum, dampening, weight_decay, maximize ? 1.0 : 0.0};
  StepRule::of(sgd_rule(momentum != 0, nesterov, first_step, weight_decay != 0))
      .step(params, grads, {&buffers, 1}, numbers);
}

void check_adam(TensorList params, TensorList grads, TensorList means, TensorList squares, TensorList tops,
                int64_t step, double, double, double, double, double, bool amsgrad, bool, bool) {
  const char* op = "adam_step_";
  check_params(op, params);
  check_state(op, "grads", params, grads);
  check_state(op, "exp_avgs", params, means);
  check_state(op, "exp_avg_sqs", params, squares);
  if (amsgrad)
    check_state(op, "max_exp_avg_sqs", params, tops);
  else
    TS_CHECK(tops.empty(), op, ": expected no max_exp_avg_sqs without amsgrad, got ", tops.size());
  TS_CHECK_VALUE(step >= 1, op, ": expected step to count from 1, got ", step);
  for (TensorList list : {params, means, squares, tops}) written(op, list);
}

void adam_parts(TensorList params, TensorList grads, TensorList means, TensorList squares, TensorList tops,
                int64_t step, double lr, double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
                bool maximize, bool decoupled) {
  const double numbers[] = {static_cast<double>(step), lr, beta1, beta2, weight_decay, eps, maximize ? 1.0 : 0.0};
  const TensorList states[] = {means, squares, tops};
  StepRule::of(adam_rule(amsgrad, weight_decay != 0, decoupled, beta1 > 0.5)).step(params, grads, states, numbers);
}

// The count is read when the step is made: a graph of it is one of every step.
void adam_counted(TensorList params, TensorList grads, TensorList means, TensorList squares, TensorList tops,
                  const Tensor& step, double lr, double beta1, double beta2, double weight_decay, double eps,
                  bool amsgrad, bool maximize, bool decoupled) {
  static const Op once("adam_step_");
  Results none;
  once.invoke(none, params, grads, means, squares, tops, host_number(step), lr, beta1, beta2, weight_decay, eps,
              amsgrad, maximize, decoupled);
}

} // namespace

TS_OPERATORS(optim) {
  def("sgd_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, float lr, float momentum, float "
      "dampening, float weight_decay, bool nesterov, bool maximize, bool first_step) -> ()")
      .rule<check_sgd>()
      .kernel("sgd_step_", "params grads momentum_buffers: contiguous",
              "lr changes, momentum, dampening, weight_decay, nesterov, maximize, first_step")
      .decompose<sgd_parts, 0>()
      .not_differentiable()
      .function_only()
      .doc("One step of stochastic gradient descent on every parameter, as torch.optim.SGD. momentum_buffers is empty "
           "without momentum; the first step sets them.");
  def("adam_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] "
      "max_exp_avg_sqs, int step, float lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, "
      "bool maximize, bool decoupled) -> ()")
      .rule<check_adam>()
      .kernel("adam_step_", "params grads exp_avgs exp_avg_sqs max_exp_avg_sqs: contiguous",
              "step changes, lr changes, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled")
      .decompose<adam_parts, 0>()
      .not_differentiable()
      .function_only()
      .doc("One step of Adam (Kingma and Ba, arXiv:1412.6980) on every parameter, as torch.optim.Adam; decoupled "
           "weight decay is AdamW (arXiv:1711.05101). step counts from 1.");
  def("_adam_step_counted_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] max_exp_avg_sqs, Tensor step, float lr, float beta1, float beta2, float weight_decay, float eps, "
      "bool amsgrad, bool maximize, bool decoupled) -> ()")
      .body<adam_counted>()
      .reads_host()
      .not_differentiable()
      .hidden()
      .doc("adam_step_ where the count of steps is a tensor, as in programs that are traced.");
}

} // namespace ts
