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
