#include "dispatch/launch.h"
#include "harness.h"
#include "ops/pointwise/expr.h"
#include <cmath>

using namespace ts::pointwise;

namespace {

const std::vector<std::string> kNames = {"x", "y"};

double value(const Expr& e, double x, double y) {
  if (e->kind == ExprNode::Constant) return e->value;
  if (e->kind == ExprNode::Variable) return e->variable ? y : x;
  double a = value(e->a, x, y), b = e->b ? value(e->b, x, y) : 0, c = e->c ? value(e->c, x, y) : 0;
  switch (e->op) {
  case TS_I_NEG: return -a;
  case TS_I_EXP: return std::exp(a);
  case TS_I_LOG: return std::log(a);
  case TS_I_SIN: return std::sin(a);
  case TS_I_COS: return std::cos(a);
  case TS_I_TANH: return std::tanh(a);
  case TS_I_ATAN: return std::atan(a);
  case TS_I_ERF: return std::erf(a);
  case TS_I_SIGMOID: return 1 / (1 + std::exp(-a));
  case TS_I_RECIP: return 1 / a;
  case TS_I_ADD: return a + b;
  case TS_I_SUB: return a - b;
  case TS_I_MUL: return a * b;
  case TS_I_DIV: return a / b;
  case TS_I_POW: return std::pow(a, b);
  case TS_I_MAX: return std::max(a, b);
  case TS_I_EQ: return a == b;
  case TS_I_GT: return a > b;
  case TS_I_GE: return a >= b;
  case TS_I_SELECT: return a != 0 ? b : c;
  default: harness::fail(__FILE__, __LINE__, std::string(instruction_name(e->op)));
  }
}

} // namespace

TEST(derivatives_match_finite_differences) {
  for (const char* text :
       {"x * y + 3", "x / y", "exp(x) * sin(y)", "pow(x, y)", "tanh(x * y) - log(x)", "select(x > y, x * x, y)",
        "max(x, y)", "sigmoid(x) * atan(y)", "erf(x - y)", "-x * -y", "pow(x, 3)", "x - y / (1 + x)"}) {
    Expr e = parse(text, kNames);
    double x = 1.3, y = 0.7, h = 1e-6;
    CHECK_CLOSE(value(differentiate(e, 0), x, y), (value(e, x + h, y) - value(e, x - h, y)) / (2 * h), 1e-6);
    CHECK_CLOSE(value(differentiate(e, 1), x, y), (value(e, x, y + h) - value(e, x, y - h)) / (2 * h), 1e-6);
    Expr dxx = differentiate(differentiate(e, 0), 0);
    CHECK_CLOSE(value(dxx, x, y), (value(e, x + 1e-4, y) - 2 * value(e, x, y) + value(e, x - 1e-4, y)) / 1e-8, 1e-5);
  }
}

TEST(simplification_leaves_no_neutral_elements) {
  CHECK(to_string(parse("x * 1 + 0", kNames), kNames) == "x");
  CHECK(to_string(differentiate(parse("x + y", kNames), 0), kNames) == "1");
  CHECK(to_string(differentiate(parse("x * y", kNames), 0), kNames) == "y");
}

TEST(common_subexpressions_are_computed_once) {
  Expr e = parse("exp(x) * exp(x) + exp(x)", kNames);
  CHECK(compile({&e, 1}, kNames)->instructions.size() == 3);
}

TEST(mistakes_name_their_place) {
  CHECK_ERROR(parse("x + ", kNames), "a value");
  CHECK_ERROR(parse("x + z", kNames), "a known name at 'z'");
  CHECK_ERROR(parse("exp(x, y)", kNames), "1 arguments to exp");
  CHECK_ERROR(parse("(x", kNames), "')'");
  CHECK_ERROR(parse("x y", kNames), "an operator");
}

