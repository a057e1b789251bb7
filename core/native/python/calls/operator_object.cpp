#include "python/calls/operator_object.h"
#include "python/calls/overrides.h"
#include "python/tensor/factory_layout.h"
#include <map>
#include <structmember.h>

namespace ts::py {
namespace {

struct OperatorObject {
  PyObject_HEAD vectorcallfunc call;
  Plan* plan; // owned
  PyObject* attributes;
};

const Plan& plan_of(PyObject* o) { return *reinterpret_cast<OperatorObject*>(o)->plan; }

PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return guarded([&] {
    const Plan& plan = plan_of(self);
    CallArgs call{args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames};
    if (g_overrides_watched) [[unlikely]]
      if (PyObject* result = try_override(self, args, call.nargs, kwnames)) return result;
    Bound bound;
    const Signature* s = bind(plan, call, bound);
    if (!s) [[unlikely]] {
      if (PyObject* result = try_override(self, args, call.nargs, kwnames)) return result;
      if (PyObject* result = try_layout(self, plan, call)) return result;
      raise_mismatch(plan, call);
    }
    return invoke(plan, *s, bound);
  });
}

void operator_object_dealloc(PyObject* self) {
  auto* o = reinterpret_cast<OperatorObject*>(self);
  delete o->plan;
  Py_XDECREF(o->attributes);
  PyObject_Free(self);
}

PyObject* bind_method(PyObject* self, PyObject* instance, PyObject*) {
  return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

// A dtype or device has no literal in Python.
std::string shown_default(const Argument& a) {
  const bool named = a.type.kind == TypeKind::DType || a.type.kind == TypeKind::Device;
  return named ? "None" : a.default_text;
}

PyObject* operator_object_repr(PyObject* self) {
  return PyUnicode_FromFormat("<%s '%s'>", plan_of(self).method ? "operator method" : "operator",
                              plan_of(self).full_name.c_str());
}

PyObject* get_name(PyObject* self, void*) {
  return guarded([&] { return to_python(plan_of(self).name).release(); });
}
PyObject* get_qualname(PyObject* self, void*) {
  return guarded([&] {
    const Plan& plan = plan_of(self);
    return to_python(plan.method ? plan.full_name : plan.name).release();
  });
}
PyObject* get_module(PyObject*, void*) { return PyUnicode_FromString("tesserack"); }

std::string doc_of(const Plan& plan) {
  std::string out, text;
  for (const Signature& s : plan.plain) {
    out += plan.name + signature_text(s) + "\n";
    if (text.find(s.op->doc) == std::string::npos) text += "\n" + s.op->doc + "\n";
  }
  return out + text;
}
PyObject* get_doc(PyObject* self, void*) {
  return guarded([&] { return to_python(doc_of(plan_of(self))).release(); });
}

// inspect.signature of the only overload; of several, what they have in common is nothing.
PyObject* get_text_signature(PyObject* self, void*) {
  return guarded([&] {
    const Plan& plan = plan_of(self);
    if (plan.plain.size() != 1)
      return to_python(plan.method ? "($self, /, *args, **kwargs)" : "(*args, **kwargs)").release();
    const Signature& s = plan.plain[0];
    std::string out = plan.method ? "($self" : "(";
    bool keyword = false;
    for (size_t k = 0; k < s.params.size(); ++k) {
      const Param& p = s.params[k];
      if (!p.name) continue;
      if (out.size() > 1) out += ", ";
      if (p.keyword_only && !keyword) out += "*, ", keyword = true;
      out += to_utf8(p.name);
      const Argument& a = s.op->schema->args[k];
      if (a.has_default) out += "=" + shown_default(a);
    }
    return to_python(out + ")").release();
  });
}
PyObject* get_signature(PyObject* self, void*) {
  PyRef helper = PyRef::steal(PyImport_ImportModule("tesserack.ops.signatures"));
  return helper ? PyObject_CallMethod(helper.get(), "of_operator", "O", self) : nullptr;
}
PyObject* get_kwdefaults(PyObject* self, void*) {
  PyRef helper = PyRef::steal(PyImport_ImportModule("tesserack.ops.signatures"));
  return helper ? PyObject_CallMethod(helper.get(), "keyword_defaults", "O", self) : nullptr;
}
// Overloads as written: for tools that generate stubs and documentation.
PyObject* get_schemas(PyObject* self, void*) {
  return guarded([&] {
    PyRef list = checked(PyList_New(0));
    for (auto* group : {&plan_of(self).plain, &plan_of(self).with_out})
      for (const Signature& s : *group)
        checked_status(PyList_Append(list.get(), to_python(to_string(*s.op->schema)).get()));
    return list.release();
  });
}
PyObject* reduce(PyObject* self, PyObject*) {
  return guarded([&] {
    const Plan& plan = plan_of(self);
    if (!plan.method) {
      PyRef registry = checked(PyImport_ImportModule("tesserack.ops.registry"));
      return checked(PyObject_CallMethod(registry.get(), "reduced", "O", self)).release();
    }
    PyRef builtins = checked(PyImport_ImportModule("builtins"));
    return checked(Py_BuildValue("(N(Os))", checked(PyObject_GetAttrString(builtins.get(), "getattr")).release(),
                                 TensorType, plan.name.c_str()))
        .release();
  });
}

PyGetSetDef g_operator_object_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"__name__", get_name, nullptr, nullptr, nullptr},
    {"__qualname__", get_qualname, nullptr, nullptr, nullptr},
    {"__module__", get_module, nullptr, nullptr, nullptr},
    {"__doc__", get_doc, nullptr, nullptr, nullptr},
    {"__text_signature__", get_text_signature, nullptr, nullptr, nullptr},
    {"__signature__", get_signature, nullptr, nullptr, nullptr},
    {"__kwdefaults__", get_kwdefaults, nullptr, nullptr, nullptr},
    {"schemas", get_schemas, nullptr, "The schemas of all overloads.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef g_methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

PyTypeObject make_type(const char* name, bool method) {
  PyTypeObject t = blank_type(name, sizeof(OperatorObject), nullptr);
  t.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  t.tp_vectorcall_offset = offsetof(OperatorObject, call);
  t.tp_call = PyVectorcall_Call;
  t.tp_dealloc = operator_object_dealloc;
  t.tp_repr = operator_object_repr;
  t.tp_getset = g_operator_object_properties;
  t.tp_methods = g_methods;
  if (method) {
    t.tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
    t.tp_descr_get = bind_method;
  } else {
    t.tp_dictoffset = offsetof(OperatorObject, attributes); // as functions, which people give initializers and such
  }
  return t;
}

PyTypeObject FunctionType = make_type("tesserack._native.Operator", false);
PyTypeObject MethodType = make_type("tesserack._native.OperatorMethod", true);

} // namespace

PyObject* operator_object(const std::string& name, const std::vector<const Operator*>& overloads, bool method) {
  auto plan = compile_plan(name, overloads, method);
  auto* o = PyObject_New(OperatorObject, method ? &MethodType : &FunctionType);
  if (!o) throw_python();
  o->call = vectorcall;
  o->plan = plan.release();
  o->attributes = nullptr;
  return reinterpret_cast<PyObject*>(o);
}

PyRef install_operators() {
  std::map<std::string, std::vector<const Operator*>> functions, methods;
  PyRef shown = checked(PySet_New(nullptr));
  std::map<std::string, std::string> shown_as; // the operator that a function's name stands for
  for (const Operator* op : all_operators())
    if (op->is_function) shown_as[op->python_name] = op->schema->base;
  for (const Operator* op : all_operators()) {
    // A method may have the name of another operator's function: x.unfold() is not nn.functional.unfold(x).
    auto function = shown_as.find(op->python_name);
    if (function == shown_as.end() || op->is_function || op->schema->base == function->second)
      functions[op->python_name].push_back(op);
    if (op->is_function && !op->hidden) checked_status(PySet_Add(shown.get(), to_python(op->python_name).get()));
    if (op->is_method && !op->hidden && op->variant != Variant::Out) methods[op->python_name].push_back(op);
  }
  PyObject* members = TensorType->tp_dict;
  for (auto& [name, list] : methods) {
    // The class keeps what it defines itself: properties such as T, methods such as size.
    if (PyDict_GetItemString(members, name.c_str())) continue;
    PyRef method = PyRef::steal(operator_object(name, list, true));
    checked_status(PyDict_SetItemString(members, name.c_str(), method.get()));
  }
  PyType_Modified(TensorType);
  PyRef all = checked(PyDict_New());
  for (auto& [name, list] : functions) {
    PyRef function = PyRef::steal(operator_object(name, list, false));
    checked_status(PyDict_SetItemString(all.get(), name.c_str(), function.get()));
  }
  return checked(PyTuple_Pack(2, all.get(), shown.get()));
}

void init_operator_types(PyObject* module) {
  checked_status(PyType_Ready(&FunctionType));
  checked_status(PyType_Ready(&MethodType));
  add_object(module, "Operator", reinterpret_cast<PyObject*>(&FunctionType));
  add_object(module, "OperatorMethod", reinterpret_cast<PyObject*>(&MethodType));
}

} // namespace ts::py
