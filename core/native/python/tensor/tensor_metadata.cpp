// Methods that answer questions about shape and memory, and resize_.
#include "autograd/meta.h"
#include "dispatch/watch.h"
#include "extend/pending_bits.h"
#include "ops/common/raw.h"
#include "python/calls/parse.h"
#include "python/graph/traced_size.h"
#include "python/tensor/interop.h"
#include "python/tensor/tensor_slots.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include "tensor/sparse.h"

namespace ts::py {
namespace {

// size(), size(dim), stride(), stride(dim): all, or one.
template <class All, class One>
PyObject* all_or_one(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, const char* name,
                     All all, One one) {
  return guarded([&]() -> PyObject* {
    Py_ssize_t given = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    bool named_dim = !kwnames || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "dim") == 0;
    if (given > 1 || !named_dim) raise(PyExc_TypeError, std::string(name) + "(): expected at most one argument, dim");
    if (given == 0 || args[0] == Py_None) return all(tensor_of(self));
    int64_t dim = 0;
    TS_CHECK_TYPE(as_int(args[0], dim), name, "(): argument 'dim' must be int, not ", type_name(args[0]));
    const Tensor& t = tensor_of(self);
    TS_CHECK_INDEX(t.ndim() > 0, "dimension specified as ", dim, " but tensor has no dimensions");
    return one(t, wrap_dim(dim, t.ndim(), name));
  });
}

void check_has_memory(const Tensor& t, const char* question) {
  TS_CHECK(!t->payload, "sparse tensors do not have ", question, "; ask one of their parts, or use to_dense()");
}

PyObject* size(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return all_or_one(
      self, args, nargs, kwnames, "size",
      [](const Tensor& t) { return traced_int ? traced_size_object(t) : size_object(t.sizes()); },
      [](const Tensor& t, int64_t d) {
        return traced_int ? traced_size(t, d) : PyLong_FromLongLong(t.sizes()[static_cast<size_t>(d)]);
      });
}

PyObject* int_tuple(IntSpan values) {
  PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t k = 0; k < values.size(); ++k)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), checked(PyLong_FromLongLong(values[k])).release());
  return tuple.release();
}
PyObject* stride_tuple(const Tensor& t) {
  if (!traced_int) return int_tuple(t.strides());
  PyRef tuple = checked(PyTuple_New(t.ndim()));
  for (int64_t d = 0; d < t.ndim(); ++d) PyTuple_SET_ITEM(tuple.get(), d, traced_stride(t, d));
  return tuple.release();
}
PyObject* stride(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return all_or_one(
      self, args, nargs, kwnames, "stride",
      [](const Tensor& t) {
        if (layout_of(t) != Layout::SparseCoo) check_has_memory(t, "strides");
        return t->payload ? int_tuple(Dims(static_cast<size_t>(t.ndim()))) : stride_tuple(t);
      },
      [](const Tensor& t, int64_t d) {
        if (layout_of(t) != Layout::SparseCoo) check_has_memory(t, "strides");
        if (traced_int && !t->payload) return traced_stride(t, d);
        // 0, as PyTorch answers for coordinates
        return PyLong_FromLongLong(t->payload ? 0 : t.strides()[static_cast<size_t>(d)]);
      });
}

PyObject* dim(PyObject* self, PyObject*) { return PyLong_FromLongLong(tensor_of(self).ndim()); }
PyObject* numel(PyObject* self, PyObject*) {
  if (traced_int) [[unlikely]]
    return guarded([&] { return traced_numel(tensor_of(self)); });
  return PyLong_FromLongLong(tensor_of(self).numel());
}
PyObject* element_size(PyObject* self, PyObject*) { return PyLong_FromLongLong(tensor_of(self).item_size()); }
PyObject* storage_offset(PyObject* self, PyObject*) {
  return guarded([&] {
    check_has_memory(tensor_of(self), "a storage offset");
    return PyLong_FromLongLong(tensor_of(self).storage_offset());
  });
}
PyObject* is_floating_point(PyObject* self, PyObject*) { return PyBool_FromLong(is_floating(tensor_of(self).dtype())); }
PyObject* is_complex_method(PyObject* self, PyObject*) { return PyBool_FromLong(is_complex(tensor_of(self).dtype())); }
PyObject* is_signed(PyObject* self, PyObject*) { return PyBool_FromLong(has_sign(tensor_of(self).dtype())); }
PyObject* is_inference(PyObject* self, PyObject*) {
  return PyBool_FromLong(tensor_of(self)->has(TensorImpl::kInference));
}
PyObject* is_view(PyObject* self, PyObject*) {
  const Tensor& t = tensor_of(self);
  return PyBool_FromLong(t.is_view() && !t->has(TensorImpl::kInference)); // whose views autograd does not know
}
PyObject* get_device(PyObject* self, PyObject*) { return PyLong_FromLong(tensor_of(self).device().index); }

