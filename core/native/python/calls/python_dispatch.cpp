// Kernels written in Python at dispatch keys, keys registered from Python, and operators with a body in Python.
#include "python/calls/python_dispatch.h"
#include "extend/custom.h"
#include "python/calls/operator_object.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/plugin.h"
#include "runtime/recording_state.h"

namespace ts::py {
namespace {

static_assert(kMaxCustomArgs <= kMaxArgs, "every custom operator can be called from Python");

// What a Python kernel is given of the call it serves.
struct CallObject {
  PyObject_HEAD const Operator* op;
  KeySet rest;   // keys still to be considered
  KeySet hidden; // this kernel's key, where its own calls do not come back to it
};
PyTypeObject* CallType = nullptr;

struct PythonFunction {
  PyRef function;
  std::string owner;
};

// --- arguments and results ---------------------------------------------------------------------------------------

PyRef tensor_list(TensorList list) {
  PyRef out = checked(PyList_New(static_cast<Py_ssize_t>(list.size())));
  for (size_t k = 0; k < list.size(); ++k) PyList_SET_ITEM(out.get(), static_cast<Py_ssize_t>(k), wrap(list[k]));
  return out;
}
template <class T, class F> PyRef number_list(std::span<const T> values, F&& make) {
  PyRef out = checked(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t k = 0; k < values.size(); ++k)
    PyList_SET_ITEM(out.get(), static_cast<Py_ssize_t>(k), checked(make(values[k])).release());
  return out;
}

} // namespace

PyRef argument_object(const ArgType& type, const Value& v) {
  switch (v.tag) {
  case Tag::Tensor: return PyRef::steal(wrap(v.as_tensor()));
  case Tag::Tensors: return tensor_list(v.as_tensors());
  case Tag::Int:
    if (type.kind == TypeKind::MemoryFormat) return PyRef::borrow(format_object(static_cast<MemoryFormat>(v.i)));
    return checked(PyLong_FromLongLong(v.i));
  case Tag::Float: return checked(PyFloat_FromDouble(v.f));
  case Tag::Bool: return PyRef::borrow(v.i ? Py_True : Py_False);
  case Tag::Str: return to_python(std::string(v.str));
  case Tag::Ints: return number_list(v.as_ints(), [](int64_t i) { return PyLong_FromLongLong(i); });
  case Tag::Floats: return number_list(v.as_floats(), [](double d) { return PyFloat_FromDouble(d); });
  case Tag::DType: return PyRef::borrow(dtype_object(static_cast<DType>(v.i)));
  case Tag::Device: return checked(device_object(Device::unpack(v.i)));
  case Tag::Complex: return checked(PyComplex_FromDoubles(v.floats[0], v.floats[1]));
  case Tag::Generator: return checked(generator_object(*v.generator));
  default: return PyRef::borrow(Py_None);
  }
}

namespace {

std::vector<Tensor> tensors_from(const Operator& op, PyObject* o) {
  PyRef items = checked(PySequence_Fast(o, "expected a list of tensors"));
  std::vector<Tensor> list;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k)
    list.push_back(expect_tensor(PySequence_Fast_GET_ITEM(items.get(), k), op.name().c_str()));
  return list;
}

void give(const Operator& op, Frame& f, int k, PyObject* o) {
  const ArgType& type = op.schema->returns[static_cast<size_t>(k)];
  if (type.kind == TypeKind::Tensor) {
    if (type.list) return f.give(k, tensors_from(op, o));
    if (o == Py_None) return f.give(k, Tensor());
    return f.give(k, expect_tensor(o, op.name().c_str()));
  }
  Value v; // nothing, so far
  TS_CHECK_TYPE((type.optional && o == Py_None) || as_number(o, v), op.name(), ": expected the kernel to return ",
                type.text(), ", got ", type_name(o));
  f.rets[k] = v;
}

void give_all(const Operator& op, Frame& f, PyObject* result) {
  if (f.nrets == 0) return;
  if (f.nrets == 1) return give(op, f, 0, result);
  TS_CHECK_TYPE(PyTuple_Check(result) && PyTuple_GET_SIZE(result) == f.nrets, op.name(),
                ": expected the kernel to return a tuple of ", f.nrets, ", got ", type_name(result));
  for (int k = 0; k < f.nrets; ++k) give(op, f, k, PyTuple_GET_ITEM(result, k));
}

// --- running -----------------------------------------------------------------------------------------------------

void call_python(PyObject* function, const Operator& op, Frame& f, KeySet rest, KeySet hidden) {
  note_hidden_dependence();
  GilGuard gil;
  auto* call = PyObject_New(CallObject, CallType);
  if (!call) throw_python();
  PyRef call_ref = PyRef::steal(reinterpret_cast<PyObject*>(call));
  call->op = &op;
  call->rest = rest;
  call->hidden = hidden;
  std::vector<PyRef> owned = {call_ref};
  std::vector<PyObject*> args = {call_ref.get()};
  for (int32_t k = 0; k < f.nargs; ++k) {
    owned.push_back(argument_object(op.schema->args[static_cast<size_t>(k)].type, f.args[k]));
    args.push_back(owned.back().get());
  }
  PyRef result = checked(PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
  give_all(op, f, result.get());
}

// The kernel's own calls do not come back to its key; what it redispatches does.
void run_kernel(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  int key = highest_key(keys);
  bool hides = key >= key::kBackendBits && key != key::Autograd && key != key::Sparse && key != key::Python &&
               !(thread_state().exclude & key_bit(key));
  KeySet hidden = hides ? key_bit(key) : 0;
  ExcludeKeys exclude(hidden);
  bool of_backend = key < key::kBackendBits;
  if (of_backend) check_backend_call(op, f);
  call_python(static_cast<PythonFunction*>(ctx)->function.get(), op, f, keys & below(key), hidden);
  if (of_backend) count_writes(op, f);
}

void run_body(const Operator& op, Frame& f) {
  call_python(static_cast<PythonFunction*>(op.extension)->function.get(), op, f, 0, 0);
}

// Kernels and operators stay for the life of the process.
PythonFunction* keep(PyObject* function, const char* owner) {
  TS_CHECK_TYPE(PyCallable_Check(function), "dispatch: expected a callable, got ", type_name(function));
  return new PythonFunction{PyRef::borrow(function), owner};
}
Kernel python_kernel(PyObject* function, const char* owner) {
  PythonFunction* kept = keep(function, owner);
  return {run_kernel, kept, kept->owner.c_str()};
}

// --- the call object ---------------------------------------------------------------------------------------------

CallObject* as_call(PyObject* o) { return reinterpret_cast<CallObject*>(o); }

// Every argument stands by position, as the kernel was given them; what is left out takes its default.
void bind_in_order(const Schema& schema, PyObject* const* args, size_t n, Bound& bound) {
  TS_CHECK_TYPE(n <= schema.args.size(), schema.name, ": the call takes at most ", schema.args.size(),
                " arguments, got ", n);
  for (size_t k = 0; k < schema.args.size(); ++k) {
    const Argument& a = schema.args[k];
    TS_CHECK_TYPE(k < n || a.has_default, schema.name, ": the call misses the argument ", a.name);
    if (k >= n)
      bound.values()[k] = a.default_value;
    else
      TS_CHECK_TYPE(convert(a.type, args[k], bound.values()[k], bound.scratch, true), schema.name, ": ", a.name,
                    " must be ", friendly(a.type), ", not ", type_name(args[k]));
  }
}

// What is called within comes to the key again.
struct AsBelow {
  explicit AsBelow(const CallObject& call) { thread_state().exclude &= ~call.hidden; }
  ~AsBelow() { thread_state().exclude = saved; }
  AsBelow(const AsBelow&) = delete;
  AsBelow& operator=(const AsBelow&) = delete;
  KeySet saved = thread_state().exclude;
};

PyObject* redispatch_call(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&] {
    const CallObject& call = *as_call(self);
    Bound bound;
    bind_in_order(*call.op->schema, args, static_cast<size_t>(nargs), bound);
    AsBelow below(call);
    return invoke_below(*call.op, bound.values(), call.rest);
  });
}

