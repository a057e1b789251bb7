// An optimizer's step compiled from its lines (tesserack/steps.hpp): read while compiling into nodes, of which numbers
// are computed once a call in double, and elements by one loop over a parameter, its gradient and its state.
#ifndef TESSERACK_CPU_STEP_PROGRAM_H
#define TESSERACK_CPU_STEP_PROGRAM_H

#include "half_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

enum class StepOp : uint8_t { Name, Number, Neg, Add, Sub, Mul, Div, Max, Sqrt, Exp, Expm1, Log, Copy };

struct StepNode {
  StepOp op;
  uint8_t a, b; // nodes, or the name's place
  double number;
};

struct StepLine {
  uint8_t node, name; // what it computes, and the name it gives it
  bool of_numbers;
};

// A step as it is read: names in the order of parameter, gradient, states, numbers, lines.
struct StepProgram {
  static constexpr size_t kNames = 28, kNodes = 80, kMaxStates = 3;
  StepNode nodes[kNodes] = {};
  StepLine lines[kNames] = {};
  uint8_t results[1 + kMaxStates] = {}; // nodes
  uint8_t n_names = 0, n_nodes = 0, n_lines = 0, n_results = 0, states = 0, numbers = 0;
};

// Reads a text; what is no step stops the compiler, by going past an end or by __builtin_unreachable.
class StepReader {
public:
  constexpr explicit StepReader(std::string_view text) : rest_(text) {
    name_all(',');
    program_.states = static_cast<uint8_t>(program_.n_names - 2);
    const uint8_t before = program_.n_names;
    name_all(',');
    program_.states = static_cast<uint8_t>(program_.states + program_.n_names - before);
    for (size_t k = 0; k < program_.n_names; ++k) varies_[k] = true;
    const uint8_t first = program_.n_names;
    name_all(':');
    program_.numbers = static_cast<uint8_t>(program_.n_names - first);
    while (!rest_.empty()) line();
  }
  constexpr const StepProgram& program() const { return program_; }

private:
  std::string_view rest_;
  StepProgram program_;
  std::string_view names_[StepProgram::kNames] = {};
  bool varies_[StepProgram::kNames] = {}, node_varies_[StepProgram::kNodes] = {}; // from element to element

