// Optimizer steps that are one pointwise program over a parameter, its gradient and its state.
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/optim/optim_lists.h"
#include "ops/pointwise/fused.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kCode = "one fused program a parameter, which the rule's text is";

using namespace optim;

constexpr size_t kMaxNumbers = 10, kMaxStates = 3, kLongestRule = 2000;
const char* const kName = "_optimizer_step_";

// A rule as the package writes it (core/tesserack/optim/_rules.py): names of the parameter and its gradient, of the
// state, of numbers, then lines, of which those without a sign of equality are the results: the parameter and the
// state.
struct Rule {
  std::string text, variables;
  std::vector<std::string> lines;
  size_t states = 0, numbers = 0;
  std::optional<Fused> program;

  explicit Rule(std::string_view given);
};

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

size_t count_words(const std::string& text) {
  std::istringstream in(text);
  return static_cast<size_t>(std::distance(std::istream_iterator<std::string>(in), {}));
}

Rule::Rule(std::string_view given) : text(given) {
  size_t colon = text.find(':');
  TS_CHECK_VALUE(colon != text.npos && text.size() <= kLongestRule, kName,
                 ": expected a rule 'names:lines' of at most ", kLongestRule, " characters, got '", text.substr(0, 80),
                 "'");
  std::vector<std::string> groups = split(std::string_view(text).substr(0, colon), ',');
  groups.resize(3);
  lines = split(std::string_view(text).substr(colon + 1), ';');
  states = count_words(groups[1]);
  numbers = count_words(groups[2]);
  variables = groups[0] + ' ' + groups[1] + ' ' + groups[2];
  auto results = static_cast<size_t>(
      std::ranges::count_if(lines, [](const std::string& line) { return line.find('=') == line.npos; }));
  TS_CHECK_VALUE(count_words(groups[0]) == 2 && states <= kMaxStates && numbers <= kMaxNumbers && results == states + 1,
                 kName, ": expected a rule of a parameter, its gradient, at most ", kMaxStates, " states and ",
                 kMaxNumbers, " numbers, with a result for the parameter and each state, got '", text, "'");
  std::vector<const char*> pointers;
  for (const std::string& line : lines) pointers.push_back(line.c_str());
  program.emplace(variables.c_str(), std::move(pointers));
}

// Rules are few, and kept.
const Rule& rule_of(std::string_view text) {
  static std::mutex mutex;
  static auto* rules = new std::map<std::string_view, std::unique_ptr<const Rule>>;
  std::lock_guard lock(mutex);
  if (auto found = rules->find(text); found != rules->end()) return *found->second;
  auto made = std::make_unique<const Rule>(text);
  std::string_view key = made->text;
  return *rules->try_emplace(key, std::move(made)).first->second;
}

void check_step(const char* rule, TensorList params, TensorList grads, TensorList first, TensorList second,
                TensorList third) {
  const Rule& known = rule_of(rule);
  check_params(kName, params);
  check_state(kName, "grads", params, grads);
  std::array<TensorList, 3> states{first, second, third};
  for (size_t k = 0; k < states.size(); ++k) {
    if (k < known.states)
      check_state(kName, "state", params, states[k]);
    else
      TS_CHECK(states[k].empty(), kName, ": the rule has ", known.states, " lists of state, got more");
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
  const Rule& known = rule_of(rule);
  const std::array<double, kMaxNumbers> numbers{n0, n1, n2, n3, n4, n5, n6, n7, n8, n9};
  Contiguous p(params), g(grads), a(first), b(second), c(third);
  const Contiguous* states[] = {&a, &b, &c};
  for (size_t k = 0; k < p.list().size(); ++k) {
    std::vector<Tensor> results{flat(p.list()[k])}, operands{results[0], flat(g.list()[k])};
    for (size_t s = 0; s < known.states; ++s) {
      results.push_back(flat(states[s]->list()[k]));
      operands.push_back(results.back());
    }
    known.program->run(results, operands, {numbers.data(), known.numbers});
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
      .doc("One step on every parameter by a rule, 'param grad,m,rate:m_=m + grad;param - rate * m_;m_': one launch "
           "each. "
           "first, second and third are the lists of state that the rule has, n0 to n9 its numbers.");
}

} // namespace ts