PyObject* data_ptr(PyObject* self, PyObject*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    TS_CHECK(!t.device().is_meta(), "data_ptr: a meta tensor has no data");
    check_has_memory(t, "an address");
    if (t.numel() == 0 || !t->storage) return PyLong_FromLong(0);
    // Without a host address, the handle tells tensors apart as well.
    char* at = t.data<char>();
    auto address = reinterpret_cast<uintptr_t>(t->storage->handle) + static_cast<uintptr_t>(t->byte_offset);
    return PyLong_FromUnsignedLongLong(at ? reinterpret_cast<uintptr_t>(at) : address);
  });
}

PyObject* storage_ptr(PyObject* self, PyObject*) {
  const Tensor& t = tensor_of(self);
  return PyLong_FromVoidPtr(t->storage ? t->storage->handle : nullptr);
}
// Of the record that tensors of one memory share; 0 where there is none.
PyObject* storage_id(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(tensor_of(self)->storage); }
PyObject* storage_nbytes(PyObject* self, PyObject*) {
  const Tensor& t = tensor_of(self);
  return PyLong_FromSize_t(t->storage ? t->storage->nbytes : 0);
}

// Lets two storages of the host change places, so that every view of either sees the other's memory. True where
// something else than the two tensors (a view, an array, a running kernel) may still look at the first one's.
PyObject* swap_storage(PyObject* self, PyObject* other) {
  return guarded([&] {
    const Tensor &a = tensor_of(self), &b = expect_tensor(other, "_swap_storage");
    Storage *s = a->storage, *t = b->storage;
    TS_CHECK_VALUE(s && t && s != t && s->host && t->host && s->nbytes == t->nbytes && s->device == t->device,
                   "_swap_storage: expected two storages of the host, of one size");
    TS_CHECK(!a->has(TensorImpl::kConstantData), "_swap_storage: the memory is read-only; clone() the tensor first");
    bool looked_at = s->refs.load(std::memory_order_acquire) > 1;
    std::swap(s->capacity, t->capacity);
    std::swap(s->handle, t->handle);
    std::swap(s->stream, t->stream);
    std::swap(s->host, t->host);
    std::swap(s->deleter, t->deleter);
    std::swap(s->deleter_ctx, t->deleter_ctx);
    t->shared.store(s->shared.exchange(t->shared.load()));
    return PyBool_FromLong(looked_at);
  });
}

// Elements that nobody wrote, where those are to be the same in every run.
void fill_grown(const Tensor& t, int64_t old_bytes, int64_t n) {
  int64_t item = t.item_size(), kept = old_bytes / item, count = n / item - kept, one = 1;
  if (fills_new_memory && count > 0) fill_unset(alias(t, IntSpan(&count, 1), IntSpan(&one, 1), kept * item));
}

// A larger block with the old bytes in front, as far as they were.
Tensor grown(const Tensor& t, int64_t n) {
  int64_t old_bytes = t->storage ? static_cast<int64_t>(t->storage->nbytes) : 0;
  Tensor fresh = empty_tensor(IntSpan(&n, 1), DType::UInt8, t.device());
  if (old_bytes) {
    Tensor source = physical(t);
    source->byte_offset = 0;
    copy_bytes_within(fresh, source, static_cast<size_t>(old_bytes));
  }
  return fresh;
}

// What a storage held before it grew, for those who look there without knowing: arrays, capsules.
struct Outgrown {
  void (*deleter)(Storage&);
  void* context;
  Storage* before;
};
void free_with_outgrown(Storage& s) {
  auto* kept = static_cast<Outgrown*>(s.deleter_ctx);
  s.deleter = kept->deleter, s.deleter_ctx = kept->context;
  if (s.deleter) s.deleter(s);
  release(kept->before);
  delete kept;
}

