#include "python/autograd/hook_handle.h"

namespace ts::py {
namespace {

constexpr const char* kPlace = "tesserack.HookPlace";

void free_place(PyObject* capsule) { delete static_cast<HookPlace*>(PyCapsule_GetPointer(capsule, kPlace)); }

PyObject* remove(PyObject* capsule, PyObject*) {
  return guarded([&] {
    static_cast<HookPlace*>(PyCapsule_GetPointer(capsule, kPlace))->remove();
    return none();
  });
}

PyMethodDef g_remove = {"remove", remove, METH_NOARGS, nullptr};

} // namespace

PyObject* hook_remover(HookPlace place) {
  auto kept = std::make_unique<HookPlace>(std::move(place));
  PyRef capsule = checked(PyCapsule_New(kept.get(), kPlace, free_place));
  kept.release();
  return checked(PyCFunction_New(&g_remove, capsule.get())).release();
}

} // namespace ts::py
