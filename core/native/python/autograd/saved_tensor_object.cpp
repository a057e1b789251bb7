#include "python/autograd/saved_tensor_object.h"
#include "autograd/declared.h"
#include "autograd/keep_saved.h"
#include "python/cycles.h"
#include "python/tensor/tensor_object.h"

namespace ts::py {
namespace {

struct SavedTensorObject {
  PyObject_HEAD Ref<Node> node;
  SavedTensor* saved; // of the node
};

PyTypeObject* g_type = nullptr;
SavedTensorObject* as_saved(PyObject* o) { return reinterpret_cast<SavedTensorObject*>(o); }

Tensor unpack_object(const PackedTensor& kept) {
  GilGuard gil;
  PyRef t =
      checked(PyObject_CallOneArg(static_cast<PyObject*>(kept.opener.get()), static_cast<PyObject*>(kept.value.get())));
  if (!is_tensor(t.get()))
    raise(PyExc_TypeError,
          "Output of saved tensor unpack_hook expected to be a Tensor but got result of type " + type_name(t.get()));
  return tensor_of(t.get());
}

void saved_tensor_object_dealloc(PyObject* self) {
  as_saved(self)->node.~Ref<Node>();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* register_hooks(PyObject* self, PyObject* args) {
  PyObject *pack, *unpack;
  if (!PyArg_ParseTuple(args, "OO:register_hooks", &pack, &unpack)) {
    PyErr_Clear();
    PyErr_SetString(PyExc_TypeError, "register_hooks(): incompatible function arguments: expected a function that "
                                     "packs and one that unpacks");
    return nullptr;
  }
  return guarded([&] {
    for (PyObject* hook : {pack, unpack})
      if (!PyCallable_Check(hook))
        raise(PyExc_TypeError,
              "register_hooks(): incompatible function arguments: expected functions, got " + type_name(hook));
    as_saved(self)->saved->register_hooks(saved_tensor_hooks(pack, unpack), as_saved(self)->node.get());
    return none();
  });
}

PyObject* unpack(PyObject* self, PyObject*) {
  return guarded([&] { return wrap(as_saved(self)->saved->unpack(as_saved(self)->node.get())); });
}

PyObject* data(PyObject* self, void*) {
  return guarded([&] {
    const SavedTensor& saved = *as_saved(self)->saved;
    check_not_freed(saved.released());
    const PackedTensor* packed = saved.packed();
    if (!packed) return wrap(saved.data());
    return packed->objects ? Py_NewRef(static_cast<PyObject*>(packed->value.get())) : wrap(packed->unpack(*packed));
  });
}

PyObject* unpack_hook(PyObject* self, void*) {
  const PackedTensor* packed = as_saved(self)->saved->packed();
  return packed && packed->objects ? Py_NewRef(static_cast<PyObject*>(packed->opener.get())) : Py_NewRef(Py_None);
}

PyMethodDef g_saved_tensor_object_methods[] = {
    {"register_hooks", register_hooks, METH_VARARGS,
     "register_hooks(pack_hook, unpack_hook)\n--\n\nKeep pack_hook(tensor) from now on, and unpack_hook of that when "
     "the tensor is needed.\n\nRuntimeError for a tensor that is freed, None, or has hooks already."},
    {"unpack", unpack, METH_NOARGS, "unpack()\n--\n\nThe tensor. RuntimeError if it was freed or modified in place."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_saved_tensor_object_properties[] = {
    {"data", data, nullptr, "What is kept: a tensor, or what the pack hook made of it.", nullptr},
    {"unpack_hook", unpack_hook, nullptr, "The hook that makes a tensor of what is kept, or None.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// --- tensors that may be written to --------------------------------------------------------------------------------

constexpr const char* kKept = "tesserack.kept_tensor";

std::shared_ptr<KeptTensor>& kept_of(PyObject* capsule) {
  void* found = PyCapsule_GetPointer(capsule, kKept);
  if (!found) throw_python();
  return *static_cast<std::shared_ptr<KeptTensor>*>(found);
}

void free_kept(PyObject* capsule) {
  delete static_cast<std::shared_ptr<KeptTensor>*>(PyCapsule_GetPointer(capsule, kKept));
}

// _keep_tensor(tensor) -> what _kept_value, and _is_copied, take
PyObject* py_keep_tensor(PyObject*, PyObject* tensor) {
  return guarded([&] {
    auto kept = std::make_unique<std::shared_ptr<KeptTensor>>(keep_tensor(expect_tensor(tensor, "_keep_tensor")));
    PyObject* capsule = checked(PyCapsule_New(kept.get(), kKept, free_kept)).release();
    kept.release();
    return capsule;
  });
}
PyObject* py_kept_value(PyObject*, PyObject* capsule) {
  return guarded([&] { return wrap(kept_value(*kept_of(capsule))); });
}
PyObject* py_is_copied(PyObject*, PyObject* capsule) {
  return guarded([&] { return PyBool_FromLong(kept_of(capsule)->copied); });
}
PyObject* py_constants_saved(PyObject*, PyObject* result) {
  return guarded([&] { return wrap(constants_saved(expect_tensor(result, "_constants_saved"))); });
}
PyObject* py_watch_writes(PyObject*, PyObject* on) {
  watch_writes(on == Py_True);
  return none();
}
PyObject* py_push_keeping_hooks(PyObject*, PyObject*) {
  push_keeping_hooks();
  return none();
}
PyObject* py_pop_keeping_hooks(PyObject*, PyObject*) {
  pop_keeping_hooks();
  return none();
}

// _push_write_guard(tensors, message)
PyObject* py_push_write_guard(PyObject*, PyObject* args) {
  PyObject* tensors;
  const char* message;
  if (!PyArg_ParseTuple(args, "Os:_push_write_guard", &tensors, &message)) return nullptr;
  return guarded([&] {
    PyRef items = checked(PySequence_Fast(tensors, "_push_write_guard: expected a sequence of tensors"));
    std::vector<Tensor> own;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k)
      own.push_back(expect_tensor(PySequence_Fast_GET_ITEM(items.get(), k), "_push_write_guard"));
    push_write_guard(own, message);
    return none();
  });
}
PyObject* py_writes_are_guarded(PyObject*, PyObject*) { return PyBool_FromLong(writes_are_guarded()); }
PyObject* py_pop_write_guard(PyObject*, PyObject*) {
  pop_write_guard();
  return none();
}

PyMethodDef g_saved_tensor_object_functions[] = {
    {"_push_write_guard", py_push_write_guard, METH_VARARGS, nullptr},
    {"_writes_are_guarded", py_writes_are_guarded, METH_NOARGS, nullptr},
    {"_pop_write_guard", py_pop_write_guard, METH_NOARGS, nullptr},
    {"_keep_tensor", py_keep_tensor, METH_O, nullptr},
    {"_kept_value", py_kept_value, METH_O, nullptr},
    {"_constants_saved", py_constants_saved, METH_O, nullptr},
    {"_is_copied", py_is_copied, METH_O, nullptr},
    {"_watch_writes", py_watch_writes, METH_O, nullptr},
    {"_push_keeping_hooks", py_push_keeping_hooks, METH_NOARGS, nullptr},
    {"_pop_keeping_hooks", py_pop_keeping_hooks, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

SavedTensorHooks saved_tensor_hooks(PyObject* pack, PyObject* unpack) {
  auto p = hold(pack), u = hold(unpack);
  watch_all_for_cycles();
  SavedTensorHooks hooks;
  hooks.pack = [p, u](const Tensor& t) -> PackedTensor {
    GilGuard gil;
    PyRef argument = PyRef::steal(wrap(t));
    PyRef packed = checked(PyObject_CallOneArg(p.get(), argument.get()));
    return {.value = hold(packed.get()), .opener = hold(u.get()), .unpack = unpack_object, .objects = true};
  };
  return hooks;
}

PyObject* saved_tensor_object(Ref<Node> node, SavedTensor* saved) {
  PyObject* self = checked(g_type->tp_alloc(g_type, 0)).release();
  new (&as_saved(self)->node) Ref<Node>(std::move(node));
  as_saved(self)->saved = saved;
  return self;
}

PyObject* refuse_new(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, "SavedTensor: expected to be taken from a node, as _raw_saved_..., got a call; "
                                      "they cannot be created from Python");
  return nullptr;
}

void init_saved_tensor_type(PyObject* module) {
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(saved_tensor_object_dealloc)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_methods, g_saved_tensor_object_methods},
      {Py_tp_getset, g_saved_tensor_object_properties},
      {Py_tp_doc, const_cast<char*>("A tensor that a node keeps for backward; _raw_saved_... of a node.")},
      {0, nullptr}};
  static PyType_Spec spec = {"tesserack.autograd.SavedTensor", sizeof(SavedTensorObject), 0, Py_TPFLAGS_DEFAULT, slots};
  g_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)).release());
  add_object(module, "SavedTensor", reinterpret_cast<PyObject*>(g_type));
  checked_status(PyModule_AddFunctions(module, g_saved_tensor_object_functions));
}

} // namespace ts::py
