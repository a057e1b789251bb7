// a[...], a[...] = b, len(a), iter(a), x in a. Integers, slices, None and Ellipsis make one view; tensors, masks and
// lists go on to the operators index and index_put_.
#include "dispatch/boxing.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/index/index_plan.h"
#include "ops/shape/basic_index.h"
#include "python/calls/operator_plan.h"
#include "python/calls/overrides.h"
#include "python/graph/traced_index.h"
#include "python/tensor/construct.h"
#include "python/tensor/interop.h"
#include "python/tensor/tensor_slots.h"
#include "runtime/interpreter.h"

namespace ts::py {
namespace {

using basic_index_item::kNewAxis;
using basic_index_item::kSelect;
using basic_index_item::kSlice;

const Op kBasicIndex("basic_index"), kIndex("index"), kIndexPut("index_put_"), kMaskedFill("masked_fill_"),
    kUnbind("unbind");

struct Parsed {
  SmallVector<int64_t, 24> items; // of basic_index
  std::vector<Tensor> advanced;   // per dimension of the view; undefined: keep whole
  bool any_advanced = false;
  int64_t source_dim = 0; // dimensions of the tensor consumed so far
  Tensor traced;          // while a program is written down, the view so far, instead of items
  int64_t traced_dim = 0; // its dimensions that are done

  void add(int64_t kind, int64_t a, int64_t b, int64_t c) {
    if (traced.defined()) [[unlikely]] { // a whole dimension, or a new one
      if (kind == kNewAxis) traced = ops::unsqueeze(traced, traced_dim);
      ++traced_dim;
      return;
    }
    for (int64_t v : {kind, a, b, c}) items.push_back(v);
  }
  void keep_whole(const Tensor& self) {
    add(kSlice, 0, self.sizes()[static_cast<size_t>(source_dim++)], 1);
    advanced.emplace_back();
  }
};

// --- one index at a time -----------------------------------------------------------------------------------------

void check_room(const Tensor& self, const Parsed& p) {
  TS_CHECK_INDEX(p.source_dim < self.ndim(), "too many indices for tensor of dimension ", self.ndim());
}

void add_int(const Tensor& self, Parsed& p, int64_t index, PyObject* given) {
  TS_CHECK_INDEX(self.ndim() > 0,
                 "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number");
  check_room(self, p);
  int64_t size = self.sizes()[static_cast<size_t>(p.source_dim)];
  TS_CHECK_INDEX(index >= -size && index < size, "index ", index, " is out of bounds for dimension ", p.source_dim,
                 " with size ", size);
  ++p.source_dim;
  if (p.traced.defined()) [[unlikely]] {
    p.traced = traced_select(p.traced, p.traced_dim, given);
    return;
  }
  p.add(kSelect, index < 0 ? index + size : index, 0, 0);
}

void add_slice(const Tensor& self, Parsed& p, PyObject* slice) {
  check_room(self, p);
  if (p.traced.defined() && goes_forward(slice)) [[unlikely]] {
    p.traced = traced_slice(p.traced, p.traced_dim++, slice);
    ++p.source_dim;
    p.advanced.emplace_back();
    return;
  }
  Py_ssize_t start = 0, stop = 0, step = 0;
  checked_status(PySlice_Unpack(slice, &start, &stop, &step));
  int64_t size = self.sizes()[static_cast<size_t>(p.source_dim++)];
  Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
  if (p.traced.defined()) [[unlikely]] {
    Parsed whole;
    for (int64_t d = 0; d < p.traced.ndim(); ++d) {
      bool here = d == p.traced_dim;
      whole.add(kSlice, here && (length || step > 0) ? start : 0,
                here ? length : p.traced.sizes()[static_cast<size_t>(d)], here ? step : 1);
    }
    p.traced = kBasicIndex(p.traced, IntSpan(whole.items.span()));
  }
  p.add(kSlice, length || step > 0 ? start : 0, length, step);
  p.advanced.emplace_back();
}

void add_new_axis(Parsed& p) {
  p.add(kNewAxis, 0, 0, 0);
  p.advanced.emplace_back();
}

// True keeps everything under a new axis, False nothing: an index along that axis.
void add_bool(const Tensor& self, Parsed& p, bool value) {
  p.add(kNewAxis, 0, 0, 0);
  int64_t n = value ? 1 : 0;
  p.advanced.push_back(ops::zeros(IntSpan(&n, 1), DType::Int64, self.device()));
  p.any_advanced = true;
}

void add_tensor(const Tensor& self, Parsed& p, const Tensor& index, PyObject* given) {
  bool mask = is_mask(index);
  if (index.ndim() == 0 && mask) return add_bool(self, p, item_value(index).i != 0);
  if (index.ndim() == 0 && is_integral(index.dtype(), false)) return add_int(self, p, item_value(index).i, given);
  TS_CHECK_INDEX(is_integral(index.dtype(), true), "tensors used as indices must be integer or bool tensors, got ",
                 index.dtype());
  for (int64_t k = mask ? index.ndim() : 1; k > 0; --k) {
    check_room(self, p);
    p.add(kSlice, 0, self.sizes()[static_cast<size_t>(p.source_dim++)], 1);
  }
  p.advanced.push_back(index);
  p.any_advanced = true;
}

// Lists and arrays become tensors beside self.
Tensor index_tensor(const Tensor& self, PyObject* o) {
  if (is_tensor(o)) return tensor_of(o);
  Tensor t = construct_tensor(o, DType::Undefined, host_device());
  if (t.numel() == 0 && is_floating(t.dtype())) t = ops::to_dtype(t, DType::Int64); // [] is an empty list of positions
  return t.device() == self.device() ? t : ops::to_device(t, self.device());
}

bool is_index_list(PyObject* o) {
  if (is_tensor(o) || PyList_Check(o) || Py_IS_TYPE(o, &PyRange_Type)) return true;
  PyTypeObject* array = numpy_array_type();
  return array && PyType_IsSubtype(Py_TYPE(o), array);
}

[[noreturn]] void refuse(PyObject* o) {
  fail(ErrorKind::Index,
       "only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors are valid indices (got ",
       type_name(o), ")");
}

// How many dimensions of the tensor an index consumes.
int64_t dims_of(PyObject* o, const Tensor& converted) {
  if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o)) return 0;
  if (converted.defined() && is_mask(converted)) return converted.ndim();
  return 1;
}

