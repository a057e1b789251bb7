// no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators; modes of this thread.
#include "autograd/forward_level.h"
#include "dispatch/operator.h"
#include "python/autograd/autograd_bindings.h"
#include "python/autograd/saved_tensor_object.h"
#include "python/tensor/tensor_object.h"
#include <vector>

namespace ts::py {
namespace {

enum class Mode : uint8_t { NoGrad, EnableGrad, SetGrad, Inference };

struct Saved {
  GradSwitch grad;
  bool inference;
};

struct ModeObject {
  PyObject_HEAD Mode mode;
  bool value;
  bool applied; // set_grad_enabled acts when made; entering it then only remembers what to restore
  Saved before;
  std::vector<Saved>* stack; // entered and not yet left
};
ModeObject* as_mode(PyObject* o) { return reinterpret_cast<ModeObject*>(o); }

Saved current() { return {grad_switch(), thread_state().inference}; }
void restore(const Saved& s) {
  restore_grad(s.grad);
  thread_state().inference = s.inference;
}

void grad_mode_apply(const ModeObject& m) {
  if (m.mode == Mode::NoGrad)
    switch_grad(false);
  else if (m.mode == Mode::EnableGrad)
    switch_grad(!thread_state().inference);
  else if (m.mode == Mode::SetGrad)
    switch_grad(m.value && !thread_state().inference);
  else {
    thread_state().inference = m.value;
    switch_grad(!m.value);
  }
}

template <Mode M> PyObject* mode_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* given = nullptr;
  static const char* names[] = {"mode", nullptr};
  const char* format = M == Mode::SetGrad ? "O:set_grad_enabled" : "|O";
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, const_cast<char**>(names), &given)) return nullptr;
  return guarded([&] {
    PyRef self = checked(type->tp_alloc(type, 0));
    ModeObject* m = as_mode(self.get());
    m->mode = M;
    m->value = true;
    m->before = current();
    m->stack = new std::vector<Saved>;
    if (given && PyCallable_Check(given)) // @no_grad without parentheses
      return checked(PyObject_CallOneArg(self.get(), given)).release();
    if (given) {
      int truth = PyObject_IsTrue(given);
      checked_status(truth);
      m->value = truth == 1;
    }
    if (M == Mode::SetGrad) {
      grad_mode_apply(*m);
      m->applied = true;
    }
    return self.release();
  });
}

void mode_dealloc(PyObject* self) {
  delete as_mode(self)->stack;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  // subtype_dealloc looks after the classes of subclasses
}

PyObject* mode_enter(PyObject* self, PyObject*) {
  return guarded([&] {
    ModeObject* m = as_mode(self);
    m->stack->push_back(m->applied ? m->before : current());
    m->applied = false;
    grad_mode_apply(*m);
    return none();
  });
}
PyObject* mode_exit(PyObject* self, PyObject*) {
  return guarded([&] {
    ModeObject* m = as_mode(self);
    TS_CHECK(!m->stack->empty(), "a gradient mode was left that was not entered");
    restore(m->stack->back());
    m->stack->pop_back();
    return none();
  });
}

// A fresh mode of the same kind, for every call of a decorated function.
PyObject* mode_clone(PyObject* self, PyObject*) {
  return guarded([&] {
    PyRef copy = checked(Py_TYPE(self)->tp_alloc(Py_TYPE(self), 0));
    ModeObject* m = as_mode(copy.get());
    m->mode = as_mode(self)->mode;
    m->value = as_mode(self)->value;
    m->stack = new std::vector<Saved>;
    return copy.release();
  });
}

PyObject* mode_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* fn = nullptr;
  static const char* names[] = {"function", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &fn)) return nullptr;
  return guarded([&] {
    // set_grad_enabled(x) as a decorator must not have changed the mode around the function's definition.
    if (as_mode(self)->applied) restore(as_mode(self)->before);
    PyRef module = checked(PyImport_ImportModule("tesserack.autograd._decorator"));
    return checked(PyObject_CallMethod(module.get(), "decorate", "OO", self, fn)).release();
  });
}

// A copy is a fresh mode, as clone() makes: modules hold such managers and are copied and pickled with them.
PyObject* mode_reduce(PyObject* self, PyObject*) {
  return guarded([&] {
    const ModeObject* m = as_mode(self);
    PyRef kind = PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(self)));
    PyRef state = PyRef::steal(PyObject_GetAttrString(self, "__dict__")); // of a class of the user's
    if (!state) {
      PyErr_Clear();
      state = PyRef::borrow(Py_None);
    }
    PyRef args = m->mode == Mode::Inference ? checked(Py_BuildValue("(O)", m->value ? Py_True : Py_False))
                                            : checked(PyTuple_New(0));
    if (m->mode == Mode::SetGrad) { // whose making acts
      PyRef module = checked(PyImport_ImportModule("tesserack.autograd._decorator"));
      args = checked(Py_BuildValue("(OO)", kind.get(), m->value ? Py_True : Py_False));
      kind = checked(PyObject_GetAttrString(module.get(), "without_acting"));
    }
    return checked(PyTuple_Pack(3, kind.get(), args.get(), state.get())).release();
  });
}

