#include "python/graph/signature.h"
#include "autograd/meta.h"
#include "dispatch/operator.h"
#include "extend/autocast.h"
#include "python/calls/overrides.h"
#include "python/tensor/plain_classes.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "tensor/sparse.h"
#include <algorithm>

namespace ts::py_runtime {
namespace {

bool has_attributes(PyObject* tensor) {
  PyObject* held = ts::py::as_object(tensor)->dict;
  return held && PyDict_GET_SIZE(held);
}

// Modes and regions see a thread's calls in ways of their own: the package asks about these.
constexpr KeySet kSpecial =
    key_bit(key::Python) | key_bit(key::Batching) | key_bit(key::Tracer) | key_bit(key::Leaf) | key_bit(key::UserMode);

} // namespace

bool put_tensor(Key& out, PyObject* o) {
  Likeness like;
  if (!like.read(o)) return false;
  out.put(like.type);
  out.put(like.keys);
  out.put(like.device);
  out.put(like.dtype);
  out.put(like.ndim);
  out.put(like.bits);
  const TensorImpl* t = ts::py::impl_of(o);
  for (const int64_t* dims : {t->sizes_data(), t->strides_data()})
    for (uint8_t d = 0; d < t->ndim; ++d) out.put(dims[d]);
  return true;
}

bool Likeness::read(PyObject* o) {
  const Tensor& t = ts::py::tensor_of(o);
  type = Py_TYPE(o), keys = t->keys, device = t->device, dtype = t->dtype, ndim = t->ndim;
  bits = static_cast<uint8_t>((requires_grad(t) ? 1 : 0) | (t->has(TensorImpl::kInference) ? 2 : 0));
  return !t->payload && ts::py::is_known_tensor(o);
}

void Arguments::clear() {
  key.clear();
  tensors.clear();
}

bool Arguments::add(PyObject* o, int depth) {
  if (ts::py::is_tensor(o)) {
    auto at = std::find(tensors.begin(), tensors.end(), o);
    key.put('T');
    key.put(static_cast<int32_t>(at - tensors.begin()));
    if (at != tensors.end()) return true;
    tensors.push_back(o);
    return !has_attributes(o) && put_tensor(key, o);
  }
  if (o == Py_None || o == Py_True || o == Py_False || o == Py_Ellipsis || ts::py::is_dtype(o)) {
    key.put('o'); // these live for ever
    key.put(o);
    return true;
  }
  if (PyLong_CheckExact(o)) {
    int overflow = 0;
    long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
    key.put('i');
    key.put(i);
    return !overflow;
  }
  if (PyFloat_CheckExact(o)) {
    key.put('f');
    key.put(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyUnicode_CheckExact(o)) {
    Py_ssize_t n = 0;
    const char* text = PyUnicode_AsUTF8AndSize(o, &n);
    if (!text) return PyErr_Clear(), false;
    key.put('s');
    key.put(n);
    key.put_text({text, static_cast<size_t>(n)});
    return true;
  }
  return depth < 16 && add_container(o, depth + 1);
}

bool Arguments::add_container(PyObject* o, int depth) {
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    key.put(PyList_CheckExact(o) ? 'l' : 't');
    key.put(n);
    for (Py_ssize_t k = 0; k < n; ++k)
      if (!add(PySequence_Fast_GET_ITEM(o, k), depth)) return false;
    return true;
  }
  if (!PyDict_CheckExact(o)) return false;
  key.put('d');
  key.put(PyDict_GET_SIZE(o));
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(o, &at, &name, &value);)
    if (!PyUnicode_CheckExact(name) || !add(name, depth) || !add(value, depth)) return false;
  return true;
}

bool Arguments::read_modes() {
  const ThreadState& state = thread_state();
  if ((state.include & kSpecial) || ts::py::override_modes()) return false;
  key.put(state.include);
  key.put(state.exclude);
  if (state.include & key_bit(key::Autocast)) {
    std::string regions;
    describe_autocast(regions);
    key.put_text(regions);
  }
  key.put(static_cast<uint8_t>(state.inference | state.anomaly << 1));
  key.put(default_dtype());
  key.put(default_device());
  return true;
}

bool Arguments::read(PyObject* args, PyObject* kwargs) {
  return read_modes() && add(args, 0) && (!kwargs || add(kwargs, 0));
}

// The same bytes as of the tuple and the dict that a function of Python would be given.
bool Arguments::read(PyObject* const* args, size_t n, PyObject* names, size_t n_names) {
  if (!read_modes()) return false;
  key.put('t');
  key.put(static_cast<Py_ssize_t>(n));
  for (size_t k = 0; k < n; ++k)
    if (!add(args[k], 1)) return false;
  key.put('d');
  key.put(static_cast<Py_ssize_t>(n_names));
  for (size_t k = 0; k < n_names; ++k)
    if (!add(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(k)), 1) || !add(args[n + k], 1)) return false;
  return true;
}

} // namespace ts::py_runtime
