// Types of several results with names: max(values=..., indices=...).
#include "python/calls/operator_plan.h"
#include "python/common.h"
#include "python/shown_package.h"
#include <map>

namespace ts::py {
namespace {

// max(values=..., indices=...) with a line for each, as PyTorch prints it.
PyObject* tuple_repr(PyObject* self) {
  return guarded([&] {
    std::string name = Py_TYPE(self)->tp_name;
    std::string out = shown_package() + name.substr(name.find('.')) + "(";
    PyRef names = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(self)), "__match_args__"));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self); ++k) {
      PyRef text = checked(PyObject_Repr(PyTuple_GET_ITEM(self, k)));
      out += (k ? ",\n" : "\n") + to_utf8(PyTuple_GET_ITEM(names.get(), k)) + "=" + to_utf8(text.get());
    }
    return to_python(out + ")").release();
  });
}

// What a type is made of lives as long as it: for ever.
struct NamedType {
  std::string full_name;
  std::vector<std::string> names;
  std::vector<PyStructSequence_Field> fields;
  PyTypeObject* type = nullptr;
};

PyTypeObject* named_type(const std::string& name, const std::vector<std::string>& names) {
  static auto* types = new std::map<std::string, NamedType>; // the interpreter's lock guards it
  NamedType& made = (*types)[name];
  if (made.type) return made.type;
  made.full_name = "tesserack.return_types." + name;
  made.names = names;
  for (const std::string& field : made.names) made.fields.push_back({field.c_str(), nullptr});
  made.fields.push_back({nullptr, nullptr});
  PyStructSequence_Desc desc = {made.full_name.c_str(), nullptr, made.fields.data(), static_cast<int>(names.size())};
  made.type =
      reinterpret_cast<PyTypeObject*>(checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&desc))).release());
  made.type->tp_repr = tuple_repr;
  return made.type;
}

bool has_names(const Schema& schema) {
  for (const std::string& field : schema.return_names)
    if (field.empty()) return false;
  return schema.return_names.size() > 1;
}

// _named_results(name, fields=None): the type, with those fields or an operator's; None if that returns none.
PyObject* py_named_results(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name = nullptr;
    PyObject* given = nullptr;
    if (!PyArg_ParseTuple(args, "s|O!:_named_results", &name, &PyTuple_Type, &given)) return nullptr;
    if (given) {
      std::vector<std::string> fields;
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given); ++k) fields.push_back(to_utf8(PyTuple_GET_ITEM(given, k)));
      return Py_NewRef(reinterpret_cast<PyObject*>(named_type(name, fields)));
    }
    for (const Operator* op : overloads(name))
      if (op->variant == Variant::Functional && has_names(*op->schema))
        return Py_NewRef(reinterpret_cast<PyObject*>(named_type(name, op->schema->return_names)));
    return none();
  });
}

} // namespace

PyTypeObject* make_tuple_type(const Signature& s, const std::string& name) {
  return has_names(*s.op->schema) ? named_type(name, s.op->schema->return_names) : &PyTuple_Type;
}

void init_named_results(PyObject* module) {
  static PyMethodDef functions[] = {{"_named_results", py_named_results, METH_VARARGS, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
  checked_status(PyModule_AddFunctions(module, functions));
}

} // namespace ts::py