// More bytes for all tensors of a storage; the old ones stay in front.
PyObject* resize_storage(PyObject* self, PyObject* size) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    int64_t n = 0;
    TS_CHECK_TYPE(as_int(size, n), "_resize_storage(): expected an int");
    Storage* s = t->storage;
    TS_CHECK(s && static_cast<size_t>(n) > s->nbytes, "_resize_storage: expected a storage of fewer bytes than ", n);
    TS_CHECK(!t->has(TensorImpl::kConstantData), "resize_: the memory is read-only; clone() the tensor first");
    Tensor fresh = grown(t, n);
    auto* kept = new Outgrown{};
    Storage* f = fresh->storage;
    std::swap(s->nbytes, f->nbytes), std::swap(s->capacity, f->capacity);
    std::swap(s->handle, f->handle), std::swap(s->host, f->host), std::swap(s->stream, f->stream);
    std::swap(s->deleter, f->deleter), std::swap(s->deleter_ctx, f->deleter_ctx);
    retain(f);
    *kept = {s->deleter, s->deleter_ctx, f};
    s->deleter = free_with_outgrown, s->deleter_ctx = kept;
    Py_RETURN_NONE;
  });
}

PyObject* is_contiguous(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"memory_format", nullptr};
  PyObject* format = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O!:is_contiguous", const_cast<char**>(names), &FormatType, &format))
    return nullptr;
  MemoryFormat f = format ? reinterpret_cast<FormatObject*>(format)->value : MemoryFormat::Contiguous;
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    if (layout_of(t) != Layout::SparseCoo) check_has_memory(t, "is_contiguous");
    return PyBool_FromLong(!t->payload && t.is_contiguous(f));
  });
}

PyObject* is_set_to(PyObject* self, PyObject* other) {
  return guarded([&] {
    const Tensor &a = tensor_of(self), &b = expect_tensor(other, "is_set_to");
    bool equal = a->storage == b->storage && a.pending() == b.pending() && a->byte_offset == b->byte_offset &&
                 same(a.sizes(), b.sizes()) && same(a.strides(), b.strides());
    return PyBool_FromLong(equal);
  });
}

// --- resize_ -----------------------------------------------------------------------------------------------------

// The tensor alone goes over to it.
void grow_storage(const Tensor& t, int64_t n) {
  int64_t old_bytes = t->storage ? static_cast<int64_t>(t->storage->nbytes) : 0;
  Tensor fresh = grown(t, n);
  Storage* old = t->storage;
  retain(fresh->storage);
  fresh->storage->version.store(t.version(), std::memory_order_relaxed);
  t->storage = fresh->storage;
  if (old) release(old);
  fill_grown(t, old_bytes, n);
}

// Where the sizes are what they were, so are the strides, unless a format is asked for.
void resize(const Tensor& t, IntSpan sizes, std::optional<MemoryFormat> format) {
  check_has_memory(t, "memory to resize: see sparse_resize_");
  TS_CHECK(!requires_grad(t), "cannot resize variables that require grad");
  TS_CHECK(!t->has(TensorImpl::kConstantData), "resize_: the memory is read-only; clone() the tensor first");
  if (!format && same(sizes, t.sizes())) return;
  int64_t n = checked_numel(sizes), bytes = 0;
  TS_CHECK(!__builtin_mul_overflow(n, t.item_size(), &bytes) && !__builtin_add_overflow(bytes, t->byte_offset, &bytes),
           "resize_: sizes ", sizes, " exceed 64-bit sizes");
  if (!t.device().is_meta() && (!t->storage || static_cast<size_t>(bytes) > t->storage->nbytes)) {
    TS_CHECK(!t.is_view(), "resize_: sizes ", sizes, " need ", bytes, " bytes, more than the tensor has of which this ",
             "is a view; clone() it first");
    TS_CHECK(!is_exported(t->storage), "resize_: sizes ", sizes, " need ", bytes,
             " bytes, and a NumPy array or another ",
             "buffer looks at the memory there is, which it would no longer share; clone() the tensor first");
    grow_storage(t, bytes);
  }
  t->set_geometry(sizes, strides_for(sizes, format.value_or(MemoryFormat::Contiguous)));
  t->bump_version();
}

// Modes are asked whether they bear a tensor that becomes another one.
void tell_modes(const char* name) {
  const ThreadState& state = thread_state();
  if (!(state.include & ~state.exclude & key_bit(key::Python))) return;
  PyRef modes = checked(PyImport_ImportModule("tesserack.aten.modes"));
  checked(PyObject_CallMethod(modes.get(), "check_geometry", "s", name));
}