PyMethodDef g_mode_methods[] = {
    {"__reduce__", mode_reduce, METH_NOARGS, nullptr},
    {"__enter__", mode_enter, METH_NOARGS, nullptr},
    {"__exit__", mode_exit, METH_VARARGS, nullptr},
    {"clone", mode_clone, METH_NOARGS, "A fresh context manager of the same kind."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject make_type(const char* name, newfunc make, const char* doc) {
  PyTypeObject t = blank_type(name, sizeof(ModeObject), doc);
  t.tp_flags |= Py_TPFLAGS_BASETYPE;
  t.tp_new = make;
  t.tp_dealloc = mode_dealloc;
  t.tp_call = mode_call;
  t.tp_methods = g_mode_methods;
  return t;
}

PyTypeObject g_modes[] = {
    make_type("tesserack.no_grad", mode_new<Mode::NoGrad>,
              "no_grad()\n--\n\nContext manager and decorator: record nothing for gradients."),
    make_type("tesserack.enable_grad", mode_new<Mode::EnableGrad>,
              "enable_grad()\n--\n\nContext manager and decorator: record again inside no_grad."),
    make_type(
        "tesserack.set_grad_enabled", mode_new<Mode::SetGrad>,
        "set_grad_enabled(mode)\n--\n\nSwitch recording on or off: at once, or as a context manager or decorator."),
    make_type("tesserack.inference_mode", mode_new<Mode::Inference>,
              "inference_mode(mode=True)\n--\n\nAs no_grad, and tensors made inside can never take part in recording."),
};

PyObject* py_is_grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(grad_enabled() && !hidden_no_grad()); }
PyObject* py_is_inference(PyObject*, PyObject*) { return PyBool_FromLong(thread_state().inference); }
// 0: none, 1: tangents go forward, 2: and an outer computation records
PyObject* py_forward_level(PyObject*, PyObject* level) {
  const long wanted = PyLong_AsLong(level);
  if (wanted == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLong(static_cast<long>(set_forward_level(static_cast<ForwardLevel>(wanted))));
}
PyObject* py_pushing(PyObject*, PyObject* on) { return PyBool_FromLong(set_pushing(on == Py_True)); }
PyObject* py_is_forward_only(PyObject*, PyObject* t) {
  return guarded([&] { return PyBool_FromLong(is_forward_only(expect_tensor(t, "tensor"))); });
}
PyObject* py_is_anomaly(PyObject*, PyObject*) { return PyBool_FromLong(thread_state().anomaly); }
PyObject* py_set_anomaly(PyObject*, PyObject* on) {
  int truth = PyObject_IsTrue(on);
  if (truth < 0) return nullptr;
  thread_state().anomaly = truth == 1;
  return none();
}

// --- saved-tensor hooks ------------------------------------------------------------------------------------------

PyObject* push_hooks(PyObject*, PyObject* args) {
  PyObject *pack, *unpack;
  if (!PyArg_ParseTuple(args, "OO:_push_saved_tensors_hooks", &pack, &unpack)) return nullptr;
  return guarded([&] {
    push_saved_tensor_hooks(saved_tensor_hooks(pack, unpack));
    return none();
  });
}
PyObject* pop_hooks(PyObject*, PyObject*) {
  pop_saved_tensor_hooks();
  return none();
}
PyObject* disable_hooks(PyObject*, PyObject* message) {
  return guarded([&] {
    // The core keeps the pointer: messages are few and kept for good.
    static auto* texts = new std::vector<std::unique_ptr<std::string>>;
    if (message == Py_None) {
      disable_saved_tensor_hooks(nullptr);
      return none();
    }
    std::string text = to_utf8(message);
    for (auto& known : *texts)
      if (*known == text) return disable_saved_tensor_hooks(known->c_str()), none();
    texts->push_back(std::make_unique<std::string>(text));
    disable_saved_tensor_hooks(texts->back()->c_str());
    return none();
  });
}

PyMethodDef g_grad_mode_functions[] = {
    {"is_grad_enabled", py_is_grad_enabled, METH_NOARGS,
     "is_grad_enabled()\n--\n\nWhether operations are recorded for gradients."},
    {"is_inference_mode_enabled", py_is_inference, METH_NOARGS,
     "is_inference_mode_enabled()\n--\n\nWhether inference_mode is on."},
    {"is_anomaly_enabled", py_is_anomaly, METH_NOARGS, "is_anomaly_enabled()\n--\n\nWhether anomaly mode is on."},
    {"_forward_level", py_forward_level, METH_O, nullptr},
    {"_is_forward_only", py_is_forward_only, METH_O, nullptr},
    {"_pushing", py_pushing, METH_O, nullptr},
    {"_set_anomaly", py_set_anomaly, METH_O, nullptr},
    {"_push_saved_tensors_hooks", push_hooks, METH_VARARGS, nullptr},
    {"_pop_saved_tensors_hooks", pop_hooks, METH_NOARGS, nullptr},
    {"_disable_saved_tensors_hooks", disable_hooks, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

void init_grad_mode(PyObject* module) {
  for (PyTypeObject& t : g_modes) {
    checked_status(PyType_Ready(&t));
    add_object(module, strrchr(t.tp_name, '.') + 1, reinterpret_cast<PyObject*>(&t));
  }
  checked_status(PyModule_AddFunctions(module, g_grad_mode_functions));
}

} // namespace ts::py
