// tensor(), as_tensor(), from_numpy(): shapes and dtypes found in nested data, then one pass to fill.
#include "python/tensor/construct.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "dispatch/operator.h"
#include "extend/pending_bits.h"
#include "graph/tracer.h"
#include "python/graph/traced_index.h"
#include "python/tensor/interop.h"
#include "python/tensor/items.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include "runtime/pinned.h"
#include "runtime/recording_state.h"
#include "tensor/thread_state.h"

namespace ts::py {
namespace {

bool is_text(PyObject* o) { return PyUnicode_Check(o) || PyBytes_Check(o); } // a bytearray is a list of numbers

bool is_numpy_array(PyObject* o) {
  PyTypeObject* array = numpy_array_type();
  return array && PyType_IsSubtype(Py_TYPE(o), array);
}
bool is_numpy_scalar(PyObject* o) {
  PyTypeObject* generic = numpy_scalar_type();
  return generic && PyType_IsSubtype(Py_TYPE(o), generic);
}
bool is_sequence(PyObject* o) {
  if (PyList_Check(o) || PyTuple_Check(o)) return true;
  return !is_text(o) && !is_tensor(o) && !is_numpy_array(o) && !is_numpy_scalar(o) && PySequence_Check(o);
}

// Tensors and arrays inside lists are blocks: their dimensions follow those of the lists. A tensor of one element is a
// number, whatever its shape.
bool is_block(PyObject* o) { return is_numpy_array(o) || (is_tensor(o) && tensor_of(o).numel() != 1); }
Tensor block_of(PyObject* o) {
  Tensor t = is_tensor(o) ? detach(tensor_of(o)) : from_array(o);
  return t;
}

PyRef fast_sequence(PyObject* o) { return checked(PySequence_Fast(o, "tensor: expected a sequence")); }

// Item k, if the sequence still has it: converting earlier items may have run code that shortened it.
PyRef item_of(PyObject* sequence, Py_ssize_t k) {
  TS_CHECK(k < PySequence_Fast_GET_SIZE(sequence), "tensor: the sequence changed while it was read");
  return PyRef::borrow(PySequence_Fast_GET_ITEM(sequence, k));
}

[[noreturn]] void too_deep(PyObject* o) {
  fail(ErrorKind::Value, "tensor: too many dimensions '", type_name(o), "'; lists may be nested ", TensorImpl::kMaxDims,
       " deep and must not contain themselves");
}

void refuse_itself(PyObject* sequence, PyObject* item) {
  TS_CHECK_TYPE(item != sequence, "tensor: self-referential lists are incompatible with tensors");
}

Dims find_sizes(PyObject* data) {
  Dims sizes;
  PyRef at = PyRef::borrow(data);
  while (is_sequence(at.get())) {
    if (sizes.size() == TensorImpl::kMaxDims) too_deep(at.get());
    PyRef items = fast_sequence(at.get());
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
    sizes.push_back(n);
    if (n == 0) return sizes;
    PyRef first = item_of(items.get(), 0);
    refuse_itself(at.get(), first.get());
    at = std::move(first);
  }
  // A letter is a text of one letter, and so on, as PyTorch sees it.
  if (!sizes.empty() && PyUnicode_Check(at.get()) && PyUnicode_GET_LENGTH(at.get()) > 0)
    fail(ErrorKind::Value, "tensor: too many dimensions 'str'; expected numbers in the lists");
  if (is_block(at.get())) {
    Tensor block = block_of(at.get());
    for (int64_t s : block.sizes()) sizes.push_back(s);
    if (sizes.size() > TensorImpl::kMaxDims) too_deep(data);
  }
  return sizes;
}

// --- dtype -------------------------------------------------------------------------------------------------------

DType numpy_scalar_dtype(PyObject* o) {
  PyRef dtype = checked(PyObject_GetAttrString(o, "dtype"));
  PyRef text = checked(PyObject_GetAttrString(dtype.get(), "name"));
  DType t = dtype_from_name(to_utf8(text.get()));
  TS_CHECK_TYPE(t != DType::Undefined, "tensor: no dtype for numpy.", to_utf8(text.get()));
  return t;
}

DType scalar_dtype(PyObject* o) {
  if (PyFloat_CheckExact(o)) return default_dtype();
  if (PyBool_Check(o)) return DType::Bool;
  if (PyLong_CheckExact(o)) return DType::Int64;
  if (is_tensor(o)) return tensor_of(o).dtype();
  if (is_numpy_scalar(o)) return numpy_scalar_dtype(o);
  if (PyFloat_Check(o)) return default_dtype();
  if (PyLong_Check(o)) return DType::Int64;
  if (PyComplex_Check(o)) return complex_type(default_dtype());
  if (Value v; traced_number(o, v)) return v.tag == Tag::Int ? DType::Int64 : default_dtype();
  TS_CHECK_TYPE(!is_text(o), "tensor: invalid data type '", type_name(o), "'");
  fail(ErrorKind::Runtime, "tensor: Could not infer dtype of ", type_name(o));
}

DType infer_dtype(PyObject* data, int depth) {
  if (is_numpy_array(data)) return numpy_scalar_dtype(data);
  if (!is_sequence(data)) return scalar_dtype(data);
  if (depth > TensorImpl::kMaxDims) too_deep(data);
  PyRef items = fast_sequence(data);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
  DType found = DType::Undefined;
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyRef item = item_of(items.get(), k);
    refuse_itself(data, item.get());
    DType t = infer_dtype(item.get(), depth + 1);
    found = found == DType::Undefined ? t : found == t ? found : promote_types(found, t);
  }
  return n ? found : default_dtype();
}

// --- filling -----------------------------------------------------------------------------------------------------

struct Target {
  DType dtype;
  IntSpan sizes;
  std::vector<int64_t> bytes; // of one step along each dimension
};

void fill_block(const Target& target, size_t dim, char* at, PyObject* o) {
  Tensor block = block_of(o);
  TS_CHECK_VALUE(same(block.sizes(), target.sizes.subspan(dim)), "tensor: expected a block of shape ",
                 target.sizes.subspan(dim), ", got ", block.sizes());
  if (block.numel() == 0) return;
  Tensor dense = materialized(ops::contiguous(ops::to_dtype(block, target.dtype)));
  copy_bytes_to_host(at, dense, static_cast<size_t>(dense.nbytes()));
}

void fill(const Target& target, size_t dim, char* at, PyObject* o) {
  if (is_block(o)) return fill_block(target, dim, at, o);
  if (dim == target.sizes.size()) {
    if (is_tensor(o)) {
      Tensor cast = materialized(ops::to_dtype(detach(tensor_of(o)), target.dtype));
      copy_bytes_to_host(at, cast, static_cast<size_t>(cast.nbytes()));
    } else if (!store_item(target.dtype, at, o)) {
      fail(ErrorKind::Type, "tensor: expected a number, got ", type_name(o));
    }
    return;
  }
  TS_CHECK_TYPE(is_sequence(o), "tensor: expected a sequence of length ", target.sizes[dim], " at dim ", dim, ", got ",
                type_name(o));
  PyRef items = fast_sequence(o);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
  TS_CHECK_VALUE(n == target.sizes[dim], "expected sequence of length ", target.sizes[dim], " at dim ", dim, " (got ",
                 n, ")");
  for (Py_ssize_t k = 0; k < n; ++k) fill(target, dim + 1, at + k * target.bytes[dim], item_of(items.get(), k).get());
}

Target make_target(DType dtype, IntSpan sizes) {
  Target target{dtype, sizes, std::vector<int64_t>(sizes.size())};
  int64_t step = item_size(dtype);
  for (size_t d = sizes.size(); d-- > 0;) {
    target.bytes[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return target;
}

Tensor copy_of(const Tensor& source, DType dtype, Device device) {
  Tensor t = ops::detach(source);
  if (dtype == DType::Undefined) dtype = t.dtype();
  bool moves = !(t.device() == device), casts = t.dtype() != dtype;
  if (casts) t = ops::to_dtype(t, dtype);
  if (moves) t = ops::to_device(t, device);
  return moves || casts ? t : ops::clone(t);
}

// The tensor that a storage holds, nothing for other data: lists and numbers are not even asked.
PyRef storage_numbers(PyObject* data, DType dtype) {
  if (PyList_CheckExact(data) || PyTuple_CheckExact(data) || !PyObject_HasAttrString(data, "_storage_numbers"))
    return {};
  PyObject* wanted = dtype == DType::Undefined ? Py_None : dtype_object(dtype);
  return checked(PyObject_CallMethod(data, "_storage_numbers", "O", wanted));
}

// Whether the data gives its memory by DLPack: another library's array, that would else be read number by number.
bool gives_memory(PyObject* data) {
  if (PyList_CheckExact(data) || PyTuple_CheckExact(data) || PyFloat_CheckExact(data) || PyLong_CheckExact(data))
    return false;
  return !is_numpy_scalar(data) && PyObject_HasAttrString(data, "__dlpack__");
}

// The tensor over memory that the data has, nothing for numbers.
Tensor shared_memory(PyObject* data) {
  if (is_numpy_array(data)) return from_array(data);
  return gives_memory(data) ? from_dlpack(data) : Tensor();
}

int g_lift_key = -1;
PyObject* g_lift = nullptr; // called with a new tensor where this thread's calls come to the key

bool is_lifting() {
  const ThreadState& state = thread_state();
  return g_lift_key >= 0 && (state.include & ~state.exclude & key_bit(g_lift_key));
}

// A tensor of numbers that the program gives is no operator's result: whoever watches operators is shown it here.
PyObject* lifted(Tensor t) {
  PyObject* made = wrap(std::move(t));
  if (!is_lifting()) return made;
  PyRef held = PyRef::steal(made);
  return checked(PyObject_CallOneArg(g_lift, made)).release();
}

// --- tensors in lists, before those who look on: numbers there would be constants of graphs ------------------------

// A number that a graph computes, and that no cast to the dtype cuts.
bool is_followed(PyObject* o, DType dtype) {
  Value v;
  return is_tracing() && traced_number(o, v) && (v.tag == Tag::Int || !is_integral(dtype, true));
}

bool holds_followed(PyObject* data, DType dtype, int depth = 0) {
  if (is_tensor(data) || is_followed(data, dtype)) return true;
  if (depth > TensorImpl::kMaxDims || (!PyList_Check(data) && !PyTuple_Check(data))) return false;
  PyRef items = fast_sequence(data);
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k)
    if (holds_followed(PySequence_Fast_GET_ITEM(items.get(), k), dtype, depth + 1)) return true;
  return false;
}

Tensor joined(const Target& target, size_t dim, Device device, PyObject* o) {
  if (dim == target.sizes.size() && is_followed(o, target.dtype)) return traced_scalar(o, target.dtype, device);
  if (!holds_followed(o, target.dtype)) {
    PyRef numbers = PyRef::steal(lifted(construct_tensor(o, target.dtype, device)));
    return tensor_of(numbers.get());
  }
  IntSpan rest = target.sizes.subspan(dim);
  if (is_tensor(o)) {
    Tensor t = ops::to_device(ops::to_dtype(ops::detach(tensor_of(o)), target.dtype), device);
    TS_CHECK_VALUE(t.numel() == 1 ? rest.empty() : same(t.sizes(), rest), "tensor: expected a block of shape ", rest,
                   ", got ", t.sizes());
    return rest.empty() ? ops::reshape(t, Dims{}) : t;
  }
  PyRef items = fast_sequence(o);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
  TS_CHECK_VALUE(!rest.empty() && n == rest[0], "expected sequence of length ", rest.empty() ? 0 : rest[0], " at dim ",
                 dim, " (got ", n, ")");
  std::vector<Tensor> parts;
  for (Py_ssize_t k = 0; k < n; ++k) parts.push_back(joined(target, dim + 1, device, item_of(items.get(), k).get()));
  return ops::stack(parts, int64_t{0});
}

bool is_looked_on(PyObject* data, DType dtype) {
  return (is_lifting() || graph::Tracer::current()) && holds_followed(data, dtype);
}

} // namespace

Tensor construct_tensor(PyObject* data, DType dtype, Device device) {
  GradMode off(false);
  TS_CHECK_TYPE(!is_text(data), "tensor: invalid data type '", type_name(data), "'");
  if (is_tensor(data)) return copy_of(tensor_of(data), dtype, device);
  if (Tensor shared = shared_memory(data); shared.defined()) return copy_of(shared, dtype, device);
  if (PyRef numbers = storage_numbers(data, dtype)) return copy_of(tensor_of(numbers.get()), dtype, device);
  Dims sizes = find_sizes(data);
  if (dtype == DType::Undefined) dtype = infer_dtype(data, 0);
  Target target = make_target(dtype, sizes);
  if (is_looked_on(data, dtype)) return joined(target, 0, device, data);
  check_recordable(device, "a copy from the host");
  Tensor out = empty_tensor(sizes, dtype, device);
  char* at = out.data<char>();
  std::unique_ptr<char[]> staging;
  if (!at) at = (staging = std::make_unique<char[]>(static_cast<size_t>(out.nbytes()) + 16)).get();
  fill(target, 0, at, data);
  if (staging && !device.is_meta()) copy_bytes_from_host(out, at, static_cast<size_t>(out.nbytes()));
  return out;
}

Tensor construct_as_tensor(PyObject* data, DType dtype, std::optional<Device> device) {
  Tensor t = is_tensor(data) ? tensor_of(data) : shared_memory(data);
  if (!t.defined()) return construct_tensor(data, dtype, device ? *device : default_device());
  if (dtype != DType::Undefined && dtype != t.dtype()) t = ops::to_dtype(t, dtype);
  Device target = device ? *device : is_tensor(data) ? t.device() : default_device();
  return t.device() == target ? t : ops::to_device(t, target);
}

namespace {

struct Options {
  PyObject *data = nullptr, *dtype = nullptr, *device = nullptr;
  int requires_grad = 0, pin_memory = 0;
  DType type() const {
    if (!dtype || dtype == Py_None) return DType::Undefined;
    std::optional<DType> t = as_dtype(dtype);
    TS_CHECK_TYPE(t, "tensor(): argument 'dtype' must be tesserack.dtype, not ", type_name(dtype));
    return *t;
  }
  std::optional<Device> place() const {
    if (!device || device == Py_None) return std::nullopt;
    return expect_device(device, "tensor");
  }
};

// _set_lift(key, function)
PyObject* set_lift(PyObject*, PyObject* args) {
  const char* key;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "sO:_set_lift", &key, &function)) return nullptr;
  return guarded([&] {
    int found = find_key(key);
    TS_CHECK_VALUE(found >= 0, "_set_lift: no dispatch key is named '", key, "'");
    Py_XSETREF(g_lift, Py_NewRef(function));
    g_lift_key = found;
    return none();
  });
}