void add_item(const Tensor& self, Parsed& p, PyObject* o, const Tensor& converted) {
  int64_t i = 0;
  if (converted.defined()) return add_tensor(self, p, converted, o);
  if (PyLong_CheckExact(o)) {
    checked_status(as_int(o, i) ? 0 : -1);
    return add_int(self, p, i, o);
  }
  if (PySlice_Check(o)) return add_slice(self, p, o);
  if (o == Py_None) return add_new_axis(p);
  if (PyBool_Check(o)) return add_bool(self, p, o == Py_True);
  if (as_int(o, i)) return add_int(self, p, i, o);
  Value number;
  if (as_number(o, number) && number.tag == Tag::Bool) return add_bool(self, p, number.i != 0); // numpy.bool
  refuse(o);
}

void parse_tuple(const Tensor& self, Parsed& p, PyObject* tuple) {
  auto n = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
  TS_CHECK_INDEX(n <= 2 * TensorImpl::kMaxDims, "too many indices: ", n);
  std::vector<Tensor> converted(n);
  int64_t consumed = 0;
  for (size_t k = 0; k < n; ++k) {
    PyObject* o = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(k));
    if (is_index_list(o))
      converted[k] = index_tensor(self, o);
    else if (PyTuple_Check(o))
      converted[k] = index_tensor(self, o);
    consumed += dims_of(o, converted[k]);
  }
  TS_CHECK_INDEX(consumed <= self.ndim(), "too many indices for tensor of dimension ", self.ndim());
  bool seen_ellipsis = false;
  for (size_t k = 0; k < n; ++k) {
    PyObject* o = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(k));
    if (o != Py_Ellipsis) {
      add_item(self, p, o, converted[k]);
      continue;
    }
    for (int64_t rest = seen_ellipsis ? 0 : self.ndim() - consumed; rest > 0; --rest) p.keep_whole(self);
    seen_ellipsis = true;
  }
}

