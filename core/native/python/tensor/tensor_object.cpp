// Life and death of Tensor objects.
#include "python/tensor/tensor_object.h"
#include "python/cycles.h"
#include "python/tensor/tensor_slots.h"
#include <structmember.h>

namespace ts::py {
namespace {

constexpr int kMaxFree = 256;
PyObject* g_free[kMaxFree]; // dead plain objects, their memory kept; guarded by the interpreter lock
int g_free_count = 0;
bool g_in_dealloc = false; // a finalizer is called since the last Python reference went, not by the collector
bool g_watch_all = false;  // tensors with a history, see watch_all_for_cycles

// Only objects that can be part of a cycle visible to Python are tracked by the garbage collector.
void track(TensorObject* o) {
  auto* self = reinterpret_cast<PyObject*>(o);
  if (!PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
}

// The collector finalizes an object once; one that came back must be finalizable again. The mark is bit 0 of the
// word before the object in every CPython with a global lock.
void allow_finalizing_again(TensorObject* o) {
  uintptr_t* header = reinterpret_cast<uintptr_t*>(o) - 1;
  *header &= ~uintptr_t{1};
}

bool has_state(TensorObject* o) { return o->dict || o->weakrefs || Py_TYPE(o) != TensorType; }

TensorObject* allocate() {
  if (g_free_count > 0) {
    auto* o = reinterpret_cast<TensorObject*>(PyObject_Init(g_free[--g_free_count], TensorType));
    allow_finalizing_again(o);
    return o;
  }
  auto* o = PyObject_GC_New(TensorObject, TensorType);
  if (!o) throw_python();
  return o;
}

// The wrapper takes the C++ reference in `t`; its Python reference passes from the tensor to the caller.
PyObject* flip_back(TensorObject* o, Tensor& t) {
  o->owned_by_impl = false;
  t.detach_ref();
  allow_finalizing_again(o);
  return reinterpret_cast<PyObject*>(o);
}

// PEP 442 finalizer: where an object with state is kept for a tensor that C++ still holds.
void finalize(PyObject* self) {
  TensorObject* o = as_object(self);
  if (o->owned_by_impl || o->impl->refs.load(std::memory_order_acquire) == 1) return;
  if (!g_in_dealloc && holds_itself(o->impl)) return; // nothing but the garbage that it is part of
  o->owned_by_impl = true;
  Py_INCREF(self);
  release(o->impl);
}

// Called when the last C++ reference of a tensor that owns its object goes.
bool keep_if_referenced(TensorImpl* t) {
  auto* o = static_cast<TensorObject*>(t->wrapper);
  if (!o->owned_by_impl) return false;
  GilGuard gil;
  o->owned_by_impl = false;
  t->refs.store(1, std::memory_order_relaxed); // the object's reference
  allow_finalizing_again(o);
  Py_DECREF(reinterpret_cast<PyObject*>(o)); // the tensor's; if it was the last, both die here
  return true;
}

void dealloc(PyObject* self) {
  TensorObject* o = as_object(self);
  PyTypeObject* type = Py_TYPE(self);
  if (type == TensorType && has_state(o)) {
    track(o);
    g_in_dealloc = true;
    const int kept = PyObject_CallFinalizerFromDealloc(self);
    g_in_dealloc = false;
    if (kept < 0) return;
  }
  PyObject_GC_UnTrack(self);
  if (o->weakrefs) PyObject_ClearWeakRefs(self);
  Py_CLEAR(o->dict);
  o->impl->wrapper = nullptr;
  release(o->impl);
  if (type == TensorType && g_free_count < kMaxFree)
    g_free[g_free_count++] = self;
  else
    type->tp_free(self);
  Py_DECREF(type);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  TensorObject* o = as_object(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(o->dict);
  return visit_tensor(o, visit, arg);
}

int clear(PyObject* self) {
  TensorObject* o = as_object(self);
  Py_CLEAR(o->dict);
  clear_tensor(o->impl);
  return 0;
}

int set_attribute(PyObject* self, PyObject* name, PyObject* value) {
  int status = PyObject_GenericSetAttr(self, name, value);
  if (as_object(self)->dict) track(as_object(self));
  return status;
}

PyObject* get_dict(PyObject* self, void*) {
  PyObject* d = PyObject_GenericGetDict(self, nullptr);
  if (d) track(as_object(self));
  return d;
}

Py_hash_t identity_hash(PyObject* self) {
  // id(self), as in PyTorch, which is never -1: objects are aligned.
  return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(self));
}

PyMemberDef g_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef g_dict_getset[] = {
    {"__dict__", get_dict, PyObject_GenericSetDict, "Attributes set on this very tensor.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

std::vector<PyType_Slot> life_slots() {
  static std::vector<PyGetSetDef> getset = [] {
    std::vector<PyGetSetDef> all = tensor_properties();
    all.push_back(g_dict_getset[0]);
    all.push_back(g_dict_getset[1]);
    return all;
  }();
  return {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
          {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
          {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
          {Py_tp_clear, reinterpret_cast<void*>(clear)},
          {Py_tp_setattro, reinterpret_cast<void*>(set_attribute)},
          {Py_tp_members, g_members},
          {Py_tp_getset, getset.data()},
          {Py_tp_hash, reinterpret_cast<void*>(identity_hash)},
          {Py_tp_doc, const_cast<char*>("A multi-dimensional array on a device, with gradients.")}};
}

} // namespace

void watch_all_for_cycles() { g_watch_all = true; }

void watch_for_cycles(PyObject* tensor) { track(as_object(tensor)); }

PyObject* wrap(Tensor t) {
  TensorImpl* impl = t.impl();
  if (!impl) return none();
  if (auto* known = static_cast<TensorObject*>(impl->wrapper)) {
    if (known->owned_by_impl) [[unlikely]]
      return flip_back(known, t);
    return Py_NewRef(reinterpret_cast<PyObject*>(known));
  }
  TensorObject* o = allocate();
  o->dict = o->weakrefs = nullptr;
  o->owned_by_impl = false;
  o->impl = t.detach_ref();
  impl->wrapper = o;
  if (g_watch_all && impl->autograd) [[unlikely]]
    track(o);
  return reinterpret_cast<PyObject*>(o);
}

PyObject* wrap_as(PyTypeObject* type, Tensor t) {
  if (type == TensorType) return wrap(std::move(t));
  PyRef object = checked(type->tp_alloc(type, 0));
  TensorObject* o = as_object(object.get());
  o->impl = t.detach_ref();
  o->impl->wrapper = o;
  return object.release();
}

const Tensor& expect_tensor(PyObject* o, const char* what) {
  if (!is_tensor(o)) raise(PyExc_TypeError, std::string(what) + ": expected a Tensor, got " + type_name(o));
  return tensor_of(o);
}

PyTypeObject* make_tensor_type() {
  std::vector<PyType_Slot> slots = life_slots();
  for (auto family : {number_slots(), index_slots(), buffer_slots(), conversion_slots()})
    slots.insert(slots.end(), family.begin(), family.end());
  slots.push_back({0, nullptr});
  PyType_Spec spec{};
  spec.name = "tesserack.Tensor";
  spec.basicsize = sizeof(TensorObject);
  spec.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
  spec.slots = slots.data();
  TensorType = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)).release());
  TensorType->tp_name = "Tensor"; // as error messages of the interpreter show it
  keep_for_wrapper = keep_if_referenced;
  return TensorType;
}

} // namespace ts::py
