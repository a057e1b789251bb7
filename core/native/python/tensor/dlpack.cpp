// DLPack, both ways, without copies on host memory. Layout of the structures: dmlc/dlpack, version 1.0.
#include "autograd/meta.h"
#include "dispatch/boxing.h"
#include "python/calls/parse.h"
#include "python/graph/traced_size.h"
#include "python/tensor/interop.h"
#include "python/tensor/tensor_slots.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"

namespace ts::py {
namespace {

struct DLDevice {
  int32_t type;
  int32_t index;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Managed {
  DLTensor tensor;
  void* owner;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  uint32_t major, minor;
  void* owner;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr int32_t kHostDevice = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
enum : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6 };
enum : uint8_t { kE4M3FN = 10, kE4M3FNUZ = 11, kE5M2 = 12, kE5M2FNUZ = 13, kE8M0FNU = 14, kE2M1FN = 17 };

constexpr const char *kPlain = "dltensor", *kPlainUsed = "used_dltensor";
constexpr const char *kVersioned = "dltensor_versioned", *kVersionedUsed = "used_dltensor_versioned";

// --- element types -----------------------------------------------------------------------------------------------

DLDataType type_code(DType t) {
  auto lanes = static_cast<uint16_t>(values_in(t));
  auto bits = static_cast<uint8_t>(8 * item_size(t) / lanes);
  switch (t) {
  case DType::Float8E4M3FN: return {kE4M3FN, bits, lanes};
  case DType::Float8E4M3FNUZ: return {kE4M3FNUZ, bits, lanes};
  case DType::Float8E5M2: return {kE5M2, bits, lanes};
  case DType::Float8E5M2FNUZ: return {kE5M2FNUZ, bits, lanes};
  case DType::Float8E8M0FNU: return {kE8M0FNU, bits, lanes};
  case DType::Float4E2M1FNX2: return {kE2M1FN, bits, lanes};
  default: break;
  }
  if (is_narrow(t)) return {}; // padded to a byte, which consumers take for packed
  if (t == DType::Bool) return {kBool, bits, lanes};
  if (t == DType::BFloat16) return {kBFloat, bits, lanes};
  if (is_complex(t)) return {kComplex, bits, lanes};
  if (is_floating(t)) return {kFloat, bits, lanes};
  return {has_sign(t) ? kInt : kUInt, bits, lanes};
}
DType type_of(DLDataType code) {
  for (int k = 0; k < kNumDTypes; ++k) {
    DLDataType known = type_code(static_cast<DType>(k));
    if (known.code == code.code && known.bits == code.bits && known.lanes == code.lanes) return static_cast<DType>(k);
  }
  fail(ErrorKind::Type, "from_dlpack: no dtype for elements of code ", int{code.code}, ", ", int{code.bits}, " bits, ",
       code.lanes, " lanes");
}

// --- export ------------------------------------------------------------------------------------------------------

// The tensor, its geometry and the structure handed out live and die together.
template <class M> struct Export {
  M managed{};
  Tensor tensor;
  Dims sizes, strides;
};

template <class M> void delete_export(M* managed) { delete static_cast<Export<M>*>(managed->owner); }

template <class M> M* dlpack_make_export(const Tensor& t) {
  TS_CHECK_TYPE(type_code(t.dtype()).bits, "__dlpack__: DLPack has no code for ", t.dtype(),
                ", of which one value takes a byte; try .view(uint8)");
  auto e = std::make_unique<Export<M>>();
  e->tensor = detach(t);
  e->sizes = Dims(t.sizes());
  e->strides = Dims(t.strides());
  // The pointer is that of the first element: NumPy and others ignore byte_offset.
  e->managed.tensor = {t.data(),
                       {kHostDevice, 0},
                       static_cast<int32_t>(t.ndim()),
                       type_code(t.dtype()),
                       e->sizes.data(),
                       e->strides.data(),
                       0};
  e->managed.deleter = delete_export<M>;
  e->managed.owner = e.get();
  return &e.release()->managed;
}

// Nobody took what the capsule offers.
template <class M> void drop_capsule(PyObject* capsule) {
  const char* name = std::is_same_v<M, Managed> ? kPlain : kVersioned;
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter) managed->deleter(managed);
}

PyObject* versioned_capsule(const Tensor& t, bool copied) {
  auto* managed = dlpack_make_export<ManagedVersioned>(t);
  managed->major = 1;
  managed->minor = 0;
  managed->flags = (t->has(TensorImpl::kConstantData) ? kReadOnly : 0) | (copied ? kCopied : 0);
  return checked(PyCapsule_New(managed, kVersioned, drop_capsule<ManagedVersioned>)).release();
}

void dlpack_check_exportable(const Tensor& t) {
  if (t->payload)
    raise(PyExc_BufferError, "__dlpack__: a sparse tensor has no memory to hand out; use to_dense() first");
  if (requires_grad(t)) raise(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
  if (t.is_conj())
    raise(PyExc_BufferError, "Can't export tensors with the conjugate bit set, use tensor.resolve_conj()");
  if (t.is_neg()) raise(PyExc_BufferError, "Can't export tensors with the negative bit set, use tensor.resolve_neg()");
  if (t.device().is_meta() || (!t.data() && t.numel() != 0))
    raise(PyExc_BufferError,
          "__dlpack__: the memory of device " + to_string(t.device()) + " has no host address; use tensor.cpu() first");
}

PyObject* export_capsule(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream, &version,
                                   &device, &copy))
    return nullptr;
  return guarded([&] {
    if (stream != Py_None && !PyLong_Check(stream))
      raise(PyExc_TypeError, "__dlpack__: expected stream as int or None, got " + type_name(stream));
    Tensor t = tensor_of(self);
    note_host_read(t, "DLPack capsule");
    if (copy != Py_True) dlpack_check_exportable(t);
    int type = kHostDevice, index = 0, major = 0, minor = 0;
    if (device != Py_None && !PyArg_ParseTuple(device, "ii", &type, &index)) throw_python();
    if (type != kHostDevice) raise(PyExc_BufferError, "__dlpack__: can only export to host memory, device type 1");
    if (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)) throw_python();
    static const Op clone("clone");
    if (copy == Py_True) {
      t = clone(t);
      dlpack_check_exportable(t);
    }
    if (major >= 1) return versioned_capsule(t, copy == Py_True);
    if (t->has(TensorImpl::kConstantData))
      raise(PyExc_BufferError, "__dlpack__: read-only memory needs DLPack 1.0; pass max_version=(1, 0)");
    return checked(PyCapsule_New(dlpack_make_export<Managed>(t), kPlain, drop_capsule<Managed>)).release();
  });
}

