// Instructions that a device lacks, as expressions over those it has.
#pragma once
#include "ops/pointwise/expr.h"

namespace ts::pointwise {

// The instruction over others, in registers of dtype `compute` (a TS_* number); NULL: one that every device has.
Expr lowered(uint16_t op, const Expr& a, const Expr& b, const Expr& c, int32_t compute);
namespace lowering {
// Formulas as they stand, simplified in nothing.
inline Expr num(double v) { return constant(v); }
inline Expr call(uint16_t op, const Expr& a, const Expr& b = nullptr) { return exactly(op, a, b); }
inline Expr select(const Expr& c, const Expr& a, const Expr& b) { return exactly(TS_I_SELECT, c, a, b); }
inline Expr add(const Expr& a, const Expr& b) { return call(TS_I_ADD, a, b); }
inline Expr sub(const Expr& a, const Expr& b) { return call(TS_I_SUB, a, b); }
inline Expr mul(const Expr& a, const Expr& b) { return call(TS_I_MUL, a, b); }
inline Expr div(const Expr& a, const Expr& b) { return call(TS_I_DIV, a, b); }
inline Expr lt(const Expr& a, const Expr& b) { return call(TS_I_LT, a, b); }
inline Expr eq(const Expr& a, const Expr& b) { return call(TS_I_EQ, a, b); }
inline Expr neg(const Expr& a) { return call(TS_I_NEG, a); }
inline Expr abs(const Expr& a) { return call(TS_I_ABS, a); }

// Error function and relatives for floating registers, see lower_special.cpp.
Expr erf(const Expr& x);
Expr erfc(const Expr& x);
Expr erfinv(const Expr& y);
Expr lgamma(const Expr& x);
Expr digamma(const Expr& x);
} // namespace lowering

} // namespace ts::pointwise