// x[[a, b]] means x[a, b] where a part is more than a number, as in early NumPy and in PyTorch.
bool stands_for_tuple(PyObject* key) {
  constexpr Py_ssize_t kMost = 32;
  if (!PyList_Check(key) || PyList_GET_SIZE(key) >= kMost) return false;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(key); ++k) {
    PyObject* o = PyList_GET_ITEM(key, k);
    bool sequence = PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
    if (sequence || is_tensor(o) || PySlice_Check(o) || o == Py_None || o == Py_Ellipsis) return true;
  }
  return false;
}

void parse_key(const Tensor& self, Parsed& p, PyObject* key) {
  if (PyTuple_Check(key)) return parse_tuple(self, p, key);
  if (stands_for_tuple(key)) {
    warn("Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], "
         "or x[tesserack.tensor(seq)] for one index tensor");
    return parse_tuple(self, p, checked(PyList_AsTuple(key)).get());
  }
  if (key == Py_Ellipsis) return;
  add_item(self, p, key, is_index_list(key) ? index_tensor(self, key) : Tensor());
}

// --- reading -----------------------------------------------------------------------------------------------------

Tensor basic_view(const Tensor& self, const Parsed& p) {
  return p.traced.defined() ? p.traced : kBasicIndex(self, IntSpan(p.items.span()));
}

// Integers and slices alone, without the bookkeeping for tensors.
bool simple_key(PyObject* key) {
  auto simple = [](PyObject* o) { return PyLong_CheckExact(o) || PySlice_Check(o) || o == Py_None; };
  if (!PyTuple_CheckExact(key)) return simple(key);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); ++k)
    if (!simple(PyTuple_GET_ITEM(key, k))) return false;
  return true;
}

bool add_simple(const Tensor& self, PyObject* o, int64_t*& out, size_t& dim) {
  auto put = [&](int64_t kind, int64_t a, int64_t b, int64_t c) {
    out[0] = kind, out[1] = a, out[2] = b, out[3] = c;
    out += 4;
  };
  if (o == Py_None) {
    put(kNewAxis, 0, 0, 0);
    return true;
  }
  if (dim >= self.sizes().size()) return false;
  int64_t size = self.sizes()[dim++];
  if (PyLong_CheckExact(o)) {
    int overflow = 0;
    int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow || i < -size || i >= size) return false;
    put(kSelect, i < 0 ? i + size : i, 0, 0);
    return true;
  }
  Py_ssize_t start = 0, stop = 0, step = 0;
  checked_status(PySlice_Unpack(o, &start, &stop, &step));
  Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
  put(kSlice, length || step > 0 ? start : 0, length, step);
  return true;
}

// The view for a simple key; undefined when the key does not fit (the slow path tells why).
Tensor simple_view(const Tensor& self, PyObject* key) {
  constexpr Py_ssize_t kMost = 16;
  int64_t items[4 * kMost];
  int64_t* out = items;
  size_t dim = 0;
  if (!PyTuple_CheckExact(key)) {
    if (!add_simple(self, key, out, dim)) return {};
  } else {
    Py_ssize_t n = PyTuple_GET_SIZE(key);
    if (n > kMost) return {};
    for (Py_ssize_t k = 0; k < n; ++k)
      if (!add_simple(self, PyTuple_GET_ITEM(key, k), out, dim)) return {};
  }
  return kBasicIndex(self, IntSpan(items, static_cast<size_t>(out - items)));
}

