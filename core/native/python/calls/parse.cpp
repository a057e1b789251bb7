#include "python/calls/parse.h"
#include "autograd/meta.h"
#include "extend/pending_bits.h"
#include "python/graph/traced_size.h"
#include "python/tensor/items.h"
#include "python/tensor/tensor_subclass.h"
#include "runtime/backend.h"
#include <cmath>

namespace ts::py {

// --- scratch memory ----------------------------------------------------------------------------------------------

int64_t* Scratch::words(size_t n) {
  if (used_words_ + n <= kWords) {
    int64_t* at = words_ + used_words_;
    used_words_ += n;
    return at;
  }
  if (!more_words_) more_words_ = std::make_unique<std::vector<std::unique_ptr<int64_t[]>>>();
  more_words_->push_back(std::make_unique<int64_t[]>(n));
  return more_words_->back().get();
}

Tensor* Scratch::tensors(size_t n) {
  if (used_tensors_ + n <= kTensors) {
    Tensor* at = reinterpret_cast<Tensor*>(tensors_) + used_tensors_;
    for (size_t i = 0; i < n; ++i) new (at + i) Tensor();
    used_tensors_ += n;
    return at;
  }
  if (!more_tensors_) more_tensors_ = std::make_unique<std::vector<std::unique_ptr<Tensor[]>>>();
  more_tensors_->push_back(std::make_unique<Tensor[]>(n));
  return more_tensors_->back().get();
}

void Scratch::drop() {
  for (size_t i = 0; i < used_tensors_; ++i) (reinterpret_cast<Tensor*>(tensors_) + i)->~Tensor();
  used_tensors_ = 0;
  more_words_.reset();
  more_tensors_.reset();
}

// --- NumPy, if it is there ---------------------------------------------------------------------------------------

namespace {

PyTypeObject* numpy_type(const char* name, PyTypeObject*& cache) {
  if (cache) return cache;
  PyObject* numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
  if (!numpy) return nullptr;
  PyObject* type = PyObject_GetAttrString(numpy, name);
  if (!type || !PyType_Check(type)) {
    PyErr_Clear(); // NumPy is still being imported
    Py_XDECREF(type);
    return nullptr;
  }
  return cache = reinterpret_cast<PyTypeObject*>(type); // kept for good
}

bool numpy_number(PyObject* o, Value& out) {
  PyRef dtype = checked(PyObject_GetAttrString(o, "dtype"));
  PyRef kind = checked(PyObject_GetAttrString(dtype.get(), "kind"));
  switch (to_utf8(kind.get())[0]) {
  case 'b': {
    int truth = PyObject_IsTrue(o);
    checked_status(truth);
    out = Value(truth == 1);
    return true;
  }
  case 'i':
  case 'u': {
    PyRef number = checked(PyNumber_Index(o));
    return as_number(number.get(), out);
  }
  case 'f':
  case 'V': { // V: ml_dtypes
    PyRef number = checked(PyNumber_Float(o));
    out = Value(PyFloat_AS_DOUBLE(number.get()));
    return true;
  }
  default: return false;
  }
}

bool int_of_long(PyObject* o, int64_t& out) {
  int overflow = 0;
  out = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (overflow) raise(PyExc_OverflowError, "int too large: expected a value that fits in 64 bits");
  return true;
}

// __index__ of foreign objects; a TypeError means "not an integer".
bool int_of_index(PyObject* o, int64_t& out) {
  if (!PyIndex_Check(o)) return false;
  PyRef number = PyRef::steal(PyNumber_Index(o));
  if (number) return int_of_long(number.get(), out);
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw_python();
  PyErr_Clear();
  return false;
}

bool is_lone_number(const Tensor& t) { return t.ndim() == 0 && !requires_grad(t); }

} // namespace

PyTypeObject* numpy_array_type() {
  static PyTypeObject* cache = nullptr;
  return numpy_type("ndarray", cache);
}
PyTypeObject* numpy_scalar_type() {
  static PyTypeObject* cache = nullptr;
  return numpy_type("generic", cache);
}

// --- single values -----------------------------------------------------------------------------------------------

Value item_value(const Tensor& t) {
  TS_CHECK(t.numel() == 1, "a Tensor with ", t.numel(), " elements cannot be converted to Scalar");
  if (item_comes_from_python(t)) [[unlikely]] {
    Value number;
    TS_CHECK_TYPE(as_number(dispatched_item(t).get(), number), "item: expected __torch_dispatch__ to return a number");
    return number;
  }
  TS_CHECK(!t.device().is_meta(), "Tensor.item() cannot be called on meta tensors: they have no data");
  note_host_read(t, is_bool(t.dtype())              ? "Python boolean"
                    : is_integral(t.dtype(), false) ? "Python integer"
                                                    : "Python number");
  alignas(16) char bytes[16];
  copy_bytes_to_host(bytes, materialized(t), static_cast<size_t>(t.item_size()), "item");
  return load_item(t.dtype(), bytes);
}

bool as_int(PyObject* o, int64_t& out) {
  if (PyLong_CheckExact(o)) [[likely]]
    return int_of_long(o, out);
  if (PyBool_Check(o)) return false;
  if (PyLong_Check(o)) return int_of_long(o, out);
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (!is_lone_number(t) || !is_integral(t.dtype(), false)) return false;
    out = item_value(t).i;
    return true;
  }
  if (Value v; traced_number(o, v) && v.tag == Tag::Int) {
    out = v.i;
    return true;
  }
  return int_of_index(o, out);
}

