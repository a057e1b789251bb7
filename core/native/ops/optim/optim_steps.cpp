// Optimizer steps that are one pointwise program over a parameter, its gradient and its state.
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/optim/optim_lists.h"
#include "ops/pointwise/fused.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include <array>
#include <map>
#include <string_view>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kCode = "one fused program a parameter, chosen by the rule's name";

using namespace optim;

constexpr size_t kMaxNumbers = 10;
const char* const kName = "_optimizer_step_";

// How many lists of state a rule has, how many numbers, and the program: results are the parameter and its state.
struct Rule {
  Rule(size_t n_states, size_t n_numbers, const char* variables, std::initializer_list<const char*> lines)
      : states(n_states), numbers(n_numbers), program(variables, lines) {}
  size_t states, numbers;
  Fused program;
};

// Variables: p parameter, g gradient, s its sign (-1 maximizes), w weight decay, e epsilon, l learning rate; states and
// other numbers as the optimizers' pages in the package say.
#define TS_GRAD "k=s * g + w * p"
#define TS_MOMENTS "a=m + b * (k - m)", "h=c * v + f * k * k"
#define TS_SQUARES "h=c * v + f * k * k"
const Rule* find_rule(std::string_view name) {
  static const std::map<std::string_view, Rule> rules = [] {
    std::map<std::string_view, Rule> r;
    auto add = [&](const char* rule, size_t states, size_t numbers, const char* variables,
                   std::initializer_list<const char*> lines) {
      r.try_emplace(rule, states, numbers, variables, lines);
    };
    add("adadelta", 2, 6, "p g v u s w c f e l",
        {TS_GRAD, TS_SQUARES, "d=sqrt(u + e) / sqrt(h + e) * k", "p - l * d", "h", "c * u + f * d * d"});
    add("adagrad", 1, 4, "p g v s w l e", {TS_GRAD, "h=v + k * k", "p - l * k / (sqrt(h) + e)", "h"});
    add("adamax", 2, 6, "p g m u s w b c l e",
        {TS_GRAD, "a=m + b * (k - m)", "h=max(c * u, abs(k) + e)", "p - l * a / h", "a", "h"});
    add("nadam", 2, 10, "p g m v s w d b c f z x y e",
        {TS_GRAD, TS_MOMENTS, "n=sqrt(h / z) + e", "p * d - x * k / n - y * a / n", "a", "h"});
    add("radam", 2, 8, "p g m v s w d b c f l e", {TS_GRAD, TS_MOMENTS, "p * d - l * a / (sqrt(h) + e)", "a", "h"});
    add("radam_early", 2, 7, "p g m v s w d b c f l", {TS_GRAD, TS_MOMENTS, "p * d - l * a", "a", "h"});
    add("rmsprop", 1, 6, "p g v s w c f l e", {TS_GRAD, TS_SQUARES, "p - l * k / (sqrt(h) + e)", "h"});
    add("rmsprop_momentum", 2, 7, "p g v o s w c f l e t",
        {TS_GRAD, TS_SQUARES, "q=t * o + k / (sqrt(h) + e)", "p - l * q", "h", "q"});
    add("rmsprop_centered", 2, 6, "p g v m s w c f l e",
        {TS_GRAD, TS_SQUARES, "a=m + f * (k - m)", "p - l * k / (sqrt(h - a * a) + e)", "h", "a"});
    add("rmsprop_centered_momentum", 3, 7, "p g v m o s w c f l e t",
        {TS_GRAD, TS_SQUARES, "a=m + f * (k - m)", "q=t * o + k / (sqrt(h - a * a) + e)", "p - l * q", "h", "a", "q"});
    add("rprop", 2, 5, "p g v u s t x y z",
        {"k=s * g", "n=k * v", "h=min(max(u * select(n > 0, t, select(n < 0, x, 1)), y), z)", "j=select(n < 0, 0, k)",
         "p - sign(j) * h", "j", "h"});
    add("asgd", 1, 5, "p g v s w d l z", {TS_GRAD, "a=p * d - l * k", "a", "select(z < 1, v + z * (a - v), a)"});
    return r;
  }();
  auto found = rules.find(name);
  return found == rules.end() ? nullptr : &found->second;
}

void check_step(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second,
                TensorList third) {
  const Rule* known = find_rule(rule);
  TS_CHECK_VALUE(known, kName, ": expected a known rule, got ", rule);
  check_params(kName, params);
  check_state(kName, "grads", params, grads);
  std::array<TensorList, 3> states{first, second, third};
  for (size_t k = 0; k < states.size(); ++k) {
    if (k < known->states)
      check_state(kName, "state", params, states[k]);
    else
      TS_CHECK(states[k].empty(), kName, ": ", rule, " has ", known->states, " lists of state, got more");
    written(kName, states[k]);
  }
  written(kName, params);
}
void step_rule(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second,
               TensorList third, double, double, double, double, double, double, double, double, double, double) {
  check_step(rule, params, grads, first, second, third);
}

Tensor flat(const Tensor& t) {
  int64_t sizes[] = {t.numel()}, strides[] = {1};
  return alias(t, sizes, strides, t->byte_offset);
}

void step(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second, TensorList third,
          double n0, double n1, double n2, double n3, double n4, double n5, double n6, double n7, double n8,
          double n9) {
  const Rule& known = *find_rule(rule);
  const std::array<double, kMaxNumbers> numbers{n0, n1, n2, n3, n4, n5, n6, n7, n8, n9};
  Contiguous p(params), g(grads), a(first), b(second), c(third);
  const Contiguous* states[] = {&a, &b, &c};
  for (size_t k = 0; k < p.list().size(); ++k) {
    std::vector<Tensor> results{flat(p.list()[k])}, operands{results[0], flat(g.list()[k])};
    for (size_t s = 0; s < known.states; ++s) {
      results.push_back(flat(states[s]->list()[k]));
      operands.push_back(results.back());
    }
    known.program.run(results, operands, {numbers.data(), known.numbers});
  }
  for (const Contiguous* list : {&p, &a, &b, &c}) list->write_back();
}

} // namespace

TS_OPERATORS(optim_steps) {
  def("_optimizer_step_(str rule, Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] first, Tensor(c!)[] second, "
      "Tensor(d!)[] third, float n0=0, float n1=0, float n2=0, float n3=0, float n4=0, float n5=0, float n6=0, float "
      "n7=0, float n8=0, float n9=0) -> ()")
      .rule<step_rule>()
      .computation<step, 0>(kCode)
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("One step on every parameter by a rule such as 'rmsprop': one launch each. first, second and third are the "
           "lists of state that the rule has, n0 to n9 its numbers.");
}

} // namespace ts
