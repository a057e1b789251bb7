// Symbolic differentiation: one rule per scalar instruction.
#include "ops/pointwise/expr_operators.h"
#include "tensor/error.h"
#include <cmath>
#include <numbers>
#include <unordered_map>
#include <vector>

namespace ts::pointwise {
// Of lower.h, whose formulas are of functions named as those of expr_operators.h.
Expr lowered(uint16_t op, const Expr& a, const Expr& b, const Expr& c, int32_t compute);

namespace {

// d e.op(x) / d x; `e` itself is used where the value helps.
Expr unary_rule(const Expr& e, const Expr& x) {
  switch (e->op) {
  case TS_I_COPY: return num(1);
  case TS_I_NEG: return num(-1);
  case TS_I_ABS: return call(TS_I_SIGN, x);
  case TS_I_RECIP: return -(e * e);
  case TS_I_SQRT: return num(0.5) / e;
  case TS_I_RSQRT: return num(-0.5) * (e * e * e);
  case TS_I_EXP: return e;
  case TS_I_EXP2: return e * num(std::numbers::ln2);
  case TS_I_EXPM1: return e + num(1);
  case TS_I_LOG: return call(TS_I_RECIP, x);
  case TS_I_LOG2: return call(TS_I_RECIP, x * num(std::numbers::ln2));
  case TS_I_LOG10: return call(TS_I_RECIP, x * num(std::numbers::ln10));
  case TS_I_LOG1P: return call(TS_I_RECIP, x + num(1));
  case TS_I_SIN: return call(TS_I_COS, x);
  case TS_I_COS: return -call(TS_I_SIN, x);
  case TS_I_TAN: return num(1) + e * e;
  case TS_I_ASIN: return call(TS_I_RSQRT, num(1) - x * x);
  case TS_I_ACOS: return -call(TS_I_RSQRT, num(1) - x * x);
  case TS_I_ATAN: return call(TS_I_RECIP, num(1) + x * x);
  case TS_I_SINH: return call(TS_I_COSH, x);
  case TS_I_COSH: return call(TS_I_SINH, x);
  case TS_I_TANH: return num(1) - e * e;
  case TS_I_ASINH: return call(TS_I_RSQRT, x * x + num(1));
  case TS_I_ACOSH: return call(TS_I_RSQRT, x - num(1)) * call(TS_I_RSQRT, x + num(1)); // complex ones, too
  case TS_I_ATANH: return call(TS_I_RECIP, num(1) - x * x);
  case TS_I_ERF: return num(2 / std::sqrt(std::numbers::pi)) * call(TS_I_EXP, -(x * x));
  case TS_I_ERFC: return num(-2 / std::sqrt(std::numbers::pi)) * call(TS_I_EXP, -(x * x));
  case TS_I_ERFINV: return num(std::sqrt(std::numbers::pi) / 2) * call(TS_I_EXP, e * e);
  case TS_I_DIGAMMA: return trigamma(x);
  case TS_I_LGAMMA: return call(TS_I_DIGAMMA, x);
  case TS_I_SIGMOID: return e * (num(1) - e);
  case TS_I_SIGN:
  case TS_I_FLOOR:
  case TS_I_CEIL:
  case TS_I_TRUNC:
  case TS_I_ROUND:
  case TS_I_BITNOT:
  case TS_I_NOT: return num(0);
  default: return nullptr;
  }
}

Expr binary_rule(const Expr& e, const Expr& a, const Expr& b, const Expr& da, const Expr& db) {
  bool constant_exponent = b->kind == ExprNode::Constant;
  switch (e->op) {
  case TS_I_ADD: return da + db;
  case TS_I_SUB: return da - db;
  case TS_I_MUL: return da * b + a * db;
  case TS_I_DIV: return da / b - db * (e / b);
  case TS_I_MOD: return da - db * call(TS_I_FLOORDIV, a, b);
  case TS_I_FMOD: return da - db * call(TS_I_TRUNC, a / b);
  case TS_I_POW: {
    // x^0 is constant even at 0, and 0^y has derivative 0 in y for y >= 0.
    Expr by_base = constant_exponent ? b * call(TS_I_POW, a, num(b->value - 1))
                                     : select(call(TS_I_EQ, b, num(0)), num(0), b * call(TS_I_POW, a, b - num(1)));
    Expr flat = call(TS_I_MUL, call(TS_I_EQ, a, num(0)), call(TS_I_GE, b, num(0)));
    Expr by_exponent = select(flat, num(0), e * call(TS_I_LOG, a));
    return da * by_base + db * by_exponent;
  }
  // Ties share the gradient, as PyTorch's maximum and minimum do.
  case TS_I_MAX:
  case TS_I_MIN: {
    Expr wins = call(e->op == TS_I_MAX ? TS_I_GT : TS_I_LT, a, b), ties = call(TS_I_EQ, a, b);
    Expr share = select(ties, num(0.5), wins);
    return da * share + db * (num(1) - share);
  }
  case TS_I_ATAN2: return (da * b - db * a) / (a * a + b * b);
  case TS_I_HYPOT: return (da * a + db * b) / e;
  case TS_I_COPYSIGN: return da * select(call(TS_I_EQ, a, num(0)), num(0), e / a);
  case TS_I_FLOORDIV:
  case TS_I_EQ:
  case TS_I_NE:
  case TS_I_LT:
  case TS_I_LE:
  case TS_I_GT:
  case TS_I_GE:
  case TS_I_AND:
  case TS_I_OR:
  case TS_I_XOR:
  case TS_I_SHL:
  case TS_I_SHR: return num(0);
  default: return nullptr;
  }
}

class Differentiator {
public:
  explicit Differentiator(int variable) : variable_(variable) {}
  Expr run(const Expr& e) {
    if (e->kind == ExprNode::Constant) return num(0);
    if (e->kind == ExprNode::Variable) return num(e->variable == variable_ ? 1 : 0);
    if (!depends(e)) return num(0);
    Expr& memo = memo_[e.get()];
    if (!memo) memo = rule(e);
    return memo;
  }

private:
  Expr rule(const Expr& e) {
    if (e->op == TS_I_SELECT) return select(e->a, run(e->b), run(e->c));
    if (e->op == TS_I_FMA) return run(e->a) * e->b + e->a * run(e->b) + run(e->c);
    if (!e->b) {
      Expr inner = run(e->a);
      if (inner->kind == ExprNode::Constant && inner->value == 0) return inner;
      Expr slope = unary_rule(e, e->a);
      return slope ? inner * slope : by_parts(e);
    }
    Expr by_rule = binary_rule(e, e->a, e->b, run(e->a), run(e->b));
    return by_rule ? by_rule : by_parts(e);
  }
  // Of an instruction without a rule: of what stands for it where a device lacks it.
  Expr by_parts(const Expr& e) {
    Expr parts = lowered(e->op, e->a, e->b, e->c, TS_FLOAT64);
    TS_CHECK(parts, instruction_name(e->op), ": has no derivative");
    kept_.push_back(parts); // the memory of derivatives goes by address
    return run(parts);
  }
  // Whether the variable occurs in e.
  bool depends(const Expr& e) {
    if (!e || e->kind == ExprNode::Constant) return false;
    if (e->kind == ExprNode::Variable) return e->variable == variable_;
    if (auto known = depends_.find(e.get()); known != depends_.end()) return known->second;
    bool found = depends(e->a) || depends(e->b) || depends(e->c);
    return depends_[e.get()] = found;
  }
  int variable_;
  std::vector<Expr> kept_;
  std::unordered_map<const ExprNode*, Expr> memo_;
  std::unordered_map<const ExprNode*, bool> depends_;
};

} // namespace

Expr differentiate(const Expr& e, int variable) { return share_parts(Differentiator(variable).run(e)); }

} // namespace ts::pointwise