// (shape, stride, dtype, device) of a result.
PyRef describe_outline(const Tensor& t) {
  auto tuple = [](IntSpan values) {
    PyRef list = number_list(values, [](int64_t i) { return PyLong_FromLongLong(i); });
    return checked(PyList_AsTuple(list.get()));
  };
  PyRef shape = tuple(t.sizes()), stride = tuple(t.strides()), device = checked(device_object(t.device()));
  return checked(PyTuple_Pack(4, shape.get(), stride.get(), dtype_object(t.dtype()), device.get()));
}

PyObject* outline_call(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&] {
    const Operator& op = *as_call(self)->op;
    if (!op.rule) Py_RETURN_NONE;
    Bound bound;
    bind_in_order(*op.schema, args, static_cast<size_t>(nargs), bound);
    Results results;
    int n = static_cast<int>(op.schema->returns.size());
    Frame f{bound.values(), results.data(), static_cast<int32_t>(op.schema->args.size()), n};
    op.rule(op, f);
    PyRef out = checked(PyList_New(0));
    for (int k = 0; k < n; ++k)
      if (Tensor t = results.take(k); t.defined())
        if (PyList_Append(out.get(), describe_outline(t).get()) < 0) throw_python();
    return out.release();
  });
}

PyObject* decompose_call(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&]() -> PyObject* {
    const CallObject& call = *as_call(self);
    if (!call.op->decompose) Py_RETURN_NOTIMPLEMENTED;
    Bound bound;
    bind_in_order(*call.op->schema, args, static_cast<size_t>(nargs), bound);
    AsBelow below(call);
    return invoke_decomposition(*call.op, bound.values());
  });
}

