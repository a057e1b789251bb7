// Rows for the many pointwise operators that are nothing but an expression.
#pragma once
#include "ops/common/declare.h"
#include <span>

namespace ts {

struct UnaryRow {
  const char* name;
  const char* expression; // of self
  Promote promote;
  const char* derivative; // NULL: symbolic
  const char* doc;
  const char* complex_form = nullptr; // the operator for complex operands, where the expression is not theirs
  unsigned out = 0;                   // OutRule
  bool no_complex = false;
};

// name(Tensor self) -> Tensor, with in-place and out= forms.
inline void declare_unary(std::span<const UnaryRow> rows) {
  for (const UnaryRow& row : rows) {
    std::string schema = std::string(row.name) + "(Tensor self) -> Tensor";
    Def d(schema.c_str());
    d.pointwise(row.expression).promote(row.promote).inplace().out(row.out).doc(row.doc);
    if (row.derivative) d.derivative("self", row.derivative);
    if (row.complex_form) d.complex_form(row.complex_form);
    if (row.no_complex) d.no_complex();
  }
}

struct BinaryRow {
  const char* name;
  const char* expression; // of self and other
  Promote promote;
  const char* by_self; // derivatives; NULL: symbolic
  const char* by_other;
  const char* doc;
  const char* complex_form = nullptr;
  unsigned out = 0; // OutRule
  bool no_complex = false;
};

// name(Operand self, Operand other) -> Tensor, with in-place and out= forms.
inline void declare_binary(std::span<const BinaryRow> rows) {
  for (const BinaryRow& row : rows) {
    std::string schema = std::string(row.name) + "(Operand self, Operand other) -> Tensor";
    Def d(schema.c_str());
    d.pointwise(row.expression).promote(row.promote).inplace().out(row.out).doc(row.doc);
    if (row.by_self) d.derivative("self", row.by_self);
    if (row.by_other) d.derivative("other", row.by_other);
    if (row.complex_form) d.complex_form(row.complex_form);
    if (row.no_complex) d.no_complex();
  }
}

} // namespace ts
