// tesserack.backends.Operand. One is made per tensor of every call of a Python kernel, so they are recycled.
#include "python/calls/operand_object.h"
#include "python/types.h"
#include "tensor/dtype.h"
#include <cstring>
#include <memory>

namespace ts::py {
namespace {

constexpr int kInline = 6;

struct OperandObject {
  PyObject_HEAD PyObject* handle; // owned
  PyObject* shape;                // owned, made on demand
  PyObject* strides;
  int64_t* heap; // sizes, then strides, when there are more than kInline of each; owned
  int64_t byte_offset, numel;
  int32_t dtype, ndim;
  uint32_t flags;
  int64_t dims[2 * kInline];
};
OperandObject* operand(PyObject* o) { return reinterpret_cast<OperandObject*>(o); }
const int64_t* sizes_of(const OperandObject* o) { return o->heap ? o->heap : o->dims; }
const int64_t* strides_of(const OperandObject* o) { return o->heap ? o->heap + o->ndim : o->dims + kInline; }

PyTypeObject* OperandType = nullptr;
constexpr int kMaxFree = 64;
OperandObject* g_free[kMaxFree]; // guarded by the interpreter lock
int g_num_free = 0;

OperandObject* fresh() {
  if (g_num_free > 0) {
    OperandObject* o = g_free[--g_num_free];
    PyObject_Init(reinterpret_cast<PyObject*>(o), OperandType);
    return o;
  }
  return PyObject_New(OperandObject, OperandType);
}

void operand_object_dealloc(PyObject* self) {
  OperandObject* o = operand(self);
  Py_XDECREF(o->handle);
  Py_XDECREF(o->shape);
  Py_XDECREF(o->strides);
  delete[] o->heap;
  PyTypeObject* type = Py_TYPE(self);
  if (g_num_free < kMaxFree)
    g_free[g_num_free++] = o;
  else
    PyObject_Free(self);
  Py_DECREF(type);
}

PyRef dims_tuple(const int64_t* dims, int32_t n) {
  PyRef tuple = checked(PyTuple_New(n));
  for (int32_t k = 0; k < n; ++k) PyTuple_SET_ITEM(tuple.get(), k, checked(PyLong_FromLongLong(dims[k])).release());
  return tuple;
}

PyObject* get_shape(PyObject* self, void*) {
  return guarded([&] {
    OperandObject* o = operand(self);
    if (!o->shape) o->shape = dims_tuple(sizes_of(o), o->ndim).release();
    return Py_NewRef(o->shape);
  });
}
PyObject* get_strides(PyObject* self, void*) {
  return guarded([&] {
    OperandObject* o = operand(self);
    if (!o->strides) o->strides = dims_tuple(strides_of(o), o->ndim).release();
    return Py_NewRef(o->strides);
  });
}
PyObject* get_byte_strides(PyObject* self, void*) {
  return guarded([&] {
    OperandObject* o = operand(self);
    int64_t item = item_size(static_cast<DType>(o->dtype));
    PyRef tuple = checked(PyTuple_New(o->ndim));
    for (int32_t k = 0; k < o->ndim; ++k)
      PyTuple_SET_ITEM(tuple.get(), k, checked(PyLong_FromLongLong(strides_of(o)[k] * item)).release());
    return tuple.release();
  });
}
PyObject* get_handle(PyObject* self, void*) {
  return Py_NewRef(operand(self)->handle ? operand(self)->handle : Py_None);
}
PyObject* get_dtype(PyObject* self, void*) { return Py_NewRef(dtype_object(static_cast<DType>(operand(self)->dtype))); }
PyObject* get_byte_offset(PyObject* self, void*) { return PyLong_FromLongLong(operand(self)->byte_offset); }
PyObject* get_numel(PyObject* self, void*) { return PyLong_FromLongLong(operand(self)->numel); }
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(operand(self)->ndim); }
PyObject* get_itemsize(PyObject* self, void*) {
  return PyLong_FromLongLong(item_size(static_cast<DType>(operand(self)->dtype)));
}
template <uint32_t Flag> PyObject* get_flag(PyObject* self, void*) {
  return PyBool_FromLong(operand(self)->flags & Flag);
}

PyObject* operand_object_repr(PyObject* self) {
  return guarded([&] {
    OperandObject* o = operand(self);
    auto dims = [&](const int64_t* d) { return IntSpan(d, static_cast<size_t>(o->ndim)); };
    return to_python(concat("Operand(", static_cast<DType>(o->dtype), dims(sizes_of(o)),
                            ", strides=", dims(strides_of(o)), ", byte_offset=", o->byte_offset, ")"))
        .release();
  });
}

PyGetSetDef g_operand_object_properties[] = {
    {"handle", get_handle, nullptr, "What the backend's alloc returned.", nullptr},
    {"byte_offset", get_byte_offset, nullptr, "Where the first element lies in the storage, in bytes.", nullptr},
    {"shape", get_shape, nullptr, "Sizes, a tuple.", nullptr},
    {"strides", get_strides, nullptr, "Strides in elements: zero where expanded, negative where flipped.", nullptr},
    {"byte_strides", get_byte_strides, nullptr, "Strides in bytes.", nullptr},
    {"dtype", get_dtype, nullptr, "The elements' dtype.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"numel", get_numel, nullptr, "How many elements it shows.", nullptr},
    {"ndim", get_ndim, nullptr, "How many dimensions it has.", nullptr},
    {"is_contiguous", get_flag<TS_T_CONTIGUOUS>, nullptr, "Whether it is row-major without gaps.", nullptr},
    {"is_mutable", get_flag<TS_T_MUTABLE>, nullptr, "Whether the kernel writes this input.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* number_object(const ts_tensor& t) {
  if (t.dtype == TS_BOOL) return PyBool_FromLong(t.scalar.i != 0);
  if (is_floating(static_cast<DType>(t.dtype))) return PyFloat_FromDouble(t.scalar.f);
  return t.dtype == TS_UINT64 ? PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(t.scalar.i))
                              : PyLong_FromLongLong(t.scalar.i);
}

} // namespace

PyObject* operand_object(const KernelOwner& owner, const ts_tensor& t) {
  if (t.flags & TS_T_NONE) return none();
  if (t.flags & TS_T_SCALAR) return checked(number_object(t)).release();
  PyRef handle = handle_ref(owner, t.handle);
  OperandObject* o = fresh();
  if (!o) throw_python();
  o->handle = handle.release();
  o->shape = o->strides = nullptr;
  o->heap = nullptr;
  o->byte_offset = t.byte_offset;
  o->numel = t.numel;
  o->dtype = t.dtype;
  o->ndim = t.ndim;
  o->flags = t.flags;
  size_t n = static_cast<size_t>(t.ndim);
  int64_t* sizes = o->dims;
  int64_t* strides = o->dims + kInline;
  if (t.ndim > kInline) {
    o->heap = std::make_unique<int64_t[]>(2 * n).release();
    sizes = o->heap;
    strides = o->heap + n;
  }
  if (n) {
    std::memcpy(sizes, t.sizes, n * sizeof(int64_t));
    std::memcpy(strides, t.strides, n * sizeof(int64_t));
  }
  return reinterpret_cast<PyObject*>(o);
}

void init_operand_type(PyObject* module) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(operand_object_dealloc)},
                                {Py_tp_repr, reinterpret_cast<void*>(operand_object_repr)},
                                {Py_tp_getset, g_operand_object_properties},
                                {Py_tp_doc, const_cast<char*>("A tensor as a backend's kernel sees it.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"tesserack.backends.Operand", sizeof(OperandObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyRef type = checked(PyType_FromSpec(&spec));
  OperandType = reinterpret_cast<PyTypeObject*>(type.get());
  add_object(module, "_Operand", type.release());
}

} // namespace ts::py
