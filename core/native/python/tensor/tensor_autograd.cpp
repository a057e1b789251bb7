// a.backward(), hooks, detach_ and what else changes a tensor's autograd state; the engine for tesserack.autograd.
#include "autograd/anomaly.h"
#include "autograd/engine.h"
#include "autograd/forward_level.h"
#include "autograd/keep_saved.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "python/autograd/autograd_bindings.h"
#include "python/autograd/hook_handle.h"
#include "python/autograd/node_object.h"
#include "python/calls/overrides.h"
#include "python/calls/parse.h"
#include "python/cycles.h"
#include "python/graph/traced_size.h"
#include "python/tensor/tensor_slots.h"
#include "runtime/empty.h"
#include "tensor/home.h"
#include <string_view>

namespace ts::py {
namespace {

constexpr const char* kHome = "tesserack.home";

bool truth(PyObject* o, bool fallback) {
  if (!o || o == Py_None) return fallback;
  int value = PyObject_IsTrue(o);
  checked_status(value);
  return value == 1;
}

// A tensor or a sequence of tensors; None elements are allowed where `optional`.
std::vector<Tensor> tensor_list(PyObject* o, const char* what, bool optional) {
  if (is_tensor(o)) return {tensor_of(o)};
  PyRef items = PyRef::steal(PySequence_Fast(o, ""));
  if (!items) {
    PyErr_Clear();
    raise(PyExc_TypeError, std::string(what) + ": expected a Tensor or a sequence of Tensors, got " + type_name(o));
  }
  std::vector<Tensor> out;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), k);
    if (item == Py_None && optional)
      out.emplace_back();
    else
      out.push_back(expect_tensor(item, what));
  }
  return out;
}

// Who captures a run of the program: asked first, with (name of the method, tensor, args, kwargs); NotImplemented where
// it goes on as ever.
PyObject* g_on_backward = nullptr;

PyObject* on_backward(PyObject*, PyObject* function) {
  return guarded([&] {
    PyRef before = PyRef::steal(std::exchange(g_on_backward, function == Py_None ? nullptr : Py_NewRef(function)));
    return none();
  });
}

} // namespace

bool has_taker() { return g_on_backward != nullptr; }

bool is_taken(const char* method, PyObject* self, PyObject* args, PyObject* kwargs, PyRef& result) {
  if (!has_taker()) [[likely]]
    return false;
  PyRef taker = PyRef::borrow(g_on_backward);
  result = PyRef::steal(PyObject_CallFunction(taker.get(), kwargs ? "sOOO" : "sOO", method, self, args, kwargs));
  return result.get() != Py_NotImplemented;
}

namespace {

PyObject* backward(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (PyRef found; is_taken("backward", self, args, kwargs, found)) return found.release();
  static const char* names[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
  PyObject *gradient = nullptr, *retain = nullptr, *create = nullptr, *inputs = nullptr;
  if (g_overrides_watched) [[unlikely]] {
    PyObject* found = nullptr;
    const PyRef asked =
        PyRef::steal(guarded([&] { return (found = try_override_method("backward", self, args, kwargs)), none(); }));
    if (found || !asked) return found;
  }
  bool any = PyTuple_GET_SIZE(args) > 0 || kwargs;
  if (any && !PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO:backward", const_cast<char**>(names), &gradient, &retain,
                                          &create, &inputs))
    return nullptr;
  return guarded([&] {
    std::vector<Tensor> wanted;
    TensorList grads;
    if (gradient && gradient != Py_None) grads = {&expect_tensor(gradient, "backward"), 1};
    if (inputs && inputs != Py_None) {
      wanted = tensor_list(inputs, "backward", false);
      TS_CHECK(!wanted.empty(), "'inputs' argument to backward() cannot be empty.");
    }
    BackwardOptions options;
    options.create_graph = truth(create, false);
    options.retain_graph = truth(retain, options.create_graph);
    run_backward({&tensor_of(self), 1}, grads, wanted, options);
    return none();
  });
}

// _run_backward(tensors, grads, retain_graph, create_graph, inputs, allow_unused, accumulate) -> gradients of inputs
PyObject* run_engine(PyObject*, PyObject* args) {
  PyObject *tensors, *grads, *inputs;
  int retain, create, allow_unused, accumulate;
  if (!PyArg_ParseTuple(args, "OOppOpp:_run_backward", &tensors, &grads, &retain, &create, &inputs, &allow_unused,
                        &accumulate))
    return nullptr;
  return guarded([&] {
    BackwardOptions options;
    options.retain_graph = retain;
    options.create_graph = create;
    options.allow_unused = allow_unused;
    options.accumulate = accumulate;
    options.forward = is_pushing();
    std::vector<Tensor> results =
        run_backward(tensor_list(tensors, "backward", false), tensor_list(grads, "grad_tensors", true),
                     tensor_list(inputs, "inputs", false), options);
    PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
    for (size_t k = 0; k < results.size(); ++k)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), wrap(results[k]));
    return tuple.release();
  });
}

