#include "python/graph/traced_size.h"
#include "graph/tracer.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"

namespace ts::py {
namespace {

using graph::Id;
using graph::Item;
using graph::SizeOp;
using graph::Tracer;

PyTypeObject* g_class = nullptr; // set once, by the package
PyObject* g_value_name = nullptr;

PyObject* make(int64_t number, Id value) {
  PyRef made =
      checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(g_class), "L", static_cast<long long>(number)));
  PyRef id = checked(PyLong_FromUnsignedLongLong(uint64_t{Tracer::current()->serial()} << 32 | value));
  checked_status(PyObject_SetAttr(made.get(), g_value_name, id.get()));
  return made.release();
}

// The value of an object of the class, from this program; kNone.
Id value_of(PyObject* o) {
  if (!g_class || Py_TYPE(o) != g_class) return graph::kNone;
  PyRef id = PyRef::steal(PyObject_GetAttr(o, g_value_name));
  if (!id) {
    PyErr_Clear();
    return graph::kNone;
  }
  uint64_t number = PyLong_AsUnsignedLongLong(id.get());
  Tracer* t = Tracer::current();
  return t && number >> 32 == t->serial() ? static_cast<Id>(number) : graph::kNone;
}

Item item_of(PyObject* o) {
  if (Id v = value_of(o); v != graph::kNone) return Item::value(Tag::Int, v);
  int overflow = 0;
  int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (overflow) raise(PyExc_OverflowError, "int too large: expected a value that fits in 64 bits");
  return Item::integer(i);
}

// _trace_number(op, a, b) -> the result, or None where nothing is written down
PyObject* number(PyObject*, PyObject* args) {
  const char* name;
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "sO!O!:_trace_number", &name, &PyLong_Type, &a, &PyLong_Type, &b)) return nullptr;
  return guarded([&]() -> PyObject* {
    Tracer* t = Tracer::current();
    if (!t || !traced_int) return none();
    SizeOp op = graph::size_op_named(name);
    TS_CHECK_VALUE(op >= SizeOp::Add && !is_guard(op), "trace: '", name, "' is no arithmetic");
    Item x = item_of(a), y = item_of(b);
    Id v = t->arithmetic(op, x, y);
    return make(t->number(v), v);
  });
}

// _trace_guard(op, a, b, answer): that a comparison came out so
PyObject* guard(PyObject*, PyObject* args) {
  const char* name;
  PyObject *a, *b;
  int answer;
  if (!PyArg_ParseTuple(args, "sO!O!p:_trace_guard", &name, &PyLong_Type, &a, &PyLong_Type, &b, &answer))
    return nullptr;
  return guarded([&] {
    SizeOp op = graph::size_op_named(name);
    TS_CHECK_VALUE(is_guard(op) && op != SizeOp::Forward, "trace: '", name, "' is no comparison");
    if (Tracer* t = Tracer::current(); t && traced_int) t->guard(op, item_of(a), item_of(b), answer != 0);
    return none();
  });
}

PyObject* set_class(PyObject*, PyObject* type) {
  return guarded([&] {
    TS_CHECK_TYPE(PyType_Check(type) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), &PyLong_Type),
                  "_set_traced_int: expected a class of ints");
    g_class = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
    if (!g_value_name) g_value_name = checked(PyUnicode_InternFromString("_value")).release();
    return none();
  });
}

PyObject* tracing(PyObject*, PyObject*) { return PyBool_FromLong(is_tracing()); }

PyMethodDef functions[] = {{"_trace_number", number, METH_VARARGS, nullptr},
                           {"_trace_guard", guard, METH_VARARGS, nullptr},
                           {"_set_traced_int", set_class, METH_O, nullptr},
                           {"_is_tracing", tracing, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

} // namespace

void watch_sizes(bool on) {
  static int count = 0; // under the interpreter's lock
  count += on ? 1 : -1;
  traced_int = count ? g_class : nullptr;
}

bool is_tracing() { return traced_int && Tracer::current(); }

PyObject* traced_size(const Tensor& t, int64_t dim) {
  Tracer* tracer = Tracer::current();
  int64_t n = t.sizes()[static_cast<size_t>(dim)];
  if (!tracer || t->payload) return checked(PyLong_FromLongLong(n)).release();
  return make(n, tracer->size_of(t, dim));
}

PyObject* traced_size_object(const Tensor& t) {
  PyRef out = checked(size_object(t.sizes()));
  if (!Tracer::current() || t->payload) return out.release();
  for (int64_t k = 0; k < t.ndim(); ++k) {
    PyObject* n = traced_size(t, k);
    Py_DECREF(PyTuple_GET_ITEM(out.get(), k));
    PyTuple_SET_ITEM(out.get(), k, n);
  }
  return out.release();
}

PyObject* traced_numel(const Tensor& t) {
  Tracer* tracer = Tracer::current();
  if (!tracer || t->payload) return checked(PyLong_FromLongLong(t.numel())).release();
  return make(t.numel(), tracer->numel_of(t));
}

void link_traced(PyObject* o, const void* place, int64_t number) {
  Tracer* t = Tracer::current();
  Id v = t ? value_of(o) : graph::kNone;
  if (v != graph::kNone) t->link(place, number, v);
}

void note_host_read(const Tensor& t, const char* what) {
  if (Tracer* tracer = Tracer::current()) tracer->host_read(t, what);
}

void warn_traced(const char* text) {
  if (Tracer* tracer = traced_int ? Tracer::current() : nullptr) tracer->warn(text);
}

void note_traced_function(PyObject* const* args, size_t n) {
  Tracer* tracer = Tracer::current();
  if (!tracer || !grad_enabled()) return;
  std::vector<Tensor> tensors;
  for (size_t k = 0; k < n; ++k)
    if (is_tensor(args[k])) tensors.push_back(tensor_of(args[k]));
  tracer->forward_only(tensors);
}

void init_traced_size(PyObject* module) { checked_status(PyModule_AddFunctions(module, functions)); }

} // namespace ts::py
