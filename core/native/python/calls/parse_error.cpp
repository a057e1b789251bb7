// Why a call fits no overload, told in PyTorch's words.
#include "python/calls/operator_plan.h"

namespace ts::py {
namespace {

// What a call looks like: "(Tensor, str, dim=int)".
std::string describe_call(const Plan& plan, const CallArgs& call) {
  std::string out = "(";
  for (size_t k = plan.method ? 1 : 0; k < call.nargs; ++k)
    out += (out.size() > 1 ? ", " : "") + type_name(call.args[k]);
  for (size_t k = 0; k < call.nkw(); ++k)
    out += (out.size() > 1 ? ", " : "") + to_utf8(call.kwname(k)) + "=" + type_name(call.kwvalue(k));
  return out + ")";
}

// For lists the first element that is wrong; else the type itself.
std::string describe_wrong(const ArgType& t, PyObject* o) {
  bool sequence = PyTuple_Check(o) || PyList_Check(o);
  if (!t.list || !sequence) {
    std::string text = type_name(o);
    if (PyComplex_Check(o)) text += " (complex numbers are not accepted here)";
    return text;
  }
  ArgType element = t;
  element.list = false;
  element.optional = t.optional_elements;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) {
    Value v;
    Scratch scratch;
    PyRef item = PyRef::borrow(PySequence_Fast_GET_ITEM(o, k));
    if (!convert(element, item.get(), v, scratch, true))
      return type_name(o) + " whose element " + std::to_string(k) + " is " + type_name(item.get());
  }
  return type_name(o);
}

std::string param_name(const Param& p) { return p.name ? to_utf8(p.name) : "self"; }

[[noreturn]] void raise_wrong_type(const Plan& plan, const Param& p, PyObject* o, const std::string& position) {
  raise(PyExc_TypeError, plan.name + "(): argument '" + param_name(p) + "'" + position + " must be " +
                             friendly(p.type) + ", not " + describe_wrong(p.type, o));
}

bool fits(const Param& p, PyObject* o) {
  Value v;
  Scratch scratch;
  return convert(p.type, o, v, scratch, true);
}

std::string plural(size_t n, const char* word) { return std::to_string(n) + " " + word + (n == 1 ? "" : "s"); }

void explain_positional(const Plan& plan, const Signature& s, const CallArgs& call, uint32_t& filled) {
  size_t n = s.positional.size(), skip = plan.method ? 1 : 0;
  if (call.nargs > n && !s.varargs)
    raise(PyExc_TypeError, plan.name + "() takes " + plural(n - skip, "positional argument") + " but " +
                               std::to_string(call.nargs - skip) + (call.nargs - skip == 1 ? " was" : " were") +
                               " given");
  for (size_t k = 0; k < std::min(n, call.nargs); ++k) {
    const Param& p = s.params[s.positional[k]];
    filled |= uint32_t{1} << s.positional[k];
    std::string position = " (position " + std::to_string(k + 1 - skip) + ")";
    if (!fits(p, call.args[k])) raise_wrong_type(plan, p, call.args[k], position);
  }
  for (size_t k = n; k < call.nargs; ++k) { // collected ones
    ArgType element = s.params[s.positional[n - 1]].type;
    element.list = false;
    for (size_t j : {n - 1, k}) {
      Value v;
      Scratch scratch;
      if (!convert(element, call.args[j], v, scratch, false))
        raise(PyExc_TypeError, plan.name + "(): argument '" + param_name(s.params[s.positional[n - 1]]) + "' must be " +
                                   friendly(s.params[s.positional[n - 1]].type) + ", but position " +
                                   std::to_string(j + 1 - skip) + " is " + type_name(call.args[j]));
    }
  }
}

void explain_keywords(const Plan& plan, const Signature& s, const CallArgs& call, uint32_t& filled) {
  for (size_t k = 0; k < call.nkw(); ++k) {
    PyObject *name = call.kwname(k), *value = call.kwvalue(k);
    int p = find_keyword(s, name);
    if (p < 0) {
      if (s.factory && is_factory_option(name))
        raise(PyExc_TypeError, plan.name + "(): argument '" + to_utf8(name) + "' does not take a " + type_name(value));
      raise(PyExc_TypeError, plan.name + "() got an unexpected keyword argument '" + to_utf8(name) + "'");
    }
    if (filled >> p & 1)
      raise(PyExc_TypeError, plan.name + "() got multiple values for argument '" + to_utf8(name) + "'");
    filled |= uint32_t{1} << p;
    const Param& param = s.params[static_cast<size_t>(p)];
    if (!fits(param, value)) raise_wrong_type(plan, param, value, "");
  }
}

void explain_missing(const Plan& plan, const Signature& s, uint32_t filled) {
  std::string names;
  size_t n = 0;
  for (size_t k = 0; k < s.params.size(); ++k) {
    if (!(s.required >> k & 1) || filled >> k & 1) continue;
    names += (n++ ? ", \"" : "\"") + param_name(s.params[k]) + "\"";
  }
  if (n)
    raise(PyExc_TypeError, plan.name + "() missing " + std::to_string(n) + " required positional arguments: " + names);
}

// Raises the first complaint about one signature; returns if there is none.
void explain(const Plan& plan, const Signature& s, const CallArgs& call) {
  uint32_t filled = 0;
  explain_positional(plan, s, call, filled);
  explain_keywords(plan, s, call, filled);
  explain_missing(plan, s, filled);
}

// Same number of arguments and known keywords: only types are wrong.
bool plausible(const Signature& s, const CallArgs& call) {
  if (call.nargs > s.positional.size() && !s.varargs) return false;
  uint32_t filled = 0;
  for (size_t k = 0; k < std::min(call.nargs, s.positional.size()); ++k) filled |= uint32_t{1} << s.positional[k];
  for (size_t k = 0; k < call.nkw(); ++k) {
    int p = find_keyword(s, call.kwname(k));
    if (p >= 0)
      filled |= uint32_t{1} << p;
    else if (!s.factory || !is_factory_option(call.kwname(k)))
      return false;
  }
  return (filled & s.required) == s.required;
}

// A keyword that no overload knows.
void explain_unknown_keyword(const Plan& plan, const std::vector<Signature>& list, const CallArgs& call) {
  for (size_t k = 0; k < call.nkw(); ++k) {
    bool known =
        is_factory_option(call.kwname(k)) && std::any_of(list.begin(), list.end(), [](auto& s) { return s.factory; });
    for (const Signature& s : list) known = known || find_keyword(s, call.kwname(k)) >= 0;
    if (!known)
      raise(PyExc_TypeError, plan.name + "() got an unexpected keyword argument '" + to_utf8(call.kwname(k)) + "'");
  }
}

} // namespace