// _edge_stand_in(node, number) -> a tensor without memory whose gradient goes to that result of the node; of a leaf's
// node the leaf. The engine takes it for a root or an input.
PyObject* edge_stand_in(PyObject*, PyObject* args) {
  PyObject* object;
  unsigned number;
  if (!PyArg_ParseTuple(args, "OI:_edge_stand_in", &object, &number)) return nullptr;
  return guarded([&] {
    Node* node = node_of(object);
    TS_CHECK_TYPE(node, "GradientEdge: expected a Node, got ", type_name(object));
    TS_CHECK_KIND(ErrorKind::Index, number < node->num_results(), "GradientEdge: ", node->name(), " has ",
                  node->num_results(), " results, got number ", number);
    if (Tensor* leaf = node->accumulates_into()) return wrap(*leaf);
    const ResultMeta& m = node->result_meta(number);
    Tensor t = m.dtype == DType::Undefined ? outline(IntSpan(), DType::Float32, Device{kMetaBackend, 0})
                                           : outline(m.sizes.span(), m.dtype, m.device);
    set_history(t, Ref<Node>::share(node), number);
    return wrap(t);
  });
}

PyObject* increment_version(PyObject*, PyObject* tensor) {
  return guarded([&] {
    const Tensor& t = expect_tensor(tensor, "increment_version");
    if (!t->has(TensorImpl::kInference)) t.impl()->bump_version(); // inference tensors have no version
    return none();
  });
}

// _post_hook_count(leaf): hooks that run after its gradient was added up
PyObject* post_hook_count(PyObject*, PyObject* tensor) {
  return guarded([&] {
    const AutogradMeta* m = autograd_meta(expect_tensor(tensor, "_post_hook_count").impl());
    return PyLong_FromSize_t(m && m->leaf_hooks ? m->leaf_hooks->accumulated.size() : 0);
  });
}

void release_home(PyObject* capsule) {
  delete static_cast<std::shared_ptr<Home>*>(PyCapsule_GetPointer(capsule, kHome));
}

std::shared_ptr<Home>& home_of(PyObject* capsule) {
  auto* home = static_cast<std::shared_ptr<Home>*>(PyCapsule_GetPointer(capsule, kHome));
  if (!home) throw_python();
  return *home;
}

// _offer_home(leaf, memory): a capsule; the leaf's gradient may be made there from now on.
PyObject* offer_home(PyObject*, PyObject* args) {
  return guarded([&] {
    PyObject *leaf = nullptr, *memory = nullptr;
    if (!PyArg_ParseTuple(args, "OO", &leaf, &memory)) throw_python();
    auto held = std::make_unique<std::shared_ptr<Home>>(
        Home::make(expect_tensor(leaf, "_offer_home").impl(), detach(expect_tensor(memory, "_offer_home"))));
    PyRef made = checked(PyCapsule_New(held.get(), kHome, release_home));
    held.release();
    return made.release();
  });
}

PyObject* withdraw_home(PyObject*, PyObject* capsule) {
  return guarded([&] {
    home_of(capsule)->withdraw();
    return none();
  });
}

PyObject* is_home_taken(PyObject*, PyObject* capsule) {
  return guarded([&] { return PyBool_FromLong(home_of(capsule)->is_taken()); });
}

PyObject* queue_python_callback(PyObject*, PyObject* fn) {
  return guarded([&] {
    auto callable = hold(fn);
    queue_callback([callable] {
      GilGuard gil;
      checked(PyObject_CallNoArgs(callable.get()));
    });
    return none();
  });
}