PyObject* get_op(PyObject* self, void*) {
  return guarded([&] { return to_python(as_call(self)->op->name()).release(); });
}
PyObject* get_composite(PyObject* self, void*) { return PyBool_FromLong(as_call(self)->op->traced()); }
PyObject* get_schema(PyObject* self, void*) {
  return guarded([&] { return to_python(to_string(*as_call(self)->op->schema)).release(); });
}
PyObject* call_repr(PyObject* self) {
  return guarded([&] { return to_python("<call of " + as_call(self)->op->name() + ">").release(); });
}
void call_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMethodDef g_call_methods[] = {
    {"redispatch", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(redispatch_call)), METH_FASTCALL,
     "redispatch(*args)\n--\n\nGo on with the next key. Takes all the operator's arguments, in the order given."},
    {"outline", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(outline_call)), METH_FASTCALL,
     "outline(*args)\n--\n\nA list of (shape, stride, dtype, device), one for each new tensor that the call would "
     "return, without running it; None for operators without a rule. Sizes that values decide are the smallest there "
     "can be."},
    {"decompose", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(decompose_call)), METH_FASTCALL,
     "decompose(*args)\n--\n\nThe results by the operator's decomposition, whatever kernels there are, also on the "
     "meta "
     "device: the operators it is made of come to this key in their turn. NotImplemented for those without one."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef g_call_properties[] = {
    {"op", get_op, nullptr, "The operator's name, with its overload: 'sum.dim'.", nullptr},
    {"schema", get_schema, nullptr, "The operator's schema.", nullptr},
    {"composite", get_composite, nullptr, "Whether it is computed, and differentiated, by calls of others.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

void init_call_type(PyObject* module) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(call_dealloc)},
                                {Py_tp_repr, reinterpret_cast<void*>(call_repr)},
                                {Py_tp_methods, g_call_methods},
                                {Py_tp_getset, g_call_properties},
                                {Py_tp_doc, const_cast<char*>("The call a kernel written in Python serves.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"tesserack.dispatch.Call", sizeof(CallObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyRef type = checked(PyType_FromSpec(&spec));
  CallType = reinterpret_cast<PyTypeObject*>(type.get());
  add_object(module, "_Call", type.release());
}

// --- registration ------------------------------------------------------------------------------------------------

// What stood at an operator's key, to be put there again: None, or a capsule of what stays where it is.
PyObject* kept_kernel(const char* op, const std::string& key) {
  const Kernel* found = op ? get_operator(op).table.find(kernel_key(key)) : nullptr;
  return found ? PyCapsule_New(const_cast<Kernel*>(found), "tesserack.kernel", nullptr) : none();
}

Kernel given_kernel(PyObject* function, const char* owner) {
  if (function == Py_None) return Kernel();
  if (!PyCapsule_CheckExact(function)) return python_kernel(function, owner);
  void* kept = PyCapsule_GetPointer(function, "tesserack.kernel");
  if (!kept) throw_python();
  return *static_cast<const Kernel*>(kept);
}

// _set_kernel(op or None, key, function, None or what an earlier call returned, owner) -> what stood there
PyObject* set_kernel(PyObject*, PyObject* args) {
  const char *op, *key, *owner;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "zsOs:_set_kernel", &op, &key, &function, &owner)) return nullptr;
  return guarded([&] {
    PyRef before = PyRef::steal(kept_kernel(op, key));
    install_kernel(op, key, given_kernel(function, owner));
    return before.release();
  });
}

// _register_key(name, next_to, before)
PyObject* add_key(PyObject*, PyObject* args) {
  const char *name, *next_to;
  int before;
  if (!PyArg_ParseTuple(args, "ssp:_register_key", &name, &next_to, &before)) return nullptr;
  return guarded([&] {
    ts::add_key(name, next_to, before);
    return none();
  });
}

// _enable_key(key, on): whether this thread's calls come to the key; returns how it was.
PyObject* enable_key(PyObject*, PyObject* args) {
  const char* name;
  int on;
  if (!PyArg_ParseTuple(args, "sp:_enable_key", &name, &on)) return nullptr;
  return guarded([&] { return PyBool_FromLong(ts::enable_key(name, on)); });
}