std::string signature_text(const Signature& s) {
  std::string out = "(";
  bool keyword = false;
  for (size_t k = 0; k < s.params.size(); ++k) {
    const Param& p = s.params[k];
    if (!p.name) continue;
    if (out.size() > 1) out += ", ";
    if (p.keyword_only && !keyword) {
      out += "*, ";
      keyword = true;
    }
    out += friendly(p.type) + " " + to_utf8(p.name);
    const Argument& a = s.op->schema->args[k];
    if (a.has_default) out += " = " + a.default_text;
  }
  return out + ")";
}

void raise_mismatch(const Plan& plan, const CallArgs& call) {
  bool out_form = false;
  for (size_t k = 0; k < call.nkw(); ++k)
    out_form = out_form || (call.kwvalue(k) != Py_None && !PyUnicode_CompareWithASCIIString(call.kwname(k), "out"));
  const auto& list = out_form && !plan.with_out.empty() ? plan.with_out : plan.plain;
  if (list.size() == 1) explain(plan, list[0], call);
  std::vector<const Signature*> close;
  for (const Signature& s : list)
    if (plausible(s, call)) close.push_back(&s);
  if (close.size() == 1) explain(plan, *close[0], call);
  explain_unknown_keyword(plan, list, call);
  std::string text = plan.name + "() received an invalid combination of arguments - got " + describe_call(plan, call);
  if (list.size() == 1) raise(PyExc_TypeError, text + ", but expected " + signature_text(list[0]));
  text += ", but expected one of:";
  for (const Signature& s : list) text += "\n * " + signature_text(s);
  raise(PyExc_TypeError, text + "\n");
}

} // namespace ts::py