PyObject* py_anomaly_checks_nan(PyObject*, PyObject*) { return PyBool_FromLong(anomaly_checks_nan()); }
PyObject* py_set_anomaly_checks_nan(PyObject*, PyObject* on) {
  int value = PyObject_IsTrue(on);
  if (value < 0) return nullptr;
  set_anomaly_checks_nan(value == 1);
  return none();
}

// --- hooks -------------------------------------------------------------------------------------------------------

Tensor call_tensor_hook(PyObject* callable, const Tensor& grad) {
  GilGuard gil;
  PyRef argument = PyRef::steal(wrap(grad));
  PyRef result = checked(PyObject_CallOneArg(callable, argument.get()));
  if (result.get() == Py_None) return {};
  TS_CHECK(grad.defined(), "register_hook: a hook can't replace a None gradient with a non-None value");
  Tensor changed = expect_tensor(result.get(), "register_hook: the hook's result");
  TS_CHECK(same(changed.sizes(), grad.sizes()), "register_hook: a hook changed the size of a gradient: expected ",
           grad.sizes(), ", got ", changed.sizes());
  TS_CHECK(changed.dtype() == grad.dtype(), "register_hook: a hook changed the dtype of a gradient: expected ",
           grad.dtype(), ", got ", changed.dtype());
  return changed;
}

PyObject* register_hook(PyObject* self, PyObject* fn) {
  return guarded([&] {
    auto callable = hold(fn);
    watch_all_for_cycles();
    watch_for_cycles(self);
    return hook_remover(register_tensor_hook(
        tensor_of(self), [callable](const Tensor& g) { return call_tensor_hook(callable.get(), g); }, callable));
  });
}

// The hooks on a tensor's gradient by their numbers; None without any.
PyObject* tensor_hooks(PyObject* self, PyObject*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    const AutogradMeta* meta = autograd_meta(t.impl());
    Ref<Node> fn = grad_fn(t);
    const NodeHooks* hooks = fn ? fn->hooks.get() : meta ? meta->leaf_hooks.get() : nullptr;
    if (!hooks || hooks->tensor.empty()) return none();
    PyRef found = checked(PyDict_New());
    for (const auto& each : hooks->tensor) {
      if (!each.held || (fn && each.output != meta->output_nr)) continue;
      PyRef id = checked(PyLong_FromUnsignedLongLong(each.id));
      checked_status(PyDict_SetItem(found.get(), id.get(), static_cast<PyObject*>(each.held.get())));
    }
    return found.release();
  });
}

// Of a leaf: what hangs on the node of another stays with its value.
PyObject* drop_tensor_hooks(PyObject* self, PyObject*) {
  const AutogradMeta* meta = autograd_meta(tensor_of(self).impl());
  if (meta && meta->leaf_hooks && !meta->grad_fn) meta->leaf_hooks->tensor.clear();
  return none();
}

PyObject* register_post_hook(PyObject* self, PyObject* fn) {
  return guarded([&] {
    auto callable = hold(fn);
    watch_all_for_cycles();
    watch_for_cycles(self);
    auto call = [callable](const Tensor& t) {
      GilGuard gil;
      PyRef argument = PyRef::steal(wrap(t));
      PyRef result = checked(PyObject_CallOneArg(callable.get(), argument.get()));
      TS_CHECK(result.get() == Py_None, "Tensor post accumulate grad hooks should return None.");
    };
    return hook_remover(register_post_accumulate_hook(tensor_of(self), call, callable));
  });
}

// --- state -------------------------------------------------------------------------------------------------------

// A transform takes gradients by leaves of its own: what the function under it marks would be lost.
void refuse_under_transform(const char* what) {
  TS_CHECK(
      !writes_are_guarded() || !program_calls(), what,
      "(): expected to be called outside of func's transforms, "
      "got a call inside of a function that one transforms; give the tensor to func.grad, vjp or jvp as an argument");
}

PyObject* requires_grad_(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (PyRef found; is_taken("requires_grad_", self, args, kwargs, found)) return found.release();
  static const char* names[] = {"requires_grad", nullptr};
  int on = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:requires_grad_", const_cast<char**>(names), &on)) return nullptr;
  return guarded([&] {
    if (on) refuse_under_transform("requires_grad_");
    // Of one that has them the node is not asked, which a view whose base was written to may have lost.
    if (!on || !requires_grad(tensor_of(self))) set_requires_grad(tensor_of(self), on);
    return Py_NewRef(self);
  });
}