PyObject* py_tensor(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "dtype", "device", "requires_grad", "pin_memory", nullptr};
  Options o;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOpp:tensor", const_cast<char**>(names), &o.data, &o.dtype,
                                   &o.device, &o.requires_grad, &o.pin_memory))
    return nullptr;
  return guarded([&] {
    if (is_tensor(o.data))
      warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
           "sourceTensor.detach().clone().requires_grad_(True), rather than tesserack.tensor(sourceTensor).");
    DType dtype = o.type();
    std::optional<Device> place = o.place();
    Device device = place ? *place : is_tensor(o.data) ? tensor_of(o.data).device() : default_device();
    Tensor t = construct_tensor(o.data, dtype, device);
    if (o.pin_memory) t = pin_new(t);
    bool looks = is_tensor(o.data) || is_numpy_array(o.data) || is_looked_on(o.data, t.dtype());
    PyRef made = PyRef::steal(looks ? wrap(std::move(t)) : lifted(std::move(t)));
    // What a mode gives instead is what requires gradients.
    if (o.requires_grad && is_tensor(made.get())) {
      set_requires_grad(tensor_of(made.get()), true);
      note_leaf();
    }
    return made.release();
  });
}

PyObject* py_as_tensor(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "dtype", "device", nullptr};
  Options o;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:as_tensor", const_cast<char**>(names), &o.data, &o.dtype,
                                   &o.device))
    return nullptr;
  return guarded([&] {
    DType dtype = o.type();
    Tensor t = construct_as_tensor(o.data, dtype, o.place());
    if (is_numpy_array(o.data)) warn_read_only(t);
    return is_tensor(o.data) || is_numpy_array(o.data) || is_looked_on(o.data, t.dtype()) ? wrap(std::move(t))
                                                                                          : lifted(std::move(t));
  });
}

