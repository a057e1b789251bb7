// The buffer protocol both ways, and NumPy by way of it.
#include "autograd/meta.h"
#include "python/calls/parse.h"
#include "python/graph/traced_size.h"
#include "python/tensor/interop.h"
#include "python/tensor/tensor_slots.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "runtime/warn_once.h"
#include <cstring>
#include <unordered_map>

namespace ts::py {
namespace {

// --- out: memory of a tensor -------------------------------------------------------------------------------------

constexpr const char* kFormats[kNumDTypes] = {"?", "B", "H",     "I", "L", "b",  "h", "i",
                                              "l", "e", nullptr, "f", "d", "Zf", "Zd"};
// What has no format character is shown as raw words of its size, as other libraries do.
const char* format_of(DType t) {
  const char* format = kFormats[static_cast<int>(t)];
  return format ? format : t == DType::BFloat16 ? "H" : t == DType::Complex32 ? "I" : "B";
}
std::string torch_name(DType t) {
  if (t == DType::BFloat16) return "BFloat16";
  if (t == DType::Complex32) return "ComplexHalf";
  std::string text(name(t));
  text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// Keeps the storage alive while others look at it, whatever becomes of the tensor.
struct ExportObject {
  PyObject_HEAD Storage* storage;
  Py_ssize_t shape[TensorImpl::kMaxDims];
  Py_ssize_t strides[TensorImpl::kMaxDims];
};

// How many look at a storage's memory; kept under the interpreter's lock.
std::unordered_map<const Storage*, int>& exports() {
  static auto* counts = new std::unordered_map<const Storage*, int>; // objects may outlive it at exit
  return *counts;
}

void export_dealloc(PyObject* self) {
  auto* e = reinterpret_cast<ExportObject*>(self);
  if (e->storage) {
    if (auto at = exports().find(e->storage); at != exports().end() && --at->second == 0) exports().erase(at);
    release(e->storage);
  }
  PyObject_Free(self);
}
PyTypeObject ExportType = [] {
  PyTypeObject t = blank_type("tesserack._native.BufferExport", sizeof(ExportObject), nullptr);
  t.tp_dealloc = export_dealloc;
  t.tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
  return t;
}();

void buffer_error(const char* message) { raise(PyExc_BufferError, message); }

PyRef buffer_make_export(const Tensor& t) {
  TS_CHECK_VALUE(t.ndim() <= TensorImpl::kMaxDims, "numpy: expected at most ", TensorImpl::kMaxDims,
                 " dimensions, got ", t.ndim());
  checked_status(PyType_Ready(&ExportType));
  auto* e = PyObject_New(ExportObject, &ExportType);
  if (!e) throw_python();
  e->storage = t->storage;
  if (e->storage) {
    retain(e->storage);
    ++exports()[e->storage];
  }
  for (size_t d = 0; d < t.sizes().size(); ++d) {
    e->shape[d] = t.sizes()[d];
    e->strides[d] = t.strides()[d] * t.item_size();
  }
  return PyRef::steal(reinterpret_cast<PyObject*>(e));
}

void buffer_check_exportable(const Tensor& t, int flags) {
  if (t->payload) buffer_error("a sparse tensor has no memory to look at; use tensor.to_dense() first");
  if (grad_enabled() && requires_grad(t))
    buffer_error("can't take a buffer of a tensor that requires grad; use tensor.detach()");
  if (t.is_conj()) buffer_error("the tensor's memory holds the conjugates of its values; use tensor.resolve_conj()");
  if (t.is_neg()) buffer_error("the tensor's memory holds the negatives of its values; use tensor.resolve_neg()");
  if (!t.data() && t.numel() != 0)
    buffer_error("the tensor's device memory has no host address; use tensor.cpu() first");
  bool read_only = t->has(TensorImpl::kConstantData);
  if (read_only && (flags & PyBUF_WRITABLE)) buffer_error("the tensor's memory is read-only");
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !t.is_contiguous())
    buffer_error("the tensor is not contiguous; use tensor.contiguous()");
  if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !t.is_contiguous())
    buffer_error("the tensor is not C-contiguous");
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && t.ndim() > 1)
    buffer_error("the tensor is not Fortran-contiguous");
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  return guarded([&] {
    note_host_read(tensor_of(self), "NumPy array");
    const Tensor& t = tensor_of(self);
    buffer_check_exportable(t, flags);
    const char* format = format_of(t.dtype());
    PyRef owner = buffer_make_export(t);
    auto* e = reinterpret_cast<ExportObject*>(owner.get());
    static char nothing;
    view->buf = t.numel() ? t.data() : &nothing;
    view->len = t.nbytes();
    view->readonly = t->has(TensorImpl::kConstantData);
    view->itemsize = t.item_size();
    view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->ndim = static_cast<int>(t.ndim());
    view->shape = flags & PyBUF_ND ? e->shape : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->strides : nullptr;
    view->suboffsets = nullptr;
    view->internal = nullptr;
    view->obj = owner.release();
    return 0;
  });
}