PyObject* subscript(PyObject* self, PyObject* key) {
  return guarded([&] {
    if (g_overrides_watched) [[unlikely]]
      if (PyObject* result = try_override_slot("__getitem__", self, key)) return result;
    const Tensor& t = tensor_of(self);
    if (!traced_int && simple_key(key)) [[likely]]
      if (Tensor view = simple_view(t, key); view.defined()) return wrap(std::move(view));
    Parsed p;
    if (is_tracing()) p.traced = t;
    parse_key(t, p, key);
    if (!p.any_advanced && p.traced.defined() && p.traced.is(t))
      return wrap(ops::slice(t, int64_t{0}, Value(), Value(), int64_t{1}));
    if (!p.any_advanced) return wrap(basic_view(t, p));
    return wrap(kIndex(basic_view(t, p), TensorList(p.advanced)));
  });
}

// --- writing -----------------------------------------------------------------------------------------------------

// Leading dimensions of size 1 do not count in assignments.
Tensor without_leading_ones(const Tensor& value, int64_t at_most) {
  size_t drop = 0;
  while (value.ndim() - static_cast<int64_t>(drop) > at_most && value.sizes()[drop] == 1) ++drop;
  return drop ? ops::view(value, value.sizes().subspan(drop)) : value;
}

bool same_memory(const Tensor& a, const Tensor& b) {
  return a->storage == b->storage && a->storage && a->byte_offset == b->byte_offset && a.dtype() == b.dtype() &&
         a.pending() == b.pending() && same(a.sizes(), b.sizes()) && same(a.strides(), b.strides());
}

Tensor value_tensor(const Tensor& self, PyObject* value) {
  if (is_tensor(value)) return tensor_of(value);
  PyTypeObject* array = numpy_array_type();
  bool convertible = PyList_Check(value) || PyTuple_Check(value) || (array && PyType_IsSubtype(Py_TYPE(value), array));
  TS_CHECK_TYPE(convertible, "can't assign a ", type_name(value), " to a tensor of ", self.dtype());
  Tensor t = construct_tensor(value, DType::Undefined, host_device());
  return t.device() == self.device() ? t : ops::to_device(t, self.device());
}

void assign_view(const Tensor& view, PyObject* value) {
  Value number;
  double parts[2];
  if (!is_tensor(value) && as_any_number(value, number, parts)) {
    ops::fill_(view, number.as_scalar());
    return;
  }
  Tensor source = value_tensor(view, value);
  // a[i] += b ends by assigning the view to itself. A detached alias, though, takes the gradient of what it is given.
  bool itself = source.is(view) || (source->base && source->base == view->base);
  if (itself && same_memory(view, source)) return;
  ops::copy_(view, without_leading_ones(source, view.ndim()));
}

// The dimensions of what is written there: fewer than these are stretched, so that only more have ones to lose. A trace
// then says nothing of how many places there are, which values may decide.
int64_t put_dims(const Tensor& view, const std::vector<Tensor>& indices) {
  int64_t together = 0, taken = 0;
  for (const Tensor& t : indices) {
    if (!t.defined()) continue;
    bool mask = is_mask(t);
    together = std::max(together, mask ? int64_t{1} : t.ndim());
    taken += mask ? t.ndim() : 1;
  }
  return view.ndim() - taken + together;
}

