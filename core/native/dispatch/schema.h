// An operator's signature, parsed from text such as
//   "sum.dim(Tensor self, int[]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
// Types: Tensor, Scalar, "Tensor|Scalar" (written Operand), int, float, bool, str, ScalarType, Device, Generator,
// MemoryFormat; each may be optional (?) and the first five may be lists ([], or [n]: a single value repeats n times).
// "Tensor(a)" marks an alias, "Tensor(a!)" a mutation, as PyTorch writes them.
#pragma once
#include "dispatch/value.h"
#include <string>
#include <string_view>
#include <vector>

namespace ts {

enum class TypeKind : uint8_t {
  Tensor,
  Operand,
  Scalar,
  Int,
  Float,
  Bool,
  Str,
  DType,
  Device,
  Generator,
  MemoryFormat
};

struct ArgType {
  TypeKind kind = TypeKind::Tensor;
  bool list = false;
  bool optional = false;          // the whole argument may be None
  bool optional_elements = false; // Tensor?[]
  int repeat = 0;                 // int[2]: one int stands for two
  char alias = 0;                 // alias set, 0 for none
  bool mutated = false;
  std::string text() const; // "Tensor(a!)", "int[]?"
};

struct Argument {
  std::string name;
  ArgType type;
  bool keyword_only = false;
  bool has_default = false;
  Value default_value;      // lists and strings point into the schema's own memory
  std::string default_text; // as written
};

struct Schema {
  std::string name;     // "sum.dim"
  std::string base;     // "sum"
  std::string overload; // "dim"
  std::string text;     // the source
  std::vector<Argument> args;
  std::vector<ArgType> returns;
  std::vector<std::string> return_names;
  std::vector<std::vector<int64_t>> int_storage; // of list defaults

  int find(std::string_view arg) const; // index, or -1
  bool mutates() const;                 // some argument is written
};

// ValueError naming the text and the place on malformed input.
std::unique_ptr<Schema> parse_schema(std::string_view text);
std::string to_string(const Schema& schema); // "name(args) -> returns", as documented

} // namespace ts