PyObject* py_from_numpy(PyObject*, PyObject* array) {
  return guarded([&] {
    TS_CHECK_TYPE(is_numpy_array(array), "from_numpy: expected np.ndarray (got ", type_name(array), ")");
    Tensor made = from_array(array);
    warn_read_only(made);
    return wrap(made);
  });
}

PyMethodDef g_construct_functions[] = {
    {"tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_tensor)), METH_VARARGS | METH_KEYWORDS,
     "tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False)\n--\n\nA new tensor holding a "
     "copy of `data`: a number, nested "
     "sequences, a NumPy array.\n\nThe dtype is inferred: the default dtype for floats, int64 for ints, bool for "
     "bools, arrays keep theirs.\n\nRaises "
     "ValueError for ragged sequences, TypeError for what is not a number.\n\n>>> tesserack.tensor([[1, 2], [3, "
     "4]]).shape\ntesserack.Size([2, 2])"},
    {"as_tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_as_tensor)), METH_VARARGS | METH_KEYWORDS,
     "as_tensor(data, dtype=None, device=None)\n--\n\nA tensor of `data`, sharing memory and history where it can."},
    {"from_numpy", py_from_numpy, METH_O, "from_numpy(ndarray)\n--\n\nA tensor sharing memory with a NumPy array."},
    {"_set_lift", set_lift, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

void init_construct(PyObject* module) { checked_status(PyModule_AddFunctions(module, g_construct_functions)); }

} // namespace ts::py
