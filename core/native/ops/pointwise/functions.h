// Functions of the expression language that are themselves expressions: special functions no backend needs an
// instruction for, and whose derivatives follow.
#pragma once
#include "ops/pointwise/expr.h"

namespace ts::pointwise {

struct NamedFunction {
  const char* name;
  int arity;
  Expr (*build)(std::span<const Expr> args);
};
// NULL if there is none of the name.
const NamedFunction* find_function(std::string_view name);

// Cylinder functions of order 0 and 1, and their relatives scaled by exp(-|x|) or exp(x) (DLMF 10).
Expr bessel_j(int order, const Expr& x);
Expr bessel_y(int order, const Expr& x);
Expr bessel_i_scaled(int order, const Expr& x);
Expr bessel_k(int order, const Expr& x, bool scaled);
Expr airy_ai(const Expr& x);
// exp(x^2) erfc(x) (DLMF 7.2.3).
Expr erfcx(const Expr& x);
// The quantile function of the normal distribution (Wichura 1988, algorithm AS 241).
Expr ndtri(const Expr& p);

} // namespace ts::pointwise
