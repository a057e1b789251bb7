// The scalar language of pointwise operators: expressions over argument names, differentiated symbolically and
// compiled to the instruction lists of abi.h. Grammar, loosest first:
//   a == b, != < <= > >=     a + b, a - b     a * b, a / b     -a     name, number, name(expr, ...), (expr)
// Functions are the scalar instructions in lower case: exp(x), max(a, b), select(c, a, b), floordiv(a, b), ...
#pragma once
#include "tesserack/abi.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ts::pointwise {

// Expressions share their parts: what walks them remembers where it was.
struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;

struct ExprNode {
  enum Kind : uint8_t { Variable, Constant, Instruction } kind;
  uint16_t op = 0;     // Instruction
  int variable = 0;    // Variable
  double value = 0;    // Constant
  int64_t integer = 0; // of one that is a whole number (uint64: its bits): exact where a double is not
  Expr a, b, c;
};

Expr variable(int index);
Expr constant(double value);
Expr constant(int64_t value);
inline Expr constant(int value) { return constant(static_cast<double>(value)); }
// Builds with local simplification (x * 1, x + 0, constants folded for the arithmetic instructions).
Expr instruction(uint16_t op, Expr a, Expr b = nullptr, Expr c = nullptr);

// As it stands: what instruction() makes simpler may differ for NaN, infinities and the sign of 0.
Expr exactly(uint16_t op, Expr a, Expr b = nullptr, Expr c = nullptr);

int instruction_arity(uint16_t op);
std::string_view instruction_name(uint16_t op); // "exp"
int find_instruction(std::string_view name);    // -1 if unknown

// Names resolve to their index in `variables`. ValueError at the place of a mistake.
Expr parse(std::string_view text, std::span<const std::string> variables);
// The derivative of digamma, to the accuracy of float64.
Expr trigamma(const Expr& x);
// Hurwitz's zeta function for s > 1, q > 0.
Expr zeta(const Expr& s, const Expr& q);
// d expr / d variable.
Expr differentiate(const Expr& expr, int variable);
Expr substitute(const Expr& expr, int variable, const Expr& by);
// Variable k becomes variable to[k]; every variable used has its place in `to`.
Expr renumber(const Expr& expr, std::span<const int> to);
// Equal parts become one.
Expr share_parts(const Expr& expr);
bool uses(const Expr& expr, int variable);
// As it would be declared; parts of a long one are named: "t0 = exp(x); mul(t0, t0)".
std::string to_string(const Expr& expr, std::span<const std::string> variables);

// A compiled program; `inputs` says which variable stands in each input register.
struct Program {
  std::vector<int> inputs;
  ts_program c{};
  std::vector<double> constants;
  std::vector<int64_t> integers; // of the constants
  std::vector<ts_instruction> instructions;
  std::vector<uint16_t> outputs;
  std::string text;
};
// `all`: every variable is an input, used or not.
std::unique_ptr<const Program> compile(std::span<const Expr> outputs, std::span<const std::string> variables,
                                       bool all = false);
// Of one whose registers and text stand: `c` for kernels, with the number that equal programs share.
void finish_program(Program& p);

} // namespace ts::pointwise