// --- in: memory of others ----------------------------------------------------------------------------------------

struct Lent {
  Py_buffer view{};
  bool taken = false;
  ~Lent() {
    if (taken) PyBuffer_Release(&view);
  }
};

void return_lent(Storage& s) {
  auto* lent = static_cast<Lent*>(s.deleter_ctx);
  if (!Py_IsInitialized()) return; // the process ends: its memory goes with it
  GilGuard gil;
  delete lent;
}

DType integer_type(char code, Py_ssize_t size) {
  bool is_signed = code >= 'a' && code <= 'z';
  switch (size) {
  case 1: return is_signed ? DType::Int8 : DType::UInt8;
  case 2: return is_signed ? DType::Int16 : DType::UInt16;
  case 4: return is_signed ? DType::Int32 : DType::UInt32;
  case 8: return is_signed ? DType::Int64 : DType::UInt64;
  default: return DType::Undefined;
  }
}

DType type_of_format(const char* format, Py_ssize_t itemsize) {
  if (!format) return DType::UInt8;
  TS_CHECK_VALUE(
      *format != '>' && *format != '!',
      "from_numpy: the array's byte order is not the native one; use array.astype(array.dtype.newbyteorder('='))");
  if (std::strchr("@=<|", *format) && *format) ++format;
  std::string f = format;
  if (f == "?") return DType::Bool;
  if (f == "e") return DType::Float16;
  if (f == "f") return DType::Float32;
  if (f == "d") return DType::Float64;
  if (f == "Zf") return DType::Complex64;
  if (f == "Zd") return DType::Complex128;
  if (f.size() == 1 && std::strchr("bBhHiIlLqQnN", f[0])) return integer_type(f[0], itemsize);
  return DType::Undefined;
}

// Asks for writable memory, then for any.
bool take_buffer(PyObject* o, Lent& lent, bool& read_only) {
  read_only = false;
  if (PyObject_GetBuffer(o, &lent.view, PyBUF_FULL) == 0) return lent.taken = true;
  PyErr_Clear();
  read_only = true;
  return lent.taken = PyObject_GetBuffer(o, &lent.view, PyBUF_FULL_RO) == 0;
}

// What ml_dtypes calls bfloat16 has no buffer format: look at the same words as integers.
PyRef as_plain_words(PyObject* array, DType& reinterpret) {
  PyErr_Clear();
  PyRef dtype = checked(PyObject_GetAttrString(array, "dtype"));
  PyRef name = checked(PyObject_Str(dtype.get()));
  if (to_utf8(name.get()) != "bfloat16")
    fail(ErrorKind::Type, "can't convert np.ndarray of type ", to_utf8(name.get()),
         ". The only supported types are: float64, float32, float16, bfloat16, "
         "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.");
  reinterpret = DType::BFloat16;
  return checked(PyObject_CallMethod(array, "view", "s", "uint16"));
}

Dims element_strides(const Py_buffer& view) {
  Dims strides;
  for (int d = 0; d < view.ndim; ++d) {
    TS_CHECK_VALUE(view.strides[d] % view.itemsize == 0,
                   "from_numpy: the array's strides are not multiples of its element size; use array.copy()");
    strides.push_back(view.strides[d] / view.itemsize);
  }
  return strides;
}

Tensor tensor_over(std::unique_ptr<Lent> lent, DType dtype, IntSpan sizes, IntSpan strides, void* at, bool read_only) {
  bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  TS_CHECK_VALUE(
      reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(item_size(dtype) > 8 ? 8 : item_size(dtype)) == 0 ||
          empty,
      "from_numpy: the memory is not aligned for ", dtype, "; use array.copy()");
  Tensor t = from_external(at, sizes, strides, dtype, host_device(), return_lent, lent.get());
  (void)lent.release();
  if (read_only) t->flags |= TensorImpl::kConstantData;
  return t;
}

} // namespace

bool is_exported(const Storage* storage) { return exports().count(storage) != 0; }

Tensor from_array(PyObject* array) {
  auto lent = std::make_unique<Lent>();
  bool read_only = false;
  DType dtype = DType::Undefined;
  PyRef words;
  if (!take_buffer(array, *lent, read_only)) {
    words = as_plain_words(array, dtype);
    if (!take_buffer(words.get(), *lent, read_only)) throw_python();
  }
  const Py_buffer& v = lent->view;
  TS_CHECK_VALUE(v.ndim <= TensorImpl::kMaxDims, "from_numpy: expected at most ", TensorImpl::kMaxDims,
                 " dimensions, got ", v.ndim);
  if (dtype == DType::Undefined) dtype = type_of_format(v.format, v.itemsize);
  TS_CHECK_TYPE(dtype != DType::Undefined && !v.suboffsets, "can't convert an array with elements of format '",
                v.format, "'. The only supported types are numbers and bool.");
  Dims sizes(v.shape, v.shape + v.ndim), strides = element_strides(v);
  void* at = v.buf;
  return tensor_over(std::move(lent), dtype, sizes, strides, at, read_only);
}