// _exclude_key(key, on): whether this thread's calls pass by the key, whatever brings it; returns how it was.
PyObject* exclude_key(PyObject*, PyObject* args) {
  const char* name;
  int on;
  if (!PyArg_ParseTuple(args, "sp:_exclude_key", &name, &on)) return nullptr;
  return guarded([&] { return PyBool_FromLong(ts::exclude_key(name, on)); });
}

// _define_operator(schema, body, doc, origin) -> function
PyObject* define_operator(PyObject*, PyObject* args) {
  const char *schema, *doc, *origin;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "sOss:_define_operator", &schema, &function, &doc, &origin)) return nullptr;
  return guarded([&] {
    PythonFunction* kept = keep(function, origin);
    const Operator& made = ts::define_operator({schema, doc, run_body, kept, kept->owner.c_str()});
    return operator_object(made.name(), {&made}, false);
  });
}

// _forget_operator(name): the name may be given to another.
PyObject* forget_named_operator(PyObject*, PyObject* args) {
  const char* name;
  if (!PyArg_ParseTuple(args, "s:_forget_operator", &name)) return nullptr;
  return guarded([&] {
    ts::forget_operator(name);
    return none();
  });
}

PyObject* key_list(PyObject*, PyObject*) {
  return guarded([&] {
    PyRef list = checked(PyList_New(0));
    for (int k = Operator::kKeys - 1; k >= key::kBackendBits; --k) {
      std::string name = key_name(k);
      if (find_key(name) == k) checked_status(PyList_Append(list.get(), to_python(name).get()));
    }
    return list.release();
  });
}

// _custom_operators() -> [(name, schema, doc, defined in Python)]
PyObject* custom_operators(PyObject*, PyObject*) {
  return guarded([&] {
    PyRef list = checked(PyList_New(0));
    for (const Operator* op : all_operators()) {
      if (!is_custom(*op)) continue;
      PyRef row = checked(Py_BuildValue("(sNNO)", op->name().c_str(), to_python(to_string(*op->schema)).release(),
                                        to_python(op->doc).release(), op->body == run_body ? Py_True : Py_False));
      checked_status(PyList_Append(list.get(), row.get()));
    }
    return list.release();
  });
}

// _operator_function(name) -> function of one overload
PyObject* operator_function(PyObject*, PyObject* args) {
  const char* name;
  if (!PyArg_ParseTuple(args, "s:_operator_function", &name)) return nullptr;
  return guarded([&] {
    const Operator& op = get_operator(name);
    return operator_object(op.name(), {&op}, false);
  });
}

// _overloaded_function(base) -> function of all overloads
PyObject* overloaded_function(PyObject*, PyObject* args) {
  const char* base;
  if (!PyArg_ParseTuple(args, "s:_overloaded_function", &base)) return nullptr;
  return guarded([&] {
    const std::vector<const Operator*> found = overloads(base);
    TS_CHECK(!found.empty(), "operator: no operator named '", base, "'");
    return operator_object(base, found, false);
  });
}

// _load_library(path)
PyObject* load_library_file(PyObject*, PyObject* args) {
  const char* path;
  if (!PyArg_ParseTuple(args, "s:_load_library", &path)) return nullptr;
  return guarded([&] {
    load_library(path);
    return none();
  });
}

PyMethodDef g_python_dispatch_functions[] = {{"_set_kernel", set_kernel, METH_VARARGS, nullptr},
                                             {"_register_key", add_key, METH_VARARGS, nullptr},
                                             {"_enable_key", enable_key, METH_VARARGS, nullptr},
                                             {"_exclude_key", exclude_key, METH_VARARGS, nullptr},
                                             {"_define_operator", define_operator, METH_VARARGS, nullptr},
                                             {"_forget_operator", forget_named_operator, METH_VARARGS, nullptr},
                                             {"_keys", key_list, METH_NOARGS, nullptr},
                                             {"_custom_operators", custom_operators, METH_NOARGS, nullptr},
                                             {"_operator_function", operator_function, METH_VARARGS, nullptr},
                                             {"_overloaded_function", overloaded_function, METH_VARARGS, nullptr},
                                             {"_load_library", load_library_file, METH_VARARGS, nullptr},
                                             {nullptr, nullptr, 0, nullptr}};

} // namespace

void init_python_dispatch(PyObject* module) {
  init_call_type(module);
  checked_status(PyModule_AddFunctions(module, g_python_dispatch_functions));
}

} // namespace ts::py