bool as_int_argument(PyObject* o, int64_t& out) {
  if (!is_tensor(o)) return as_int(o, out);
  const Tensor& t = tensor_of(o);
  if (t.numel() != 1 || !is_integral(t.dtype(), false)) return false;
  out = item_value(t).i;
  return true;
}

bool as_number(PyObject* o, Value& out) {
  if (PyFloat_Check(o)) {
    out = Value(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyBool_Check(o)) {
    out = Value(o == Py_True);
    return true;
  }
  if (PyLong_Check(o)) {
    int64_t i = 0;
    int_of_long(o, i);
    out = Value(i);
    return true;
  }
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (!is_lone_number(t) || is_complex(t.dtype())) return false;
    out = item_value(t);
    return true;
  }
  if (traced_number(o, out)) {
    note_number(o, &out);
    return true;
  }
  PyTypeObject* generic = numpy_scalar_type();
  return generic && PyType_IsSubtype(Py_TYPE(o), generic) && numpy_number(o, out);
}

bool as_any_number(PyObject* o, Value& out, double* parts) {
  if (as_number(o, out)) return true;
  bool lone = is_tensor(o) && is_lone_number(tensor_of(o)) && is_complex(tensor_of(o).dtype());
  PyTypeObject* generic = numpy_scalar_type();
  bool foreign = generic && PyType_IsSubtype(Py_TYPE(o), generic) && PyObject_HasAttrString(o, "__complex__");
  if (!PyComplex_Check(o) && !lone && !foreign) return false;
  PyRef number = PyRef::borrow(o);
  if (lone) number = checked(PyObject_CallMethod(o, "item", nullptr));
  Py_complex c = PyComplex_AsCComplex(number.get());
  if (c.real == -1.0 && PyErr_Occurred()) throw_python();
  parts[0] = c.real;
  parts[1] = c.imag;
  out = Value();
  out.tag = Tag::Complex;
  out.len = 2;
  out.floats = parts;
  return true;
}

