// Tensors made as instances of a subclass: over the memory of another, or without any.
#include "python/tensor/tensor_subclass.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "dispatch/operator.h"
#include "python/calls/operator_object.h"
#include "python/calls/parse.h"
#include "python/graph/traced_size.h"
#include "python/tensor/tensor_object.h"
#include "python/tensor/tensor_slots.h"
#include "python/types.h"
#include "runtime/empty.h"

namespace ts::py {
namespace {

// What a class has as __torch_dispatch__ to take over nothing, as Tensor itself has.
PyObject* inherited_dispatch() {
  static PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(TensorType), "__torch_dispatch__");
  if (!found) throw_python();
  return found;
}

bool takes_over(PyTypeObject* type) {
  PyRef found = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__torch_dispatch__"));
  return found.get() != inherited_dispatch();
}

PyTypeObject* expect_subclass(PyObject* type, const char* what) {
  bool subclass = PyType_Check(type) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), TensorType);
  TS_CHECK_TYPE(subclass, what, ": expected a subclass of Tensor, got ", type_name(type));
  return reinterpret_cast<PyTypeObject*>(type);
}

// The kernel of key::Python is written in Python and comes with the first tensor that needs it.
void mark(const Tensor& t) {
  static PyObject* kernel = nullptr;
  if (!kernel) kernel = checked(PyImport_ImportModule("tesserack.aten.modes")).release();
  t->keys |= key_bit(key::Python);
}

PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cls", "data", "require_grad", nullptr};
  PyObject *type, *data;
  int on = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p:_make_subclass", const_cast<char**>(names), &type, &data, &on))
    return nullptr;
  return guarded([&] {
    PyTypeObject* cls = expect_subclass(type, "_make_subclass");
    Tensor t = shallow_copy(expect_tensor(data, "_make_subclass"));
    if (on) {
      set_requires_grad(t, true);
      note_leaf();
    }
    mark_for(cls, t);
    return wrap_as(cls, std::move(t));
  });
}

// as_subclass(self, cls): a view whose gradient goes on. What a class that takes calls over answers has an object
// already.
PyObject* as_subclass(PyObject* self, PyObject* type) {
  return guarded([&] {
    PyTypeObject* cls = expect_subclass(type, "as_subclass");
    const Tensor& t = tensor_of(self);
    // Sparse tensors have no views whose gradient goes on: a copy.
    Tensor view = !requires_grad(t) ? ops::detach(t) : t->payload ? ops::clone(t) : ops::view(t, t.sizes());
    mark_for(cls, view);
    if (!view->wrapper) return wrap_as(cls, std::move(view));
    PyRef object = PyRef::steal(wrap(std::move(view)));
    if (PyObject_SetAttrString(object.get(), "__class__", type) < 0) throw_python();
    return object.release();
  });
}

// _make_wrapper(cls, sizes, strides, storage_offset, dtype, device, requires_grad)
PyObject* make_wrapper(PyObject*, PyObject* args) {
  PyObject *type, *sizes, *strides, *dtype, *device;
  long long offset = 0;
  int requires_grad = 0;
  if (!PyArg_ParseTuple(args, "OOOLOOp:_make_wrapper", &type, &sizes, &strides, &offset, &dtype, &device,
                        &requires_grad))
    return nullptr;
  return guarded([&] {
    PyTypeObject* cls = expect_subclass(type, "_make_wrapper_subclass");
    Scratch scratch;
    Value size_list, stride_list;
    TS_CHECK_TYPE(as_int_list(sizes, size_list, scratch), "_make_wrapper_subclass: expected sizes as ints, got ",
                  type_name(sizes));
    TS_CHECK_TYPE(is_dtype(dtype), "_make_wrapper_subclass: expected a dtype, got ", type_name(dtype));
    DType element = *as_dtype(dtype);
    Device where = expect_device(device, "_make_wrapper_subclass");
    for (int64_t n : size_list.as_ints())
      TS_CHECK(n >= 0, "_make_wrapper_subclass: expected sizes that are not negative, got ", size_list.as_ints());
    Tensor t = outline(size_list.as_ints(), element, where);
    if (strides != Py_None) {
      TS_CHECK_TYPE(as_int_list(strides, stride_list, scratch) &&
                        stride_list.as_ints().size() == size_list.as_ints().size(),
                    "_make_wrapper_subclass: expected a stride for each of the sizes ", size_list.as_ints());
      t->set_geometry(size_list.as_ints(), stride_list.as_ints());
    }
    t->byte_offset = offset * t.item_size();
    mark(t);
    if (requires_grad) set_requires_grad(t, true);
    return wrap_as(cls, std::move(t));
  });
}

} // namespace

void mark_for(PyTypeObject* cls, const Tensor& t) {
  if (cls != TensorType && takes_over(cls)) mark(t);
}

PyRef dispatched_item(const Tensor& t) {
  static PyObject* function = operator_object("_local_scalar_dense", {&get_operator("_local_scalar_dense")}, false);
  PyRef tensor = PyRef::steal(wrap(t));
  if (!t->payload) return checked(PyObject_CallOneArg(function, tensor.get()));
  PyRef dense = checked(PyObject_CallMethod(tensor.get(), "to_dense", nullptr));
  return checked(PyObject_CallMethod(dense.get(), "item", nullptr));
}

std::vector<PyMethodDef> subclass_methods() {
  return {
      {"_make_subclass", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(make_subclass)),
       METH_VARARGS | METH_KEYWORDS | METH_STATIC,
       "_make_subclass(cls, data, require_grad=False)\n--\n\nThe same memory as an instance of a subclass."},
      {"_as_subclass", as_subclass, METH_O,
       "_as_subclass(cls)\n--\n\nThis tensor's memory as an instance of a subclass; its gradient goes on."},
      {"_make_wrapper", make_wrapper, METH_VARARGS | METH_STATIC,
       "_make_wrapper(cls, sizes, strides, storage_offset, dtype, device, requires_grad)\n--\n\nAn instance of a "
       "subclass without memory, whose __torch_dispatch__ answers every call."},
  };
}

} // namespace ts::py
