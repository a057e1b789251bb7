// Expressions written as formulas: a * b + num(1), call(TS_I_EXP, x), select(condition, a, b).
#pragma once
#include "ops/pointwise/expr.h"
#include <utility>

namespace ts::pointwise {

inline Expr num(double v) { return constant(v); }
inline Expr operator+(Expr a, Expr b) { return instruction(TS_I_ADD, std::move(a), std::move(b)); }
inline Expr operator-(Expr a, Expr b) { return instruction(TS_I_SUB, std::move(a), std::move(b)); }
inline Expr operator*(Expr a, Expr b) { return instruction(TS_I_MUL, std::move(a), std::move(b)); }
inline Expr operator/(Expr a, Expr b) { return instruction(TS_I_DIV, std::move(a), std::move(b)); }
inline Expr operator-(Expr a) { return instruction(TS_I_NEG, std::move(a)); }
inline Expr call(uint16_t op, Expr a, Expr b = nullptr) { return instruction(op, std::move(a), std::move(b)); }
inline Expr select(Expr c, Expr a, Expr b) {
  return instruction(TS_I_SELECT, std::move(c), std::move(a), std::move(b));
}

} // namespace ts::pointwise
