#include "python/graph/traced_size.h"
#include "autograd/meta.h"
#include "graph/tracer.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"

namespace ts::py {
namespace {

using graph::Id;
using graph::Item;
using graph::SizeOp;
using graph::Tracer;

PyTypeObject *g_int = nullptr, *g_float = nullptr; // set once, by the package
PyObject *g_value_name = nullptr, *g_number_name = nullptr;

bool is_traced(PyObject* o) { return g_int && (Py_TYPE(o) == g_int || Py_TYPE(o) == g_float); }

PyRef python_number(const Item& number) {
  return checked(number.tag == Tag::Int ? PyLong_FromLongLong(number.i) : PyFloat_FromDouble(number.f));
}

PyObject* make(const Item& number, Id value) {
  PyRef plain = python_number(number);
  PyRef id = checked(PyLong_FromUnsignedLongLong(uint64_t{Tracer::current()->serial()} << 32 | value));
  PyTypeObject* type = number.tag == Tag::Int ? g_int : g_float;
  return checked(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(type), plain.get(), id.get(), nullptr))
      .release();
}

Item constant_of(PyObject* o) {
  if (PyFloat_Check(o)) return Item::real(PyFloat_AS_DOUBLE(o));
  TS_CHECK_TYPE(PyLong_Check(o), "trace: expected a number, got ", type_name(o));
  int overflow = 0;
  int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (overflow) raise(PyExc_OverflowError, "int too large: expected a value that fits in 64 bits");
  return Item::integer(i);
}

// The value of an object of the classes, from this program; kNone.
Id value_of(PyObject* o) {
  if (!is_traced(o)) return graph::kNone;
  PyRef id = checked(PyObject_GetAttr(o, g_value_name));
  uint64_t number = PyLong_AsUnsignedLongLong(id.get());
  Tracer* t = Tracer::current();
  return t && number >> 32 == t->serial() ? static_cast<Id>(number) : graph::kNone;
}

Item item_of(PyObject* o) {
  if (!is_traced(o)) return constant_of(o);
  if (Id v = value_of(o); v != graph::kNone) return Item::value(Py_TYPE(o) == g_int ? Tag::Int : Tag::Float, v);
  return constant_of(checked(PyObject_GetAttr(o, g_number_name)).get()); // of another program
}

// _trace_number(op, a, b) -> the result, or None where nothing is written down
PyObject* number(PyObject*, PyObject* args) {
  const char* name;
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "sOO:_trace_number", &name, &a, &b)) return nullptr;
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
  if (!PyArg_ParseTuple(args, "sOOp:_trace_guard", &name, &a, &b, &answer)) return nullptr;
  return guarded([&] {
    SizeOp op = graph::size_op_named(name);
    TS_CHECK_VALUE(is_guard(op) && op != SizeOp::Forward, "trace: '", name, "' is no comparison");
    if (Tracer* t = Tracer::current(); t && traced_int) t->guard(op, item_of(a), item_of(b), answer != 0);
    return none();
  });
}

// _set_traced_numbers(whole, real): classes called with a number and the value that it is
PyObject* set_classes(PyObject*, PyObject* args) {
  PyTypeObject *whole, *real;
  if (!PyArg_ParseTuple(args, "O!O!:_set_traced_numbers", &PyType_Type, &whole, &PyType_Type, &real)) return nullptr;
  return guarded([&] {
    g_value_name = checked(PyUnicode_InternFromString("_value")).release();
    g_number_name = checked(PyUnicode_InternFromString("_number")).release();
    g_float = reinterpret_cast<PyTypeObject*>(Py_NewRef(real));
    g_int = reinterpret_cast<PyTypeObject*>(Py_NewRef(whole));
    return none();
  });
}

PyObject* tracing(PyObject*, PyObject*) { return PyBool_FromLong(is_tracing()); }

PyMethodDef functions[] = {{"_trace_number", number, METH_VARARGS, nullptr},
                           {"_trace_guard", guard, METH_VARARGS, nullptr},
                           {"_set_traced_numbers", set_classes, METH_VARARGS, nullptr},
                           {"_is_tracing", tracing, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

} // namespace

void watch_sizes(bool on) {
  static int count = 0; // under the interpreter's lock
  count += on ? 1 : -1;
  traced_int = count ? g_int : nullptr;
}

void note_leaf() {
  if (Tracer* tracer = Tracer::current()) tracer->note_leaf();
}

bool is_tracing() { return traced_int && Tracer::current(); }

PyObject* traced_size(const Tensor& t, int64_t dim) {
  Tracer* tracer = Tracer::current();
  int64_t n = t.sizes()[static_cast<size_t>(dim)];
  if (!tracer || t->payload) return checked(PyLong_FromLongLong(n)).release();
  return make(Item::integer(n), tracer->size_of(t, dim));
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

bool program_calls() {
  PyObject* globals = PyEval_GetGlobals(); // borrowed
  PyObject* name = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) PyErr_Clear();
  return !text || std::string_view(text).rfind("tesserack.", 0) != 0;
}

PyObject* traced_stride(const Tensor& t, int64_t dim) {
  Tracer* tracer = Tracer::current();
  int64_t n = t.strides()[static_cast<size_t>(dim)];
  if (!tracer || t->payload || !program_calls()) return checked(PyLong_FromLongLong(n)).release();
  return make(Item::integer(n), tracer->stride_of(t, dim));
}

PyObject* traced_numel(const Tensor& t) {
  Tracer* tracer = Tracer::current();
  if (!tracer || t->payload) return checked(PyLong_FromLongLong(t.numel())).release();
  return make(Item::integer(t.numel()), tracer->numel_of(t));
}

bool is_traced_int(PyObject* o) { return g_int && Py_TYPE(o) == g_int; }

bool traced_number(PyObject* o, Value& out) {
  if (!is_traced(o)) return false;
  Item number = constant_of(checked(PyObject_GetAttr(o, g_number_name)).get());
  out = number.tag == Tag::Int ? Value(number.i) : Value(number.f);
  return true;
}

void link_traced(PyObject* o, const void* place) {
  Tracer* t = Tracer::current();
  Id v = t ? value_of(o) : graph::kNone;
  if (v != graph::kNone) t->link(place, t->number(v), v);
}

bool read_traced(PyObject* o, Value& out, const void* place, bool whole) {
  Tracer* tracer = Tracer::current();
  if (!tracer || !is_tensor(o)) return false;
  const Tensor& t = tensor_of(o);
  const bool fits = is_integral(t.dtype(), false) || (!whole && is_floating(t.dtype()));
  if (!fits || t->payload || requires_grad(t) || t.numel() != 1 || (!whole && t.ndim() != 0)) return false;
  Id v = tracer->read(t);
  if (v == graph::kNone) return false;
  const Item& number = tracer->number(v);
  out = number.tag == Tag::Int ? Value(number.i) : Value(number.f);
  tracer->link(place, number, v);
  return true;
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