TEST(high_derivatives_stay_small) {
  // As a tree, the ninth would have more parts than fit in memory.
  Expr e = parse("exp(sin(x * y) * tanh(x)) / (1 + x * x)", kNames);
  for (int order = 0; order < 9; ++order) e = differentiate(e, 0);
  CHECK(uses(e, 0) && uses(e, 1));
  CHECK(compile({&e, 1}, kNames)->instructions.size() < 20000);
  CHECK(to_string(e, kNames).size() < 2000000);
}

TEST(equal_programs_have_one_number) {
  auto id = [](const char* text) {
    Expr e = parse(text, kNames);
    return compile({&e, 1}, kNames)->c.id;
  };
  CHECK(id("x * exp(x)") == id("y * exp(y)"));
  CHECK(id("x * exp(y)") != id("y * exp(y)") && id("x + 1") != id("x + 2"));
}

TEST(long_expressions_name_their_parts) {
  Expr e = variable(0);
  for (int k = 0; k < 20; ++k) e = instruction(TS_I_MUL, e, e);
  std::string text = to_string(e, kNames);
  CHECK(text.starts_with("t0 = mul(x, x); t1 = mul(t0, t0); ") && text.ends_with("; t19"));
}

TEST(integer_constants_have_64_bits) {
  Expr e = parse("x + 1152921504606846977", kNames);
  std::unique_ptr<const Program> p = compile({&e, 1}, kNames);
  CHECK(p->c.n_constants == 1 && p->c.integers[0] == 1152921504606846977 && p->c.constants[0] == 0x1p60);
  CHECK(p->text == "add(x, 1152921504606846977)");
  Expr near = parse("x + 1152921504606846976", kNames);
  CHECK(compile({&near, 1}, kNames)->c.id != p->c.id); // the doubles are equal
  // Folding does not go through doubles that cannot hold the sum.
  Expr sum = parse("x + (1152921504606846976 + 1)", kNames);
  std::unique_ptr<const Program> s = compile({&sum, 1}, kNames);
  CHECK(s->c.n_constants == 2 && s->c.n_instructions == 2);
  Expr half = parse("x * 2.5", kNames);
  CHECK(compile({&half, 1}, kNames)->c.integers[0] == 2);
}

TEST(every_instruction_ends_in_basic_ones) {
  static constexpr uint16_t kBasic[] = {TS_I_COPY, TS_I_ADD, TS_I_SUB, TS_I_MUL,    TS_I_DIV,   TS_I_FMOD,
                                        TS_I_POW,  TS_I_EQ,  TS_I_LT,  TS_I_SELECT, TS_I_FLOOR, TS_I_SQRT,
                                        TS_I_EXP,  TS_I_LOG, TS_I_SIN, TS_I_COS,    TS_I_ATAN,  TS_I_AND,
                                        TS_I_OR,   TS_I_XOR, TS_I_SHL, TS_I_SHR};
  uint64_t basic[TS_INSTRUCTION_WORDS] = {};
  for (uint16_t op : kBasic) basic[op / 64] |= uint64_t{1} << (op % 64);
  Expr x = variable(0), y = variable(1), z = variable(2);
  const std::vector<std::string> names = {"x", "y", "z"};
  for (uint16_t op = 0; op < TS_NUM_INSTRUCTIONS; ++op) {
    int arity = instruction_arity(op);
    Expr e = exactly(op, x, arity > 1 ? y : nullptr, arity > 2 ? z : nullptr);
    std::unique_ptr<const Program> p = compile({&e, 1}, names, true);
    bool integers_only = op >= TS_I_AND && op <= TS_I_SHR;
    if (op == TS_I_BITNOT || integers_only) continue;
    const ts_program* lowered = ts::lower_program(p->c, basic, TS_FLOAT32);
    CHECK(lowered == ts::lower_program(p->c, basic, TS_FLOAT32) && lowered->n_inputs == 3);
    for (int k = 0; k < lowered->n_instructions; ++k) {
      uint16_t used = lowered->instructions[k].op;
      if (!(basic[used / 64] >> (used % 64) & 1)) harness::fail(__FILE__, __LINE__, std::string(instruction_name(op)));
    }
  }
}