PyObject* dlpack_device(PyObject* self, PyObject*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    bool host = !t.device().is_meta() && backend_of(t.device()).host_memory(t.device().index);
    if (!host)
      raise(PyExc_BufferError, "__dlpack_device__: device " + to_string(t.device()) + " has no DLPack device type");
    return Py_BuildValue("(ii)", kHostDevice, 0);
  });
}

// --- import ------------------------------------------------------------------------------------------------------

template <class M> void return_managed(Storage& s) {
  auto* managed = static_cast<M*>(s.deleter_ctx);
  if (managed->deleter) managed->deleter(managed);
}

template <class M> Tensor import_managed(M* managed, bool read_only) {
  const DLTensor& d = managed->tensor;
  TS_CHECK_VALUE(d.device.type == kHostDevice, "from_dlpack: expected host memory (device type 1), got device type ",
                 d.device.type);
  TS_CHECK_VALUE(d.ndim >= 0 && d.ndim <= TensorImpl::kMaxDims, "from_dlpack: expected 0 to ", TensorImpl::kMaxDims,
                 " dimensions, got ", d.ndim);
  DType dtype = type_of(d.dtype);
  Dims sizes(d.shape, d.shape + d.ndim);
  checked_numel(sizes);
  Dims strides = d.strides ? Dims(d.strides, d.strides + d.ndim) : contiguous_strides(sizes);
  char* at = static_cast<char*>(d.data) + d.byte_offset;
  TS_CHECK_VALUE(reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(std::min<int64_t>(item_size(dtype), 8)) == 0,
                 "from_dlpack: the memory is not aligned for ", dtype);
  Tensor t = from_external(at, sizes, strides, dtype, host_device(), return_managed<M>, managed);
  if (read_only) t->flags |= TensorImpl::kConstantData;
  return t;
}

Tensor import_versioned(PyObject* capsule) {
  auto* managed = static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
  if (managed->major > 1)
    raise(PyExc_BufferError,
          "from_dlpack: the producer speaks DLPack " + std::to_string(managed->major) + ", this library 1");
  Tensor t = import_managed(managed, managed->flags & kReadOnly);
  checked_status(PyCapsule_SetName(capsule, kVersionedUsed));
  return t;
}

PyRef request_capsule(PyObject* o) {
  PyRef method = checked(PyObject_GetAttrString(o, "__dlpack__"));
  PyRef no_arguments = checked(PyTuple_New(0)), options = checked(Py_BuildValue("{s(ii)}", "max_version", 1, 0));
  PyRef capsule = PyRef::steal(PyObject_Call(method.get(), no_arguments.get(), options.get()));
  if (capsule) return capsule;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw_python();
  PyErr_Clear(); // a producer older than max_version
  return checked(PyObject_Call(method.get(), no_arguments.get(), nullptr));
}

} // namespace

Tensor from_dlpack(PyObject* o) {
  PyRef capsule = PyCapsule_CheckExact(o) ? PyRef::borrow(o) : PyRef();
  if (!capsule && !PyObject_HasAttrString(o, "__dlpack__"))
    raise(PyExc_TypeError, "from_dlpack: expected an object with __dlpack__ or a DLPack capsule, got " + type_name(o));
  if (!capsule) capsule = request_capsule(o);
  if (PyCapsule_IsValid(capsule.get(), kVersioned)) return import_versioned(capsule.get());
  TS_CHECK(PyCapsule_IsValid(capsule.get(), kPlain),
           "from_dlpack: expected a DLPack capsule; one can be consumed only once");
  Tensor t = import_managed(static_cast<Managed*>(PyCapsule_GetPointer(capsule.get(), kPlain)), false);
  checked_status(PyCapsule_SetName(capsule.get(), kPlainUsed));
  return t;
}

namespace {

PyObject* py_from_dlpack(PyObject*, PyObject* o) {
  return guarded([&] { return wrap(from_dlpack(o)); });
}
PyObject* numpy_method(PyObject* self, PyObject*) {
  return guarded([&] { return to_numpy(tensor_of(self)).release(); });
}

} // namespace

void init_dlpack(PyObject* module) {
  static PyMethodDef functions[] = {{"_from_dlpack", py_from_dlpack, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
  checked_status(PyModule_AddFunctions(module, functions));
}

std::vector<PyMethodDef> interop_methods() {
  return {
      {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(export_capsule)),
       METH_VARARGS | METH_KEYWORDS,
       "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nThe tensor's memory as a DLPack "
       "capsule."},
      {"__dlpack_device__", dlpack_device, METH_NOARGS, "__dlpack_device__()\n--\n\nThe DLPack device type and index."},
      {"_numpy", numpy_method, METH_NOARGS, nullptr},
  };
}

} // namespace ts::py