void assign_indexed(const Tensor& view, const std::vector<Tensor>& indices, PyObject* value) {
  Value number;
  double parts[2];
  bool is_number = !is_tensor(value) && as_any_number(value, number, parts);
  bool one_mask = indices.size() == 1 && is_bool(indices[0].dtype());
  if (is_number && one_mask && same(indices[0].sizes(), view.sizes())) {
    kMaskedFill(view, indices[0], number.as_scalar());
    return;
  }
  Tensor source =
      is_number ? ops::full(IntSpan(), number.as_scalar(), view.dtype(), view.device()) : value_tensor(view, value);
  // Tensors must have the dtype already, which index_put_ checks; lists and arrays have none to insist on. One value
  // under masks fills instead of being put, and is cast.
  bool fills = source.numel() == 1;
  for (const Tensor& t : indices) fills = fills && (!t.defined() || is_bool(t.dtype()));
  TS_CHECK(!fills || !is_complex(source.dtype()) || is_complex(view.dtype()), "value cannot be converted to type ",
           view.dtype(), " without overflow, got ", source.dtype(), "; try .real");
  if (source.dtype() != view.dtype() && (!is_tensor(value) || fills)) {
    if (fills) check_value_fits(source, view.dtype(), "index_put_");
    source = ops::to_dtype(source, view.dtype());
  }
  if (!(source.device() == view.device()) && source.ndim() == 0) source = ops::to_device(source, view.device());
  kIndexPut(view, TensorList(indices), without_leading_ones(source, put_dims(view, indices)));
}

int assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  return guarded([&] {
    if (!value) raise(PyExc_TypeError, "Tensor does not support deleting items");
    const Tensor& t = tensor_of(self);
    if (t->payload) raise(PyExc_TypeError, "Cannot assign to a sparse tensor; use .to_dense(), or build another");
    Parsed p;
    if (is_tracing()) p.traced = t;
    parse_key(t, p, key);
    bool whole = p.items.empty() && !p.traced.defined();
    Tensor view = whole ? t : basic_view(t, p);
    if (p.any_advanced)
      assign_indexed(view, p.advanced, value);
    else
      assign_view(view, value);
    return 0;
  });
}

// --- sequence ----------------------------------------------------------------------------------------------------

Py_ssize_t length(PyObject* self) {
  return guarded([&]() -> Py_ssize_t {
    const Tensor& t = tensor_of(self);
    TS_CHECK_TYPE(t.ndim() > 0, "len() of a 0-d tensor");
    warn_traced("Using len to get tensor shape might cause the trace to be incorrect. Recommended usage would be "
                "tensor.shape[0]. Passing a tensor of different shape might lead to errors or silently give incorrect "
                "results.");
    return static_cast<Py_ssize_t>(t.sizes()[0]);
  });
}

PyObject* iterate(PyObject* self) {
  return guarded([&] {
    TS_CHECK_TYPE(tensor_of(self).ndim() > 0, "iteration over a 0-d tensor");
    warn_traced("Iterating over a tensor might cause the trace to be incorrect. Passing a tensor of different shape "
                "won't change the number of iterations executed (and might lead to errors or silently give incorrect "
                "results).");
    Value value(impl_of(self));
    PyRef parts = checked(invoke_operator(kUnbind.get(), &value, 1));
    return checked(PyObject_GetIter(parts.get())).release();
  });
}

int contains(PyObject* self, PyObject* element) {
  return guarded([&] {
    Value v;
    Tensor number; // a complex one, which a value does not hold
    if (PyComplex_Check(element)) number = construct_as_tensor(element, DType::Undefined, tensor_of(self).device());
    bool usable = number.defined() || is_tensor(element) || as_number(element, v);
    TS_CHECK(usable, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a ", type_name(element),
             ".");
    if (is_tensor(element)) v = Value(impl_of(element));
    if (number.defined()) v = Value(number.impl());
    Tensor found = ops::any(ops::eq(tensor_of(self), v));
    return static_cast<int>(item_value(found).i != 0);
  });
}

} // namespace

std::vector<PyType_Slot> index_slots() {
  return {{Py_mp_length, reinterpret_cast<void*>(length)},
          {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
          {Py_mp_ass_subscript, reinterpret_cast<void*>(assign_subscript)},
          {Py_sq_contains, reinterpret_cast<void*>(contains)},
          {Py_tp_iter, reinterpret_cast<void*>(iterate)}};
}

} // namespace ts::py