PyObject* retain_grad_method(PyObject* self, PyObject*) {
  return guarded([&] {
    refuse_under_transform("retain_grad");
    retain_grad(tensor_of(self));
    return none();
  });
}

PyObject* detach_(PyObject* self, PyObject*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    Tensor cut = is_tracing() ? ops::detach(t) : Tensor(); // the program's value from now on
    detach_inplace(t);
    if (cut.defined()) t->traced = cut->traced;
    return Py_NewRef(self);
  });
}

PyObject* py_current_run(PyObject*, PyObject*) { return PyLong_FromLongLong(current_run()); }
PyObject* py_will_run(PyObject*, PyObject* object) {
  return guarded([&] {
    Node* node = node_of(object);
    TS_CHECK_TYPE(node, "_will_run: expected a Node, got ", type_name(object));
    return PyBool_FromLong(will_run(node, true));
  });
}
// _undo_versions(tensor, count): writes that are not to be seen in its version
PyObject* py_undo_versions(PyObject*, PyObject* args) {
  PyObject* tensor;
  unsigned count;
  if (!PyArg_ParseTuple(args, "OI:_undo_versions", &tensor, &count)) return nullptr;
  return guarded([&] {
    for (TensorImpl* t = expect_tensor(tensor, "_undo_versions").impl(); count > 0; --count) t->undo_bump();
    return none();
  });
}
PyObject* py_run_has_inputs(PyObject*, PyObject*) { return PyBool_FromLong(run_has_inputs()); }

PyMethodDef g_tensor_autograd_functions[] = {
    {"_current_run", py_current_run, METH_NOARGS, nullptr},
    {"_will_run", py_will_run, METH_O, nullptr},
    {"_undo_versions", py_undo_versions, METH_VARARGS, nullptr},
    {"_run_has_inputs", py_run_has_inputs, METH_NOARGS, nullptr},
    {"_on_backward", on_backward, METH_O, nullptr},
    {"_run_backward", run_engine, METH_VARARGS, nullptr},
    {"_queue_callback", queue_python_callback, METH_O, nullptr},
    {"_edge_stand_in", edge_stand_in, METH_VARARGS, nullptr},
    {"_increment_version", increment_version, METH_O, nullptr},
    {"_post_hook_count", post_hook_count, METH_O, nullptr},
    {"_offer_home", offer_home, METH_VARARGS, nullptr},
    {"_withdraw_home", withdraw_home, METH_O, nullptr},
    {"_is_home_taken", is_home_taken, METH_O, nullptr},
    {"is_anomaly_check_nan_enabled", py_anomaly_checks_nan, METH_NOARGS,
     "is_anomaly_check_nan_enabled()\n--\n\nWhether anomaly mode refuses NaN gradients."},
    {"_set_anomaly_checks_nan", py_set_anomaly_checks_nan, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

std::vector<PyMethodDef> autograd_methods() {
  auto fast = [](auto* f) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f)); };
  return {
      {"backward", fast(backward), METH_VARARGS | METH_KEYWORDS,
       "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\nAdd the gradient of this "
       "tensor to .grad of the leaves it "
       "was computed from.\n\n`gradient` stands for the derivative of some scalar by this tensor; it may be left out "
       "for a single element."},
      {"_register_hook", register_hook, METH_O, nullptr},
      {"_tensor_hooks", tensor_hooks, METH_NOARGS, nullptr},
      {"_drop_tensor_hooks", drop_tensor_hooks, METH_NOARGS, nullptr},
      {"_register_post_hook", register_post_hook, METH_O, nullptr},
      {"requires_grad_", fast(requires_grad_), METH_VARARGS | METH_KEYWORDS,
       "requires_grad_(requires_grad=True)\n--\n\nSet whether gradients are recorded for this leaf; returns it."},
      {"retain_grad", retain_grad_method, METH_NOARGS,
       "retain_grad()\n--\n\nKeep the gradient of this non-leaf in .grad."},
      {"detach_", detach_, METH_NOARGS, "detach_()\n--\n\nForget the history in place."},
  };
}

void init_autograd(PyObject* module) { checked_status(PyModule_AddFunctions(module, g_tensor_autograd_functions)); }

} // namespace ts::py
