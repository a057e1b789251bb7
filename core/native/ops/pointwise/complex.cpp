#include "ops/pointwise/complex.h"
#include "ops/pointwise/expr_operators.h"
#include <numbers>
#include <unordered_map>

namespace ts::pointwise {
namespace {

bool is_constant(const Expr& e) { return e->kind == ExprNode::Constant; }

// Functions whose value of a real number may be complex.
bool leaves_reals(uint16_t op) {
  switch (op) {
  case TS_I_SQRT:
  case TS_I_RSQRT:
  case TS_I_LOG:
  case TS_I_LOG2:
  case TS_I_LOG10:
  case TS_I_LOG1P:
  case TS_I_ASIN:
  case TS_I_ACOS:
  case TS_I_ACOSH:
  case TS_I_ATANH:
  case TS_I_POW: return true;
  default: return false;
  }
}

Pair negative(const Pair& z) { return {-z.re, z.im ? -z.im : nullptr}; }
Pair swapped(const Pair& z) { return {z.im, z.re}; }
Pair scaled(const Pair& z, double by) { return {z.re * num(by), z.im * num(by)}; }
Pair sum(const Pair& a, const Pair& b) { return {a.re + b.re, a.im && b.im ? a.im + b.im : a.im ? a.im : b.im}; }
Pair full(const Pair& z) { return {z.re, z.im ? z.im : num(0)}; }

// Of a full pair. f(iz)/i for the circular functions: sin(x + iy) has the parts of sinh(y + ix) exchanged.
Pair unary(uint16_t op, const Pair& z) {
  switch (op) {
  case TS_I_COPY: return z;
  case TS_I_NEG: return negative(z);
  case TS_I_RECIP: return complex::divide({num(1), nullptr}, z);
  case TS_I_SQRT: return complex::sqrt(z);
  case TS_I_RSQRT: return complex::divide({num(1), nullptr}, complex::sqrt(z));
  case TS_I_EXP: return complex::exp(z);
  case TS_I_EXP2: return complex::exp(scaled(z, std::numbers::ln2));
  case TS_I_EXPM1: return complex::expm1(z);
  case TS_I_LOG: return complex::log(z);
  case TS_I_LOG2: return scaled(complex::log(z), std::numbers::log2e);
  case TS_I_LOG10: return scaled(complex::log(z), std::numbers::log10e);
  case TS_I_LOG1P: return complex::log1p(z);
  case TS_I_SINH: return complex::sinh(z);
  case TS_I_COSH: return complex::cosh(z);
  case TS_I_TANH: return complex::tanh(z);
  case TS_I_SIN: return swapped(complex::sinh(swapped(z)));
  case TS_I_COS: {
    Pair c = complex::cosh(swapped(z));
    return {c.re, -c.im};
  }
  case TS_I_TAN: return swapped(complex::tanh(swapped(z)));
  case TS_I_ASIN: return complex::asin(z);
  case TS_I_ACOS: return complex::acos(z);
  case TS_I_ACOSH: return complex::acosh(z);
  case TS_I_ATANH: return complex::atanh(z);
  case TS_I_ASINH: return swapped(complex::asin(swapped(z)));
  case TS_I_ATAN: return swapped(complex::atanh(swapped(z)));
  case TS_I_SIGMOID: {
    Pair e = complex::exp(negative(z));
    return complex::divide({num(1), nullptr}, {num(1) + e.re, e.im});
  }
  case TS_I_NOT: return {call(TS_I_NOT, z.re) * call(TS_I_NOT, z.im), nullptr};
  default: return {};
  }
}

Pair equality(const Pair& a, const Pair& b) {
  Expr same = call(TS_I_EQ, a.re, b.re);
  if (!a.im && !b.im) return {same, nullptr};
  return {same * call(TS_I_EQ, full(a).im, full(b).im), nullptr};
}

// A real operand as the complex number that PyTorch makes of it, whose zero meets infinities and NaN; no literal zero,
// which the product would be simplified by. (Not of NaN, where every part of the result is NaN anyway.)
Pair widened(const Pair& r) { return {r.re, call(TS_I_NE, r.re, r.re)}; }
Pair divide_by_real(const Pair& z, const Expr& r) {
  Expr zero = call(TS_I_NE, r, r), by_zero = call(TS_I_EQ, r, num(0));
  return {(z.re + select(by_zero, num(0), z.im * zero)) / r, (z.im - select(by_zero, num(0), z.re * zero)) / r};
}
// Products and quotients of an operand of the call with a real one; constants of formulas only scale.
Pair with_real_operand(uint16_t op, const Pair& a, const Pair& b, bool a_is_operand, bool b_is_operand) {
  if (op == TS_I_MUL && !a.im && a_is_operand) return complex::multiply(widened(a), b);
  if (op == TS_I_MUL && !b.im && b_is_operand) return complex::multiply(a, widened(b));
  if (op == TS_I_DIV && !b.im && b_is_operand) return divide_by_real(a, b.re);
  return {};
}

Pair binary(uint16_t op, const Pair& a, const Pair& b) {
  switch (op) {
  case TS_I_ADD: return sum(a, b);
  case TS_I_SUB: return sum(a, negative(b));
  case TS_I_MUL: return complex::multiply(a, b);
  case TS_I_DIV: return complex::divide(a, b);
  case TS_I_POW: return complex::power(full(a), b);
  case TS_I_EQ: return equality(a, b);
  case TS_I_NE: return {call(TS_I_NOT, equality(a, b).re), nullptr};
  // Against a constant, in derivatives: which side of it the real part lies.
  case TS_I_LT:
  case TS_I_LE:
  case TS_I_GT:
  case TS_I_GE:
    if (is_constant(a.re) || is_constant(b.re)) return {call(op, a.re, b.re), nullptr};
    return {};
  default: return {};
  }
}

class Lowering {
public:
  explicit Lowering(const ComplexView& view) : view_(view) {}
  Pair run(const Expr& e) {
    if (e->kind == ExprNode::Constant) return {e, nullptr};
    if (e->kind == ExprNode::Variable) return operand(e->variable);
    auto [it, fresh] = memo_.try_emplace(e.get());
    if (!fresh) return it->second;
    Pair p = rule(e);
    return memo_[e.get()] = p;
  }

private:
  Pair operand(int v) const {
    Expr re = variable(real_part(v));
    if (!(view_.complex >> v & 1)) return {re, nullptr};
    Expr im = variable(imaginary_part(v));
    return {re, view_.conjugate >> v & 1 ? -im : im};
  }
  Pair rule(const Expr& e) {
    Pair a = run(e->a), b = e->b ? run(e->b) : Pair{}, c = e->c ? run(e->c) : Pair{};
    if (!a.re || (e->b && !b.re) || (e->c && !c.re)) return {};
    if (e->op == TS_I_SELECT) {
      Expr condition = a.im ? call(TS_I_NOT, unary(TS_I_NOT, a).re) : a.re;
      if (!b.im && !c.im) return {select(condition, b.re, c.re), nullptr};
      return {select(condition, b.re, c.re), select(condition, full(b).im, full(c).im)};
    }
    if (e->op == TS_I_FMA) return sum(complex::multiply(a, b), c);
    bool real = !a.im && !b.im && !(leaves_reals(e->op) && !(is_constant(e->a) && e->a->value > 0));
    if (real) return {instruction(e->op, a.re, b.re), nullptr};
    if (!e->b) return unary(e->op, full(a));
    Pair p = with_real_operand(e->op, a, b, is_operand(e->a), is_operand(e->b));
    return p.re ? p : binary(e->op, a, b);
  }
  static bool is_operand(const Expr& e) { return e->kind == ExprNode::Variable; }

  const ComplexView& view_;
  std::unordered_map<const ExprNode*, Pair> memo_;
};

} // namespace

Pair lower(const Expr& expr, const ComplexView& view) {
  Pair p = Lowering(view).run(expr);
  if (view.conjugate_result && p.re && p.im) p.im = -p.im;
  return p;
}

} // namespace ts::pointwise