namespace {

bool as_double(PyObject* o, Value& out) {
  if (!follow_read(o, out, &out, false) && !as_number(o, out)) return false;
  out = Value(out.as_double());
  return true;
}

bool as_bool(PyObject* o, Value& out) {
  if (PyBool_Check(o)) {
    out = Value(o == Py_True);
    return true;
  }
  PyTypeObject* generic = numpy_scalar_type();
  if (!generic || !PyType_IsSubtype(Py_TYPE(o), generic)) return false;
  return numpy_number(o, out) && out.tag == Tag::Bool;
}

bool as_memory_format(PyObject* o, Value& out) {
  if (!is_format(o)) return false;
  out = Value(reinterpret_cast<FormatObject*>(o)->value);
  return true;
}

bool as_generator(PyObject* o, Value& out) {
  if (!is_generator(o)) return false;
  out = Value(reinterpret_cast<GeneratorObject*>(o)->value);
  return true;
}

bool as_device(PyObject* o, Value& out) {
  if (!is_device(o) && !PyUnicode_Check(o)) return false;
  out = Value(expect_device(o, "device"));
  return true;
}

bool as_dtype_value(PyObject* o, Value& out) {
  std::optional<DType> t = as_dtype(o);
  if (t) out = Value(*t);
  return t.has_value();
}

bool as_str(PyObject* o, Value& out) {
  if (!PyUnicode_Check(o)) return false;
  const char* s = PyUnicode_AsUTF8(o);
  if (!s) throw_python();
  out = Value(s);
  return true;
}

bool as_tensor_value(PyObject* o, Value& out) {
  if (!is_tensor(o)) return false;
  out = Value(impl_of(o));
  return true;
}

bool as_scalar_value(PyObject* o, Value& out, Scratch& scratch) {
  if (follow_read(o, out, &out, false)) return true;
  if (as_number(o, out)) return true;
  return as_any_number(o, out, reinterpret_cast<double*>(scratch.words(2)));
}

bool convert_one(TypeKind kind, PyObject* o, Value& out, Scratch& scratch) {
  switch (kind) {
  case TypeKind::Tensor: return as_tensor_value(o, out);
  case TypeKind::Operand: return as_tensor_value(o, out) || as_scalar_value(o, out, scratch);
  case TypeKind::Scalar: return as_scalar_value(o, out, scratch);
  case TypeKind::Int: {
    int64_t i = 0;
    if (follow_read(o, out, &out, true)) return true;
    if (!as_int_argument(o, i)) return false;
    out = Value(i);
    note_number(o, &out);
    return true;
  }
  case TypeKind::Float: return as_double(o, out);
  case TypeKind::Bool: return as_bool(o, out);
  case TypeKind::Str: return as_str(o, out);
  case TypeKind::DType: return as_dtype_value(o, out);
  case TypeKind::Device: return as_device(o, out);
  case TypeKind::Generator: return as_generator(o, out);
  case TypeKind::MemoryFormat: return as_memory_format(o, out);
  }
  return false;
}

// --- lists -------------------------------------------------------------------------------------------------------

bool as_tensor_list(PyObject* o, bool optional_elements, Value& out, Scratch& scratch) {
  auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(o));
  Tensor* list = scratch.tensors(n);
  for (size_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(o, static_cast<Py_ssize_t>(i));
    if (is_tensor(item))
      list[i] = tensor_of(item);
    else if (!optional_elements || item != Py_None)
      return false;
  }
  out = Value(TensorList(list, n));
  return true;
}

bool as_float_list(PyObject* o, Value& out, Scratch& scratch) {
  auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(o));
  auto* list = reinterpret_cast<double*>(scratch.words(n));
  for (size_t i = 0; i < n; ++i) {
    Value v;
    // Converting an item may run Python code that changes the list.
    if (static_cast<Py_ssize_t>(i) >= PySequence_Fast_GET_SIZE(o)) return false;
    PyRef item = PyRef::borrow(PySequence_Fast_GET_ITEM(o, static_cast<Py_ssize_t>(i)));
    if (!as_double(item.get(), v)) return false;
    list[i] = v.f;
    note_number(item.get(), &list[i]);
  }
  out = Value(std::span<const double>(list, n));
  return true;
}

bool repeat_int(const ArgType& t, PyObject* o, Value& out, Scratch& scratch) {
  int64_t i = 0;
  if (!as_int_argument(o, i)) return false;
  auto n = static_cast<size_t>(std::max(t.repeat, 1));
  int64_t* list = scratch.words(n);
  std::fill_n(list, n, i);
  for (size_t k = 0; k < n; ++k) note_number(o, &list[k]);
  out = Value(IntSpan(list, n));
  return true;
}

