#include "python/calls/operator_plan.h"
#include "python/graph/traced_size.h"
#include "python/tensor/factory_layout.h"
#include <algorithm>
#include <cstring>

namespace ts::py {
namespace {

PyObject* interned(const std::string& s) {
  PyObject* p = PyUnicode_InternFromString(s.c_str());
  if (!p) throw_python();
  return p; // kept for good
}

// The argument a method is called on.
int self_of(const Schema& s) {
  int k = s.find("self");
  if (k >= 0) return k;
  for (size_t i = 0; i < s.args.size(); ++i)
    if (s.args[i].type.kind == TypeKind::Tensor && !s.args[i].type.list) return static_cast<int>(i);
  return -1;
}

// view(2, 3), block_diag(a, b); hstack takes a list alone.
bool may_collect(const Schema& schema, const ArgType& t) {
  if (!t.list || (t.kind == TypeKind::Tensor && (schema.base.ends_with("stack") || schema.base == "linalg_multi_dot")))
    return false;
  return t.kind == TypeKind::Int || t.kind == TypeKind::Tensor;
}

void order_positionals(Signature& s, const Schema& schema, int self) {
  if (self >= 0) s.positional.push_back(static_cast<uint8_t>(self));
  for (size_t k = 0; k < schema.args.size(); ++k)
    if (!schema.args[k].keyword_only && static_cast<int>(k) != self) s.positional.push_back(static_cast<uint8_t>(k));
  size_t leading = self >= 0 ? 1 : 0;
  s.varargs = s.positional.size() == leading + 1 && may_collect(schema, schema.args[s.positional.back()].type);
}

struct Synonym {
  const char* spelling;
  const char* param;
};
// What PyTorch accepts for NumPy's sake, and schema names a Python function hides.
constexpr Synonym kSynonyms[] = {{"axis", "dim"},
                                 {"keepdims", "keepdim"},
                                 {"self", "input"},
                                 {"x", "input"},
                                 {"a", "input"},
                                 {"x1", "input"},
                                 {"x2", "other"},
                                 {"tensor", "input"},
                                 {"axis0", "dim0"},
                                 {"axis1", "dim1"},
                                 {"split_size_or_sections", "split_size"}};

void add_synonyms(Signature& s) {
  for (const Synonym& y : kSynonyms) {
    PyObject *spelling = interned(y.spelling), *target = interned(y.param);
    int at = -1;
    bool own = false;
    for (size_t k = 0; k < s.params.size(); ++k) {
      if (s.params[k].name == target) at = static_cast<int>(k);
      own = own || s.params[k].name == spelling;
    }
    if (at >= 0 && !own) s.synonyms.emplace_back(spelling, at);
  }
}

// zeros, new_zeros, zeros_like: not conversions such as `to`.
bool makes_tensors(const Schema& s) {
  if (s.find("dtype") < 0 || s.find("device") < 0) return false;
  bool from_tensor = std::any_of(s.args.begin(), s.args.end(),
                                 [](const Argument& a) { return a.type.kind == TypeKind::Tensor && a.name != "out"; });
  return !from_tensor || s.base.starts_with("new_") || s.base.ends_with("_like");
}

Signature compile(const Plan& plan, const Operator& op) {
  const Schema& schema = *op.schema;
  TS_CHECK(schema.args.size() <= kMaxArgs, "operator: '", op.name(), "' has more than ", kMaxArgs, " arguments");
  Signature s;
  s.op = &op;
  int self = plan.method ? self_of(schema) : -1;
  for (size_t k = 0; k < schema.args.size(); ++k) {
    const Argument& a = schema.args[k];
    bool is_self = static_cast<int>(k) == self;
    s.params.push_back({is_self ? nullptr : interned(a.name == "self" ? "input" : a.name), a.type, a.keyword_only});
    s.defaults.push_back(a.default_value);
    if (!a.has_default) s.required |= uint32_t{1} << k;
  }
  order_positionals(s, schema, self);
  add_synonyms(s);
  s.factory = makes_tensors(schema);
  s.requires_grad_param = schema.find("requires_grad");
  return s;
}

constexpr const char* kFactoryOptions[] = {"requires_grad", "layout", "pin_memory"};

bool take_factory_option(const CallArgs& call, PyObject* name, PyObject* value, Bound& bound) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!std::strcmp(text, "layout")) return is_dense_layout(call, value);
  if (value != Py_True && value != Py_False && value != Py_None) return false;
  (!std::strcmp(text, "requires_grad") ? bound.options.requires_grad : bound.options.pin_memory) = value == Py_True;
  return true;
}