  static constexpr bool in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  constexpr bool take(char c) {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  constexpr void need(char c) {
    if (!take(c)) __builtin_unreachable();
  }
  constexpr std::string_view word() {
    take('\0'); // spaces
    size_t end = 0;
    while (end < rest_.size() && in_word(rest_[end])) ++end;
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return found;
  }
  constexpr void name_all(char end) {
    while (!take(end)) names_[program_.n_names++] = word();
  }

  constexpr void line() {
    const std::string_view before = rest_, name = word();
    const bool named = take('=');
    if (!named) rest_ = before;
    const uint8_t node = sum();
    take(';');
    if (!named) {
      program_.results[program_.n_results++] = node;
      return;
    }
    names_[program_.n_names] = name;
    varies_[program_.n_names] = node_varies_[node];
    program_.lines[program_.n_lines++] = {node, program_.n_names++, !node_varies_[node]};
  }

  constexpr uint8_t add(StepOp op, uint8_t a, uint8_t b) {
    node_varies_[program_.n_nodes] = node_varies_[a] || node_varies_[b];
    program_.nodes[program_.n_nodes] = {op, a, b, 0};
    return program_.n_nodes++;
  }
  // A name or a number, once each.
  constexpr uint8_t leaf(StepOp op, uint8_t name, double number) {
    for (uint8_t k = 0; k < program_.n_nodes; ++k)
      if (const StepNode& node = program_.nodes[k]; node.op == op && node.a == name && node.number == number) return k;
    node_varies_[program_.n_nodes] = op == StepOp::Name && varies_[name];
    program_.nodes[program_.n_nodes] = {op, name, name, number};
    return program_.n_nodes++;
  }
  constexpr uint8_t sum() {
    uint8_t left = product();
    while (true) {
      if (take('+'))
        left = add(StepOp::Add, left, product());
      else if (take('-'))
        left = add(StepOp::Sub, left, product());
      else
        return left;
    }
  }
  constexpr uint8_t product() {
    uint8_t left = factor();
    while (true) {
      if (take('*'))
        left = add(StepOp::Mul, left, factor());
      else if (take('/'))
        left = add(StepOp::Div, left, factor());
      else
        return left;
    }
  }
  constexpr uint8_t factor() {
    if (take('-')) {
      const uint8_t of = factor();
      return add(StepOp::Neg, of, of);
    }
    if (take('(')) {
      const uint8_t inner = sum();
      need(')');
      return inner;
    }
    const std::string_view found = word();
    if (found.empty()) __builtin_unreachable();
    if (found[0] >= '0' && found[0] <= '9') return leaf(StepOp::Number, 0, whole(found));
    if (take('(')) return call(found);
    for (uint8_t k = 0; k < program_.n_names; ++k)
      if (names_[k] == found) return leaf(StepOp::Name, k, 0);
    __builtin_unreachable();
  }
  static constexpr double whole(std::string_view digits) {
    double number = 0;
    for (const char c : digits) number = number * 10 + (c >= '0' && c <= '9' ? c - '0' : (__builtin_unreachable(), 0));
    return number;
  }
  constexpr uint8_t call(std::string_view name) {
    constexpr std::pair<std::string_view, StepOp> kFunctions[] = {{"max", StepOp::Max}, {"sqrt", StepOp::Sqrt},
                                                                  {"exp", StepOp::Exp}, {"expm1", StepOp::Expm1},
                                                                  {"log", StepOp::Log}, {"copy", StepOp::Copy}};
    const uint8_t a = sum(), b = take(',') ? sum() : a;
    need(')');
    for (const auto& [known, op] : kFunctions)
      if (known == name) return add(op, a, b);
    __builtin_unreachable();
  }
};

template <class A> inline A step_operation(StepOp op, A a, A b) {
  switch (op) {
  case StepOp::Neg: return -a;
  case StepOp::Add: return a + b;
  case StepOp::Sub: return a - b;
  case StepOp::Mul: return a * b;
  case StepOp::Div: return a / b;
  case StepOp::Max: a = b > a ? b : a; return b == b ? a : b; // what is no number stays, as in maximum
  case StepOp::Sqrt: return std::sqrt(a);
  case StepOp::Exp: return std::exp(a);
  case StepOp::Expm1: return std::expm1(a);
  case StepOp::Log: return std::log(a);
  default: return a; // Copy
  }
}

// Values by a name's place.
template <class A> using StepValues = std::array<A, StepProgram::kNames>;

inline double number_of(const StepProgram& program, size_t at, const StepValues<double>& values) {
  const StepNode& node = program.nodes[at];
  if (node.op == StepOp::Name) return values[node.a];
  if (node.op == StepOp::Number) return node.number;
  const double a = number_of(program, node.a, values);
  return step_operation(node.op, a, node.b == node.a ? a : number_of(program, node.b, values));
}

// The given numbers and those that lines make of them.
inline StepValues<double> step_numbers(const StepProgram& program, std::span<const double> given) {
  StepValues<double> values{};
  std::ranges::copy(given, values.begin() + 2 + program.states);
  for (size_t k = 0; k < program.n_lines; ++k)
    if (program.lines[k].of_numbers) values[program.lines[k].name] = number_of(program, program.lines[k].node, values);
  return values;
}

// Step::program is the rule's; A what it computes in.
template <class Step, size_t At, class A> [[gnu::always_inline]] inline A element_of(const StepValues<A>& values) {
  constexpr StepNode node = Step::program.nodes[At];
  if constexpr (node.op == StepOp::Name)
    return values[node.a];
  else if constexpr (node.op == StepOp::Number)
    return static_cast<A>(node.number);
  else
    return step_operation(node.op, element_of<Step, node.a>(values), element_of<Step, node.b>(values));
}

template <class Step, class A, size_t... Line>
[[gnu::always_inline]] inline void element_lines(StepValues<A>& values, std::index_sequence<Line...>) {
  const auto one = [&]<size_t L>() {
    constexpr StepLine line = Step::program.lines[L];
    if constexpr (!line.of_numbers) values[line.name] = element_of<Step, line.node>(values);
  };
  (one.template operator()<Line>(), ...);
}

// The memory of a parameter, its gradient and the states that it has.
using StepMemory = std::array<std::byte*, 2 + StepProgram::kMaxStates>;

// The step of n elements of float or double.
template <class Step, class T>
void step_elements(const StepMemory& memory, int64_t n, const StepValues<double>& numbers) {
  constexpr size_t tensors = 2 + Step::program.states;
  StepValues<T> rounded{};
  for (size_t k = 0; k < rounded.size(); ++k) rounded[k] = static_cast<T>(numbers[k]);
  std::array<T*, tensors> rows;
  for (size_t k = 0; k < tensors; ++k) rows[k] = reinterpret_cast<T*>(memory[k]);
  const auto step = [&]<size_t... State>(std::index_sequence<State...>) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      StepValues<T> values = rounded;
      values[0] = rows[0][i];
      values[1] = rows[1][i];
      ((values[2 + State] = rows[2 + State][i]), ...);
      element_lines<Step>(values, std::make_index_sequence<Step::program.n_lines>{});
      rows[0][i] = element_of<Step, Step::program.results[0]>(values);
      ((rows[2 + State][i] = element_of<Step, Step::program.results[1 + State]>(values)), ...);
    }
  };
  step(std::make_index_sequence<tensors - 2>{});
}

// A step as a kernel takes it: its program, and its loops.
struct CompiledStep {
  const StepProgram& program;
  void (*single)(const StepMemory&, int64_t, const StepValues<double>&);
  void (*wide)(const StepMemory&, int64_t, const StepValues<double>&);
};

template <class Step>
constexpr CompiledStep kCompiledStep{Step::program, step_elements<Step, float>, step_elements<Step, double>};

template <class To, class From> void step_convert(To* __restrict to, const From* __restrict from, int64_t n) {
  if constexpr (requires { convert_row(to, from, n); }) {
    convert_row(to, from, n);
  } else {
    for (int64_t i = 0; i < n; ++i)
      if constexpr (is_half<To>)
        to[i] = store<To>(from[i]);
      else
        to[i] = load(from[i]);
  }
}

// Of halves: rows of them are made float, stepped, and rounded once.
template <class T>
void step_halves(const CompiledStep& step, const StepMemory& memory, int64_t n, const StepValues<double>& numbers) {
  constexpr int64_t kRow = 512;
  const size_t tensors = 2u + step.program.states;
  alignas(64) float rows[2 + StepProgram::kMaxStates][kRow];
  StepMemory row{};
  for (size_t k = 0; k < tensors; ++k) row[k] = reinterpret_cast<std::byte*>(rows[k]);
  for (int64_t begin = 0; begin < n; begin += kRow) {
    const int64_t count = std::min(kRow, n - begin);
    for (size_t k = 0; k < tensors; ++k) step_convert(rows[k], reinterpret_cast<const T*>(memory[k]) + begin, count);
    step.single(row, count, numbers);
    for (size_t k = 0; k < tensors; ++k)
      if (k != 1) step_convert(reinterpret_cast<T*>(memory[k]) + begin, rows[k], count);
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_STEP_PROGRAM_H
