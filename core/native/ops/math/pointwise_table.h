// Rows for the many pointwise operators that are nothing but an expression.
#pragma once
#include "ops/common/declare.h"
#include "tensor/error.h"
#include "tensor/words.h"
#include <span>
#include <string>

namespace ts {

struct UnaryRow {
  const char* names;      // the operator, and its aliases
  const char* expression; // of self
  Promote promote;
  const char* derivative; // NULL: symbolic
  const char* doc;
  const char* facts = nullptr;        // Def::facts
  const char* complex_form = nullptr; // the operator for complex operands, where the expression is not theirs
  unsigned out = 0;                   // OutRule
  bool no_complex = false;
};

// What rows of both kinds say in the same way.
template <class Row> void finish_row(Def& d, const Row& row, const std::string& alias_of) {
  d.pointwise(row.expression).promote(row.promote).inplace().out(row.out);
  d.doc(alias_of.empty() ? row.doc : concat("Alias of ", alias_of, ".").c_str());
  if (!alias_of.empty()) d.facts(concat("alias:", alias_of).c_str());
  if (row.facts) d.facts(row.facts);
  if (row.complex_form) d.complex_form(row.complex_form);
  if (row.no_complex) d.no_complex();
}

// f(name, the name that it is an alias of or "") of each.
template <class F> void each_name(const char* names, F&& f) {
  std::string first;
  for (const std::string& name : words_of(names)) {
    f(name, first);
    if (first.empty()) first = name;
  }
}

// name(Tensor self) -> Tensor, with in-place and out= forms.
inline void declare_unary(std::span<const UnaryRow> rows) {
  for (const UnaryRow& row : rows)
    each_name(row.names, [&](const std::string& name, const std::string& alias_of) {
      Def d(concat(name, "(Tensor self) -> Tensor").c_str());
      finish_row(d, row, alias_of);
      if (row.derivative) d.derivative("self", row.derivative);
    });
}

struct BinaryRow {
  const char* names;
  const char* expression; // of self and other
  Promote promote;
  const char* by_self; // derivatives; NULL: symbolic
  const char* by_other;
  const char* doc;
  const char* facts = nullptr;
  const char* complex_form = nullptr;
  unsigned out = 0; // OutRule
  bool no_complex = false;
};

// name(Operand self, Operand other) -> Tensor, with in-place and out= forms.
inline void declare_binary(std::span<const BinaryRow> rows) {
  for (const BinaryRow& row : rows)
    each_name(row.names, [&](const std::string& name, const std::string& alias_of) {
      Def d(concat(name, "(Operand self, Operand other) -> Tensor").c_str());
      finish_row(d, row, alias_of);
      if (row.by_self) d.derivative("self", row.by_self);
      if (row.by_other) d.derivative("other", row.by_other);
    });
}

} // namespace ts