void warn_read_only(const Tensor& t) {
  static std::atomic<bool> warned{false};
  if (t->flags & TensorImpl::kConstantData)
    warn_once(warned, "The given buffer is not writable (of a NumPy array: it is non-writable): writing to the tensor "
                      "will be refused; copy it to have one that can be written to");
}

namespace {

// _from_buffer(object, dtype, count, offset): a one-dimensional tensor over any contiguous buffer.
PyObject* py_from_buffer(PyObject*, PyObject* args) {
  PyObject *object, *type;
  Py_ssize_t count, offset;
  if (!PyArg_ParseTuple(args, "OOnn:frombuffer", &object, &type, &count, &offset)) return nullptr;
  return guarded([&] {
    std::optional<DType> dtype = as_dtype(type);
    TS_CHECK_TYPE(dtype, "frombuffer: expected a dtype, got ", type_name(type));
    auto lent = std::make_unique<Lent>();
    bool read_only = false;
    TS_CHECK_VALUE(PyObject_CheckBuffer(object), "frombuffer: ", type_name(object),
                   " object does not implement Python buffer protocol.");
    if (!take_buffer(object, *lent, read_only)) throw_python();
    TS_CHECK_VALUE(PyBuffer_IsContiguous(&lent->view, 'C'), "frombuffer: expected a contiguous buffer");
    int64_t length = lent->view.len, item = item_size(*dtype);
    TS_CHECK_VALUE(length > 0 && count != 0, "frombuffer: both buffer length (", length, ") and count (", count,
                   ") must not be 0");
    TS_CHECK_VALUE(offset >= 0 && offset < length, "frombuffer: offset (", offset,
                   " bytes) must be non-negative and no greater than buffer length (", length, " bytes) minus 1");
    int64_t room = length - offset;
    TS_CHECK_VALUE(count > 0 || room % item == 0, "frombuffer: buffer length (", room, " bytes) after offset (", offset,
                   " bytes) must be a multiple of element size (", item, ")");
    TS_CHECK_VALUE(count <= room / item, "frombuffer: requested buffer length (", count, " * ", item,
                   " bytes) after offset (", offset, " bytes) must not be greater than actual buffer length (", length,
                   " bytes)");
    int64_t n = count > 0 ? count : room / item, stride = 1;
    char* at = static_cast<char*>(lent->view.buf) + offset;
    return wrap(tensor_over(std::move(lent), *dtype, IntSpan(&n, 1), IntSpan(&stride, 1), at, read_only));
  });
}

PyObject* py_warn_read_only(PyObject*, PyObject* tensor) {
  return guarded([&] {
    warn_read_only(expect_tensor(tensor, "frombuffer"));
    return none();
  });
}

} // namespace

PyRef to_numpy(const Tensor& t) {
  TS_CHECK(!(grad_enabled() && requires_grad(t)),
           "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.");
  TS_CHECK_TYPE(!t->payload, "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.");
  TS_CHECK_TYPE(!t.device().is_meta() && (t.data() || t.numel() == 0), "can't convert ", t.device(),
                " device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.");
  TS_CHECK(!t.is_conj(),
           "Can't call numpy() on Tensor that has conjugate bit set. Use tensor.resolve_conj().numpy() instead.");
  TS_CHECK(!t.is_neg(),
           "Can't call numpy() on Tensor that has negative bit set. Use tensor.resolve_neg().numpy() instead.");
  TS_CHECK_TYPE(kFormats[static_cast<int>(t.dtype())], "Got unsupported ScalarType ", torch_name(t.dtype()),
                ": NumPy has no such dtype; use .",
                is_packed(t.dtype())    ? "view(uint8)"
                : is_complex(t.dtype()) ? "cfloat()"
                                        : "float()",
                " first");
  PyRef object = PyRef::steal(wrap(t));
  PyRef view = checked(PyMemoryView_FromObject(object.get()));
  PyRef numpy = checked(PyImport_ImportModule("numpy"));
  return checked(PyObject_CallMethod(numpy.get(), "asarray", "O", view.get()));
}

void init_buffer(PyObject* module) {
  static PyMethodDef functions[] = {{"_from_buffer", py_from_buffer, METH_VARARGS, nullptr},
                                    {"_warn_read_only", py_warn_read_only, METH_O, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
  checked_status(PyModule_AddFunctions(module, functions));
}

std::vector<PyType_Slot> buffer_slots() { return {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}}; }

} // namespace ts::py