bool repeat_float(const ArgType& t, PyObject* o, Value& out, Scratch& scratch) {
  Value v;
  if (!as_double(o, v)) return false;
  auto n = static_cast<size_t>(std::max(t.repeat, 1));
  auto* list = reinterpret_cast<double*>(scratch.words(n));
  std::fill_n(list, n, v.f);
  for (size_t k = 0; k < n; ++k) note_number(o, &list[k]);
  out = Value(std::span<const double>(list, n));
  return true;
}

// bool[n]: stored as ints.
bool as_bool_list(PyObject* o, Value& out, Scratch& scratch) {
  auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(o));
  int64_t* list = scratch.words(n);
  for (size_t i = 0; i < n; ++i) {
    Value v;
    if (!as_bool(PySequence_Fast_GET_ITEM(o, static_cast<Py_ssize_t>(i)), v)) return false;
    list[i] = v.i;
  }
  out = Value(IntSpan(list, n));
  return true;
}

bool convert_list(const ArgType& t, PyObject* o, Value& out, Scratch& scratch, bool lenient) {
  bool sequence = PyTuple_Check(o) || PyList_Check(o);
  switch (t.kind) {
  case TypeKind::Tensor: return sequence && as_tensor_list(o, t.optional_elements, out, scratch);
  case TypeKind::Int:
    if (sequence) return as_int_list(o, out, scratch);
    return (t.repeat > 0 || lenient) && repeat_int(t, o, out, scratch);
  case TypeKind::Float:
  case TypeKind::Scalar:
    if (sequence) return as_float_list(o, out, scratch);
    return (t.repeat > 0 || lenient) && repeat_float(t, o, out, scratch);
  case TypeKind::Bool: return sequence && as_bool_list(o, out, scratch);
  default: return false;
  }
}

const char* kind_name(TypeKind kind) {
  switch (kind) {
  case TypeKind::Tensor: return "Tensor";
  case TypeKind::Operand: return "Tensor or Number";
  case TypeKind::Scalar: return "Number";
  case TypeKind::Int: return "int";
  case TypeKind::Float: return "float";
  case TypeKind::Bool: return "bool";
  case TypeKind::Str: return "str";
  case TypeKind::DType: return "tesserack.dtype";
  case TypeKind::Device: return "tesserack.device";
  case TypeKind::Generator: return "tesserack.Generator";
  case TypeKind::MemoryFormat: return "tesserack.memory_format";
  }
  return "?";
}

} // namespace

bool as_int_list(PyObject* o, Value& out, Scratch& scratch) {
  auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(o));
  int64_t* list = scratch.words(n);
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<Py_ssize_t>(i) >= PySequence_Fast_GET_SIZE(o)) return false; // changed by an __index__
    PyObject* item = PySequence_Fast_GET_ITEM(o, static_cast<Py_ssize_t>(i));
    if (PyLong_CheckExact(item)) [[likely]] {
      int_of_long(item, list[i]);
      continue;
    }
    PyRef alive = PyRef::borrow(item);
    if (Value v; follow_read(item, v, &list[i], true)) {
      list[i] = v.i;
      continue;
    }
    if (!as_int_argument(item, list[i])) return false;
    note_number(item, &list[i]);
  }
  out = Value(IntSpan(list, n));
  return true;
}

bool convert(const ArgType& t, PyObject* o, Value& out, Scratch& scratch, bool lenient) {
  if (o == Py_None) {
    out = Value();
    return t.optional;
  }
  return t.list ? convert_list(t, o, out, scratch, lenient) : convert_one(t.kind, o, out, scratch);
}

std::string friendly(const ArgType& t) {
  if (t.list) return std::string("tuple of ") + (t.kind == TypeKind::Scalar ? "float" : kind_name(t.kind)) + "s";
  return kind_name(t.kind);
}

} // namespace ts::py