// A reduction may be the number that PyTorch's operators take for it.
bool convert_argument(const Param& p, PyObject* o, Value& out, Scratch& scratch, bool lenient) {
  if (convert(p.type, o, out, scratch, lenient)) [[likely]]
    return true;
  static PyObject* const reduction = interned("reduction");
  static constexpr const char* kReductions[] = {"none", "mean", "sum"};
  int64_t number = 0;
  if (p.name != reduction || p.type.kind != TypeKind::Str || !as_int(o, number) || number < 0 || number > 2)
    return false;
  out = Value(kReductions[number]);
  return true;
}

bool collect_tensors(const CallArgs& call, size_t at, Value& out, Scratch& scratch) {
  size_t n = call.nargs - at;
  Tensor* list = scratch.tensors(n);
  for (size_t k = 0; k < n; ++k) {
    if (!is_tensor(call.args[at + k])) return false;
    list[k] = tensor_of(call.args[at + k]);
  }
  out = Value(TensorList(list, n));
  return true;
}

bool collect_varargs(const Signature& s, const CallArgs& call, Bound& bound) {
  size_t at = s.positional.size() - 1, n = call.nargs - at;
  if (s.params[s.positional[at]].type.kind == TypeKind::Tensor)
    return collect_tensors(call, at, bound.values()[s.positional[at]], bound.scratch);
  int64_t* list = bound.scratch.words(n);
  for (size_t k = 0; k < n; ++k) {
    if (Value v; follow_read(call.args[at + k], v, &list[k], true)) {
      list[k] = v.i;
      continue;
    }
    if (!as_int_argument(call.args[at + k], list[k])) return false;
    note_number(call.args[at + k], &list[k]);
  }
  bound.values()[s.positional[at]] = Value(IntSpan(list, n));
  return true;
}

bool is_list(PyObject* o) { return PyTuple_Check(o) || PyList_Check(o); }

bool bind_positional(const Signature& s, const CallArgs& call, Bound& bound, uint32_t& filled, bool lenient) {
  size_t n = s.positional.size(), take = call.nargs;
  if (s.varargs && take >= n && !(take == n && (is_list(call.args[n - 1]) || call.args[n - 1] == Py_None))) {
    if (filled >> s.positional[n - 1] & 1 || !collect_varargs(s, call, bound)) return false;
    filled |= uint32_t{1} << s.positional[n - 1];
    take = n - 1;
  }
  if (take > n) return false;
  for (size_t k = 0; k < take; ++k) {
    size_t p = s.positional[k];
    if (filled >> p & 1) return false; // given by keyword as well
    if (!convert_argument(s.params[p], call.args[k], bound.values()[p], bound.scratch, lenient)) return false;
    filled |= uint32_t{1} << p;
  }
  return true;
}

bool bind_keywords(const Signature& s, const CallArgs& call, Bound& bound, uint32_t& filled, bool lenient) {
  for (size_t k = 0; k < call.nkw(); ++k) {
    PyObject *name = call.kwname(k), *value = call.kwvalue(k);
    int p = find_keyword(s, name);
    if (p < 0) {
      if (s.factory && is_factory_option(name) && take_factory_option(call, name, value, bound)) continue;
      // out=None is the same as leaving it out.
      if (value == Py_None && !PyUnicode_CompareWithASCIIString(name, "out")) continue;
      return false;
    }
    if (filled >> p & 1) return false;
    if (!convert_argument(s.params[p], value, bound.values()[p], bound.scratch, lenient)) return false;
    filled |= uint32_t{1} << p;
  }
  return true;
}

void fill_defaults(const Signature& s, Bound& bound) {
  if (!s.defaults.empty()) // memcpy takes no NULL, also not for nothing
    std::memcpy(static_cast<void*>(bound.values()), s.defaults.data(), s.defaults.size() * sizeof(Value));
}

bool bind_one(const Signature& s, const CallArgs& call, Bound& bound, bool lenient) {
  fill_defaults(s, bound);
  uint32_t filled = 0;
  // Keywords first: they tell overloads apart soonest.
  if (call.kwnames && !bind_keywords(s, call, bound, filled, lenient)) return false;
  if (!bind_positional(s, call, bound, filled, lenient)) return false;
  return (filled & s.required) == s.required;
}

bool is_name(PyObject* given, PyObject* interned_name) {
  return given == interned_name || (!PyUnicode_CHECK_INTERNED(given) && !PyUnicode_Compare(given, interned_name));
}

bool wants_out(const CallArgs& call) {
  static PyObject* out = interned("out");
  for (size_t k = 0; k < call.nkw(); ++k)
    if (is_name(call.kwname(k), out) && call.kwvalue(k) != Py_None) return true;
  return false;
}

} // namespace

