// Complex programs as real ones over pairs, so that every backend's machine of real numbers runs them.
#pragma once
#include "ops/pointwise/expr.h"

namespace ts::pointwise {

// A complex value as two real expressions. `im` NULL: a value known to be real.
struct Pair {
  Expr re, im;
};

// Which variables are complex, and which of these (or the whole) are to be conjugated.
struct ComplexView {
  uint64_t complex = 0, conjugate = 0; // bit per variable
  bool conjugate_result = false;
};

// Parts of variable k: of a complex operand (or a real one, all of it).
inline int real_part(int variable) { return 2 * variable; }
inline int imaginary_part(int variable) { return 2 * variable + 1; }

// `expr` over parts. `re` NULL: it has an instruction without a complex meaning, such as an order.
Pair lower(const Expr& expr, const ComplexView& view);

// The functions with branch cuts and special values of C99's annex G.
namespace complex {
Pair sqrt(const Pair& z);
Pair exp(const Pair& z);
Pair expm1(const Pair& z);
Pair log(const Pair& z);
Pair log1p(const Pair& z);
Pair sinh(const Pair& z);
Pair cosh(const Pair& z);
Pair tanh(const Pair& z);
Pair asin(const Pair& z);
Pair acos(const Pair& z);
Pair acosh(const Pair& z);
Pair atanh(const Pair& z);
Pair divide(const Pair& a, const Pair& b);
Pair multiply(const Pair& a, const Pair& b);
Pair power(const Pair& a, const Pair& b);
} // namespace complex

} // namespace ts::pointwise
