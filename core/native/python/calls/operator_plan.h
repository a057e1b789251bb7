// How a Python call is matched with the overloads of an operator. Compiled once from their schemas.
#pragma once
#include "dispatch/operator.h"
#include "python/calls/parse.h"
#include <array>
#include <vector>

namespace ts::py {

inline constexpr size_t kMaxArgs = 24;

struct Param {
  PyObject* name; // interned; NULL for the self of a method
  ArgType type;
  bool keyword_only;
};

struct Signature {
  const Operator* op = nullptr;
  std::vector<Param> params;                       // in the schema's order
  std::vector<std::pair<PyObject*, int>> synonyms; // other spellings of keywords, interned
  std::vector<Value> defaults;
  std::vector<uint8_t> positional; // which parameter the k-th positional argument is
  uint32_t required = 0;           // bit per parameter without default
  bool varargs = false;            // the last positional parameter collects what follows: view(2, 3)
  bool factory = false;            // takes requires_grad=, layout=, pin_memory=
  int requires_grad_param = -1;    // where the schema itself names requires_grad, which is the binding's business
  mutable PyTypeObject* tuple_type = nullptr; // of several named results, made when first needed
};

// Plain tuples for results without names.
PyTypeObject* make_tuple_type(const Signature& s, const std::string& name);

void init_named_results(PyObject* module);

// What the keywords of a call mean, found once: the overloads before `first` lack one of them, and it has them all.
struct KnownKeywords {
  static constexpr size_t kMost = 6;
  uint8_t count = 0; // 0: nothing is known yet
  uint8_t first = 0; // in Plan::plain
  uint8_t params[kMost];
  PyObject* names[kMost]; // interned ones of the signature
};

// All overloads behind one Python name.
struct Plan {
  std::string name;      // "sum"
  std::string full_name; // "tesserack.sum", "Tensor.sum"
  bool method = false;
  std::vector<Signature> plain;
  std::vector<Signature> with_out;
  mutable std::array<KnownKeywords, 4> known; // guarded by the interpreter lock
  mutable uint8_t next_known = 0;
};

std::unique_ptr<Plan> compile_plan(const std::string& name, const std::vector<const Operator*>& overloads, bool method);

// Arguments of a vectorcall.
struct CallArgs {
  PyObject* const* args;
  size_t nargs;
  PyObject* kwnames; // tuple or NULL
  size_t nkw() const { return kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0; }
  PyObject* kwname(size_t k) const { return PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(k)); }
  PyObject* kwvalue(size_t k) const { return args[nargs + k]; }
};

// Room for the arguments of any operator, none of it initialised.
class ValueBuffer {
public:
  Value* data() { return reinterpret_cast<Value*>(storage_); }
  const Value* data() const { return reinterpret_cast<const Value*>(storage_); }

private:
  alignas(Value) unsigned char storage_[kMaxArgs * sizeof(Value)];
};

// What factories do with their result.
struct FactoryOptions {
  bool requires_grad = false, pin_memory = false;
  bool any() const { return requires_grad || pin_memory; }
};

// A call ready to run.
struct Bound {
  Bound() {}
  Value* values() { return buffer.data(); }
  ValueBuffer buffer;
  Scratch scratch;
  FactoryOptions options;
};

// The first signature that fits, or NULL.
const Signature* bind(const Plan& plan, const CallArgs& call, Bound& bound);
// The parameter a keyword names (PyTorch's and NumPy's spellings), or -1.
int find_keyword(const Signature& s, PyObject* name);
bool is_factory_option(PyObject* name);
// Raises the TypeError that explains why nothing fits.
[[noreturn]] void raise_mismatch(const Plan& plan, const CallArgs& call);
// "(Tensor input, int dim, *, bool keepdim=False)"
std::string signature_text(const Signature& s);

PyObject* invoke(const Plan& plan, const Signature& s, Bound& bound);
// Calls an operator from C with ready values; `n` given arguments, the rest defaults.
PyObject* invoke_operator(const Operator& op, const Value* values, size_t n);
// Calls an operator with all its arguments given, considering only these keys.
PyObject* invoke_below(const Operator& op, const Value* values, KeySet keys);
PyObject* invoke_decomposition(const Operator& op, const Value* values); // of one that has one
// The same with all `n` arguments given, for operators of one result.
PyObject* invoke_single(const Operator& op, const Value* values, int32_t n);

} // namespace ts::py