PyObject* resize_(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    TS_CHECK(!is_tracing() || !program_calls(),
             "resize_: expected a call outside of jit.trace, which does not write it "
             "down; make a tensor of that size (new_empty, narrow, as_strided)");
    std::optional<MemoryFormat> format;
    PyObject* given = kwargs ? PyDict_GetItemString(kwargs, "memory_format") : nullptr;
    if (given && is_format(given)) format = reinterpret_cast<FormatObject*>(given)->value;
    TS_CHECK_TYPE(!kwargs || PyDict_GET_SIZE(kwargs) == (given ? 1 : 0),
                  "resize_() got an unexpected keyword argument");
    bool one_list = PyTuple_GET_SIZE(args) == 1 &&
                    (PyTuple_Check(PyTuple_GET_ITEM(args, 0)) || PyList_Check(PyTuple_GET_ITEM(args, 0)));
    if (tensor_of(self)->payload) {
      PyRef module = checked(PyImport_ImportModule("tesserack.sparse._methods"));
      return checked(PyObject_CallMethod(module.get(), "resize_compressed_", "OO", self,
                                         one_list ? PyTuple_GET_ITEM(args, 0) : args))
          .release();
    }
    Scratch scratch;
    Value sizes;
    TS_CHECK_TYPE(as_int_list(one_list ? PyTuple_GET_ITEM(args, 0) : args, sizes, scratch),
                  "resize_(): expected sizes as ints");
    if (!same(tensor_of(self).sizes(), sizes.as_ints())) tell_modes("resize_");
    resize(tensor_of(self), sizes.as_ints(), format);
    return Py_NewRef(self);
  });
}

} // namespace

std::vector<PyMethodDef> metadata_methods() {
  auto fast = [](auto* f) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f)); };
  constexpr int kFast = METH_FASTCALL | METH_KEYWORDS, kSlow = METH_VARARGS | METH_KEYWORDS;
  return {
      {"size", fast(size), kFast, "size(dim=None)\n--\n\nThe Size, or the size of one dimension."},
      {"stride", fast(stride), kFast, "stride(dim=None)\n--\n\nSteps between elements of each dimension, or of one."},
      {"dim", dim, METH_NOARGS, "dim()\n--\n\nThe number of dimensions."},
      {"ndimension", dim, METH_NOARGS, "ndimension()\n--\n\nThe number of dimensions."},
      {"numel", numel, METH_NOARGS, "numel()\n--\n\nThe number of elements."},
      {"nelement", numel, METH_NOARGS, "nelement()\n--\n\nThe number of elements."},
      {"element_size", element_size, METH_NOARGS, "element_size()\n--\n\nBytes per element."},
      {"storage_offset", storage_offset, METH_NOARGS,
       "storage_offset()\n--\n\nElements between the start of the storage and the first."},
      {"data_ptr", data_ptr, METH_NOARGS, "data_ptr()\n--\n\nThe address of the first element."},
      {"_storage_ptr", storage_ptr, METH_NOARGS, nullptr},
      {"_storage_id", storage_id, METH_NOARGS, nullptr},
      {"_storage_nbytes", storage_nbytes, METH_NOARGS, nullptr},
      {"_resize_storage", resize_storage, METH_O, nullptr},
      {"_swap_storage", swap_storage, METH_O, nullptr},
      {"is_contiguous", fast(is_contiguous), kSlow,
       "is_contiguous(memory_format=contiguous_format)\n--\n\nWhether elements lie in order, without gaps."},
      {"is_set_to", is_set_to, METH_O, "is_set_to(other)\n--\n\nWhether both are the same memory seen the same way."},
      {"is_floating_point", is_floating_point, METH_NOARGS,
       "is_floating_point()\n--\n\nWhether the dtype is floating."},
      {"is_complex", is_complex_method, METH_NOARGS, "is_complex()\n--\n\nWhether the dtype is complex."},
      {"is_signed", is_signed, METH_NOARGS, "is_signed()\n--\n\nWhether the dtype has negative values."},
      {"is_inference", is_inference, METH_NOARGS, "is_inference()\n--\n\nWhether it was made under inference_mode."},
      {"_is_view", is_view, METH_NOARGS, "_is_view()\n--\n\nWhether it is a view of another tensor."},
      {"get_device", get_device, METH_NOARGS, "get_device()\n--\n\nThe device's index."},
      {"resize_", fast(resize_), kSlow,
       "resize_(*sizes, memory_format=contiguous_format)\n--\n\nGive the tensor other sizes in place; new elements are "
       "undefined."},
  };
}

} // namespace ts::py