std::unique_ptr<Plan> compile_plan(const std::string& name, const std::vector<const Operator*>& overloads,
                                   bool method) {
  auto plan = std::make_unique<Plan>();
  plan->name = name;
  plan->full_name = (method ? "Tensor." : "tesserack.") + name;
  plan->method = method;
  for (const Operator* op : overloads) {
    auto& list = op->variant == Variant::Out ? plan->with_out : plan->plain;
    list.push_back(compile(*plan, *op));
  }
  return plan;
}

bool is_factory_option(PyObject* name) {
  for (const char* option : kFactoryOptions)
    if (!PyUnicode_CompareWithASCIIString(name, option)) return true;
  return false;
}

namespace {

int find_interned(const Signature& s, PyObject* name) {
  for (size_t k = 0; k < s.params.size(); ++k)
    if (s.params[k].name == name) return static_cast<int>(k);
  for (auto& [spelling, k] : s.synonyms)
    if (spelling == name) return k;
  return -1;
}

} // namespace

int find_keyword(const Signature& s, PyObject* name) {
  if (PyUnicode_CHECK_INTERNED(name)) [[likely]]
    return find_interned(s, name);
  PyObject* copy = Py_NewRef(name); // a key of f(**options)
  PyUnicode_InternInPlace(&copy);
  int k = find_interned(s, copy);
  Py_DECREF(copy);
  return k;
}

namespace {

const KnownKeywords* find_known(const Plan& plan, const CallArgs& call) {
  size_t n = call.nkw();
  for (const KnownKeywords& known : plan.known) {
    if (known.count != n) continue;
    size_t k = 0;
    while (k < n && known.names[k] == call.kwname(k)) ++k;
    if (k == n) return &known;
  }
  return nullptr;
}

bool bind_known(const Signature& s, const KnownKeywords& known, const CallArgs& call, Bound& bound) {
  fill_defaults(s, bound);
  uint32_t filled = 0;
  for (size_t k = 0; k < known.count; ++k) {
    size_t p = known.params[k];
    if (filled >> p & 1) return false;
    if (!convert_argument(s.params[p], call.kwvalue(k), bound.values()[p], bound.scratch, false)) return false;
    filled |= uint32_t{1} << p;
  }
  return bind_positional(s, call, bound, filled, false) && (filled & s.required) == s.required;
}

// Keeps what the keywords mean, where it depends on nothing but them: `s`, of `plan.plain`, took the call.
void learn_keywords(const Plan& plan, const Signature& s, const CallArgs& call) {
  size_t n = call.nkw(), first = static_cast<size_t>(&s - plan.plain.data());
  if (n == 0 || n > KnownKeywords::kMost || first > UINT8_MAX) return;
  KnownKeywords found;
  for (size_t k = 0; k < n; ++k) {
    PyObject* name = call.kwname(k);
    int p = PyUnicode_CHECK_INTERNED(name) ? find_keyword(s, name) : -1;
    if (p < 0) return;
    found.names[k] = name;
    found.params[k] = static_cast<uint8_t>(p);
  }
  for (size_t before = 0; before < first; ++before) {
    const Signature& other = plan.plain[before];
    auto knows = [&](PyObject* name) { return find_keyword(other, name) >= 0; };
    if (other.factory || std::all_of(found.names, found.names + n, knows)) return;
  }
  found.count = static_cast<uint8_t>(n);
  found.first = static_cast<uint8_t>(first);
  plan.known[plan.next_known++ % plan.known.size()] = found;
}

} // namespace

const Signature* bind(const Plan& plan, const CallArgs& call, Bound& bound) {
  if (call.kwnames)
    if (const KnownKeywords* known = find_known(plan, call)) [[likely]] {
      const Signature& s = plan.plain[known->first];
      if (bind_known(s, *known, call, bound)) [[likely]]
        return &s;
      bound.scratch.reset();
    }
  const auto& list = call.kwnames && !plan.with_out.empty() && wants_out(call) ? plan.with_out : plan.plain;
  for (const Signature& s : list) {
    if (bind_one(s, call, bound, false)) [[likely]] {
      if (call.kwnames && &list == &plan.plain) learn_keywords(plan, s, call);
      return &s;
    }
    bound.scratch.reset();
  }
  // Once more, where an int may stand for int[].
  for (const Signature& s : list) {
    if (bind_one(s, call, bound, true)) return &s;
    bound.scratch.reset();
  }
  return nullptr;
}

} // namespace ts::py
