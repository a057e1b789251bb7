// Lists of parameters as optimizers and clipping go through them, without a word of Python for each. What is not plain
// is left to the package, which asks tensors one by one: then the answer is None.
#include "autograd/meta.h"
#include "extend/pending_bits.h"
#include "python/calls/overrides.h"
#include "python/graph/traced_size.h"
#include "python/tensor/plain_classes.h"
#include "python/types.h"

namespace ts::py {
namespace {

constexpr KeySet kOdd = key_bit(key::Python) | key_bit(key::Batching);

bool is_plain(const Tensor& t) {
  return !t->payload && !(t->keys & (kOdd | pending_bits())) && is_floating(t.dtype()) && t.item_size() > 1;
}
bool are_like(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype() && a.device() == b.device(); }

// Plain tensors of one floating dtype on one device; there is one at least.
PyObject* are_alike(PyObject*, PyObject* tensors) {
  if (!PyList_CheckExact(tensors) || !PyList_GET_SIZE(tensors)) Py_RETURN_FALSE;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(tensors); ++k) {
    PyObject* o = PyList_GET_ITEM(tensors, k);
    if (!is_known_tensor(o)) Py_RETURN_FALSE;
    const Tensor& t = tensor_of(o);
    if (!is_plain(t) || !are_like(t, tensor_of(PyList_GET_ITEM(tensors, 0)))) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

void append(PyObject* list, PyObject* item) { checked_status(PyList_Append(list, item)); }

// (parameters that have gradients, the gradients, a list of each name in their states), as they are now.
PyObject* step_lists(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    TS_CHECK_TYPE(n == 3 && PyDict_Check(args[1]) && PyTuple_CheckExact(args[2]),
                  "_step_lists: expected parameters, states and names");
    if (!PyList_CheckExact(args[0]) || override_modes() || is_tracing()) return none();
    const Py_ssize_t n_names = PyTuple_GET_SIZE(args[2]);
    PyRef out = checked(PyTuple_New(2 + n_names));
    for (Py_ssize_t k = 0; k < 2 + n_names; ++k) PyTuple_SET_ITEM(out.get(), k, checked(PyList_New(0)).release());
    auto list = [&](Py_ssize_t k) { return PyTuple_GET_ITEM(out.get(), k); };
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(args[0]); ++k) {
      PyRef param = PyRef::borrow(PyList_GET_ITEM(args[0], k));
      if (!is_known_tensor(param.get())) return none();
      const Tensor& p = tensor_of(param.get());
      const Tensor grad = grad_of(p);
      if (!grad.defined()) {
        if (!is_leaf(p)) return none(); // which is told
        continue;
      }
      if (!is_plain(p) || !is_plain(grad) || !are_like(p, grad)) return none();
      if (PyList_GET_SIZE(list(0)) && !are_like(p, tensor_of(PyList_GET_ITEM(list(0), 0)))) return none();
      append(list(0), param.get());
      append(list(1), PyRef::steal(wrap(grad)).get());
      if (!n_names) continue;
      PyRef state = PyRef::borrow(PyDict_GetItemWithError(args[1], param.get()));
      if (!state || !PyDict_CheckExact(state.get())) return PyErr_Occurred() ? throw_python(), nullptr : none();
      for (Py_ssize_t j = 0; j < n_names; ++j) {
        PyRef value = PyRef::borrow(PyDict_GetItemWithError(state.get(), PyTuple_GET_ITEM(args[2], j)));
        if (!value || !is_known_tensor(value.get())) return PyErr_Occurred() ? throw_python(), nullptr : none();
        append(list(2 + j), value.get());
      }
    }
    return PyList_GET_SIZE(list(0)) ? out.release() : none();
  });
}

// The count that all of these have after one step more, which is written; None where they differ, or are no such
// numbers.
PyObject* count_together(PyObject*, PyObject* tensors) {
  return guarded([&]() -> PyObject* {
    double count = 0;
    const Py_ssize_t n = PyList_CheckExact(tensors) ? PyList_GET_SIZE(tensors) : 0;
    auto at = [&](Py_ssize_t k) -> const Tensor& { return tensor_of(PyList_GET_ITEM(tensors, k)); };
    for (Py_ssize_t k = 0; k < n; ++k) {
      const Tensor& t = at(k);
      const bool single = t.dtype() == DType::Float32;
      if (!t.sizes().empty() || t->payload || !(single || t.dtype() == DType::Float64) || !t.data<char>())
        return none();
      const double now = single ? static_cast<double>(*t.data<float>()) : *t.data<double>();
      if (k && now != count) return none();
      count = now;
    }
    if (!n || !(count == count)) return none();
    for (Py_ssize_t k = 0; k < n; ++k) {
      const Tensor& t = at(k);
      if (t.dtype() == DType::Float32)
        *t.data<float>() = static_cast<float>(count + 1);
      else
        *t.data<double>() = count + 1;
      t.impl()->bump_version();
    }
    return PyFloat_FromDouble(count + 1);
  });
}

// p.grad = None for each of them.
PyObject* drop_grads(PyObject*, PyObject* params) {
  return guarded([&] {
    PyRef items = checked(PySequence_Fast(params, "_drop_grads: expected a list"));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
      PyRef param = PyRef::borrow(PySequence_Fast_GET_ITEM(items.get(), k));
      if (is_known_tensor(param.get()) && !override_modes())
        set_grad_of(tensor_of(param.get()), Tensor());
      else
        checked_status(PyObject_SetAttrString(param.get(), "grad", Py_None));
    }
    return none();
  });
}

PyObject* add_plain_class(PyObject*, PyObject* type) {
  plain_classes.push_back(reinterpret_cast<PyTypeObject*>(Py_NewRef(type)));
  return none();
}

PyMethodDef functions[] = {
    {"_are_alike", are_alike, METH_O, nullptr},
    {"_step_lists", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(step_lists)), METH_FASTCALL, nullptr},
    {"_count_together", count_together, METH_O, nullptr},
    {"_drop_grads", drop_grads, METH_O, nullptr},
    {"_add_plain_class", add_plain_class, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

void init_tensor_lists(PyObject* module) { checked_status(PyModule_AddFunctions(module, functions)); }

} // namespace ts::py
