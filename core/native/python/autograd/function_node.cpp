#include "python/autograd/function_node.h"
#include "autograd/meta.h"
#include "autograd/record.h"
#include "autograd/saved_tensor.h"
#include "dispatch/op_handles.h"
#include "python/autograd/node_object.h"
#include "python/autograd/saved_tensor_object.h"
#include "python/calls/overrides.h"
#include "python/cycles.h"
#include "python/graph/traced_size.h"
#include "python/tensor/tensor_object.h"
#include "runtime/interpreter.h"
#include <map>
#include <structmember.h>

namespace ts::py {
namespace {

struct ContextObject;

struct FunctionNode final : Node {
  PyObject* context = nullptr;  // owned
  PyObject* function = nullptr; // owned: the class with the static method `backward`
  std::string label;
  std::vector<ResultMeta> metas;
  std::vector<uint8_t> is_tensor_input; // per argument of forward
  std::vector<SavedTensor> saved;

  ~FunctionNode() override;
  std::string name() const override { return label; }
  size_t num_results() const override { return metas.size(); }
  const ResultMeta& result_meta(size_t k) const override { return metas[k]; }
  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) override;
  void release_saved() override {
    for (SavedTensor& s : saved) s.reset();
  }
  void visit_held(HeldVisitor& visitor) const override {
    visitor.borrowed(context);
    visitor.borrowed(function);
    for (const SavedTensor& s : saved) s.visit_held(visitor);
  }
};

// What the user's static methods know as ctx.
struct ContextObject {
  PyObject_HEAD PyObject* dict;
  FunctionNode* node; // borrowed; NULL once the graph is gone
  PyObject* to_save;  // tuple or NULL
  PyObject* dirty;    // tuple or NULL
  PyObject* non_differentiable;
  PyObject* needs_input_grad; // tuple of bools
  PyObject* weak_references;
  char materialize_grads;
};

// The function whose backward this thread runs, and the edges wanted of it.
struct Running {
  const FunctionNode& node;
  EdgeMask wanted;
  Running* outer;
  static thread_local Running* innermost;
  Running(const FunctionNode& n, EdgeMask w) : node(n), wanted(w), outer(std::exchange(innermost, this)) {}
  ~Running() { innermost = outer; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};
thread_local Running* Running::innermost = nullptr;

PyTypeObject* ContextType = nullptr;
ContextObject* as_context(PyObject* o) { return reinterpret_cast<ContextObject*>(o); }

FunctionNode::~FunctionNode() {
  if (context) as_context(context)->node = nullptr;
  release_anywhere(context);
  release_anywhere(function);
}

// --- the context ------------------------------------------------------------------------------------------------

void context_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  ContextObject* c = as_context(self);
  if (c->weak_references) PyObject_ClearWeakRefs(self);
  for (PyObject** slot : {&c->dict, &c->to_save, &c->dirty, &c->non_differentiable, &c->needs_input_grad})
    Py_CLEAR(*slot);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
int context_traverse(PyObject* self, visitproc visit, void* arg) {
  ContextObject* c = as_context(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* slot : {c->dict, c->to_save, c->dirty, c->non_differentiable, c->needs_input_grad}) Py_VISIT(slot);
  return 0;
}
int context_clear(PyObject* self) {
  ContextObject* c = as_context(self);
  for (PyObject** slot : {&c->dict, &c->to_save, &c->dirty, &c->non_differentiable}) Py_CLEAR(*slot);
  return 0;
}

template <PyObject* ContextObject::*Slot> PyObject* keep_arguments(PyObject* self, PyObject* args) {
  PyObject*& slot = as_context(self)->*Slot;
  Py_INCREF(args);
  Py_XSETREF(slot, args);
  return none();
}

// Tangents are taken through backward, so nothing reads them here but a jvp that a program calls itself.
PyObject* save_for_forward(PyObject* self, PyObject* args) {
  if (PyObject_SetAttrString(self, "saved_for_forward", args) < 0) return nullptr;
  return none();
}

PyObject* set_materialize_grads(PyObject* self, PyObject* value) {
  int truth = PyObject_IsTrue(value);
  if (truth < 0) return nullptr;
  as_context(self)->materialize_grads = static_cast<char>(truth);
  return none();
}

// With its history also where nothing is recorded: backward may record by itself. A hook is run in the mode that is.
Tensor saved_value(const SavedTensor& saved, Node* node) {
  GradMode on(!saved.packed() || grad_enabled());
  return saved.unpack(node);
}

PyObject* saved_tensors(PyObject* self, void*) {
  return guarded([&] {
    ContextObject* c = as_context(self);
    TS_CHECK(c->node, "saved_tensors: the graph this context belongs to is gone");
    auto& saved = c->node->saved;
    PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(saved.size())));
    for (size_t k = 0; k < saved.size(); ++k)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), wrap(saved_value(saved[k], c->node)));
    return tuple.release();
  });
}

PyObject* saved_variables(PyObject* self, void* closure) {
  if (PyErr_WarnEx(PyExc_DeprecationWarning, "'saved_variables' is deprecated; use 'saved_tensors'", 1) < 0)
    return nullptr;
  return saved_tensors(self, closure);
}

PyObject* raw_saved_tensors(PyObject* self, void*) {
  return guarded([&] {
    ContextObject* c = as_context(self);
    TS_CHECK(c->node, "_raw_saved_tensors: the graph this context belongs to is gone");
    auto& saved = c->node->saved;
    PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(saved.size())));
    for (size_t k = 0; k < saved.size(); ++k) {
      check_not_freed(saved[k].released());
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k),
                       saved_tensor_object(Ref<Node>::share(c->node), &saved[k]));
    }
    return tuple.release();
  });
}

// A context stands for its node, whose class isinstance() finds here.
PyObject* class_of_node(PyObject* self, void*) {
  return guarded([&] {
    const FunctionNode* node = as_context(self)->node;
    return Py_NewRef(reinterpret_cast<PyObject*>(node ? node_type(*node) : Py_TYPE(self)));
  });
}

// In backward only those on the way to what the run is for.
PyObject* needs_input_grad(PyObject* self, void*) {
  return guarded([&] {
    ContextObject* c = as_context(self);
    const Running* running = Running::innermost;
    if (!c->needs_input_grad) return none();
    if (!running || &running->node != c->node) return Py_NewRef(c->needs_input_grad);
    const auto n = PyTuple_GET_SIZE(c->needs_input_grad);
    PyRef tuple = checked(PyTuple_New(n));
    size_t edge = 0;
    for (Py_ssize_t k = 0; k < n; ++k) {
      const bool needed = PyTuple_GET_ITEM(c->needs_input_grad, k) == Py_True;
      const bool wanted = needed && is_wanted(running->wanted, edge);
      edge += c->node->is_tensor_input[static_cast<size_t>(k)];
      PyTuple_SET_ITEM(tuple.get(), k, Py_NewRef(wanted ? Py_True : Py_False));
    }
    return tuple.release();
  });
}

// The object that has what every node has: next_functions, hooks, metadata. NULL without an error once the graph is
// gone.
PyRef as_node(PyObject* self) {
  FunctionNode* node = as_context(self)->node;
  return node ? PyRef::steal(owning_node_object(Ref<Node>::share(node))) : PyRef();
}

// The context is its node: what it has not itself is the node's.
PyObject* get_context_attribute(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyObject *kind, *error, *trace;
  PyErr_Fetch(&kind, &error, &trace);
  found = guarded([&]() -> PyObject* {
    PyRef node = as_node(self);
    return node ? PyObject_GetAttr(node.get(), name) : nullptr;
  });
  const bool absent = !found && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_AttributeError));
  if (absent) {
    PyErr_Restore(kind, error, trace);
    return nullptr;
  }
  Py_XDECREF(kind), Py_XDECREF(error), Py_XDECREF(trace);
  return found;
}

PyObject* call_context(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    PyRef node = as_node(self);
    TS_CHECK(node, "grad_fn: expected a graph that is still there, got one that has been freed");
    return PyObject_Call(node.get(), args, kwargs);
  });
}

// An object that keeps the node, as the context does not.
PyObject* keeper(PyObject* self, PyObject*) {
  return guarded([&] {
    PyRef node = as_node(self);
    return node ? node.release() : none();
  });
}

PyMethodDef g_context_methods[] = {
    {"_keeper", keeper, METH_NOARGS, nullptr},
    {"save_for_backward", keep_arguments<&ContextObject::to_save>, METH_VARARGS,
     "save_for_backward(*tensors)\n--\n\nKeep tensors for backward."},
    {"save_for_forward", save_for_forward, METH_VARARGS,
     "save_for_forward(*tensors)\n--\n\nNote tensors for jvp, as saved_for_forward."},
    {"mark_dirty", keep_arguments<&ContextObject::dirty>, METH_VARARGS,
     "mark_dirty(*args)\n--\n\nSay which inputs forward modified in place."},
    {"mark_non_differentiable", keep_arguments<&ContextObject::non_differentiable>, METH_VARARGS,
     "mark_non_differentiable(*args)\n--\n\nSay which outputs have no gradient."},
    {"set_materialize_grads", set_materialize_grads, METH_O,
     "set_materialize_grads(value)\n--\n\nWhether absent gradients reach backward as zeros (the default) or None."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_context_properties[] = {
    {"saved_tensors", saved_tensors, nullptr, "The tensors given to save_for_backward.", nullptr},
    {"saved_variables", saved_variables, nullptr, "saved_tensors, as they were called; warns.", nullptr},
    {"__class__", class_of_node, nullptr, "The class of the node.", nullptr},
    {"_raw_saved_tensors", raw_saved_tensors, nullptr, "What is kept of them, before it is unpacked.", nullptr},
    {"needs_input_grad", needs_input_grad, nullptr,
     "Whether each input wants a gradient; in backward, whether this run wants it.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef g_context_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(ContextObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ContextObject, weak_references), READONLY, nullptr},
    {"to_save", T_OBJECT, offsetof(ContextObject, to_save), READONLY, nullptr},
    {"materialize_grads", T_BOOL, offsetof(ContextObject, materialize_grads), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

// --- backward ----------------------------------------------------------------------------------------------------

PyRef gradient_argument(const FunctionNode& node, size_t k, const Tensor& grad) {
  if (grad.defined()) return PyRef::steal(wrap(grad));
  const ResultMeta& m = node.metas[k];
  if (!as_context(node.context)->materialize_grads || m.dtype == DType::Undefined) return PyRef::borrow(Py_None);
  return PyRef::steal(wrap(ops::zeros(m.sizes, m.dtype, m.device)));
}

PyRef call_backward(const FunctionNode& node, std::span<Tensor> grads) {
  PyRef args = checked(PyTuple_New(static_cast<Py_ssize_t>(grads.size()) + 1));
  PyTuple_SET_ITEM(args.get(), 0, Py_NewRef(node.context));
  for (size_t k = 0; k < grads.size(); ++k)
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(k) + 1, gradient_argument(node, k, grads[k]).release());
  PyRef backward = checked(PyObject_GetAttrString(node.function, "backward"));
  PyRef result = checked(PyObject_Call(backward.get(), args.get(), nullptr));
  return PyTuple_Check(result.get()) ? result : checked(PyTuple_Pack(1, result.get()));
}

void FunctionNode::backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted_edges) {
  GilGuard gil;
  Running running(*this, wanted_edges);
  PyRef results = call_backward(*this, grads);
  auto given = static_cast<size_t>(PyTuple_GET_SIZE(results.get())), wanted = is_tensor_input.size();
  for (size_t k = wanted; k < given; ++k)
    TS_CHECK(PyTuple_GET_ITEM(results.get(), static_cast<Py_ssize_t>(k)) == Py_None, "function ", label,
             " returned an incorrect number of gradients (expected ", wanted, ", got ", given, ")");
  TS_CHECK(given >= wanted, "function ", label, " returned an incorrect number of gradients (expected ", wanted,
           ", got ", given, ")");
  size_t edge = 0;
  for (size_t k = 0; k < wanted; ++k) {
    PyObject* g = PyTuple_GET_ITEM(results.get(), static_cast<Py_ssize_t>(k));
    if (!is_tensor_input[k]) {
      TS_CHECK(g == Py_None, "function ", label, " returned a gradient different from None at position ", k + 1,
               ", but the corresponding forward input was not a Tensor");
      continue;
    }
    if (g != Py_None) {
      if (!is_tensor(g))
        raise(PyExc_TypeError,
              label + ": expected a Tensor or None as gradient " + std::to_string(k) + ", got " + type_name(g));
      out[edge] = tensor_of(g);
    }
    ++edge;
  }
}

// --- forward -----------------------------------------------------------------------------------------------------

// One class per name of node, made when first seen.
PyTypeObject* context_type(const std::string& label) {
  static std::map<std::string, PyTypeObject*> known;
  auto [it, fresh] = known.try_emplace(label, nullptr);
  if (it->second) return it->second;
  PyType_Slot slots[] = {{0, nullptr}};
  auto* full_name = new std::string("tesserack.autograd.function." + label); // kept for good, as the class is
  PyType_Spec spec = {full_name->c_str(), sizeof(ContextObject), 0, Py_TPFLAGS_DEFAULT, slots};
  PyRef bases = checked(PyTuple_Pack(1, ContextType));
  it->second = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpecWithBases(&spec, bases.get())).release());
  return it->second;
}

Ref<FunctionNode> make_node(PyObject* function) {
  auto node = Ref<FunctionNode>::adopt(new FunctionNode);
  // What the package itself writes so has the names of its other nodes.
  static PyObject* own_name = PyUnicode_InternFromString("_node_name");
  PyObject* own =
      PyType_Check(function) ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(function), own_name) : nullptr;
  PyRef name = own ? PyRef::borrow(own) : checked(PyObject_GetAttrString(function, "__name__"));
  node->label = to_utf8(name.get()) + (own ? "" : "Backward");
  node->function = Py_NewRef(function);
  PyTypeObject* type = context_type(node->label);
  PyRef context = checked(type->tp_alloc(type, 0));
  as_context(context.get())->node = node.get();
  as_context(context.get())->materialize_grads = 1;
  node->context = context.release();
  return node;
}

// Edges to the tensors among the arguments. True when some gradient is wanted.
bool connect(FunctionNode& node, PyObject* const* args, size_t n) {
  bool record = false;
  std::vector<Edge> edges;
  PyRef needs = checked(PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (size_t k = 0; k < n; ++k) {
    bool tensor = is_tensor(args[k]), wanted = tensor && grad_enabled() && requires_grad(impl_of(args[k]));
    node.is_tensor_input.push_back(tensor);
    if (tensor) edges.push_back(wanted ? gradient_edge(tensor_of(args[k])) : Edge());
    PyTuple_SET_ITEM(needs.get(), static_cast<Py_ssize_t>(k), Py_NewRef(wanted ? Py_True : Py_False));
    record = record || wanted;
  }
  node.resize_edges(edges.size());
  std::move(edges.begin(), edges.end(), node.edges().begin());
  as_context(node.context)->needs_input_grad = needs.release();
  return record;
}

PyRef tuple_of(PyObject* const* items, size_t n) {
  PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (size_t k = 0; k < n; ++k) PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), Py_NewRef(items[k]));
  return tuple;
}

// forward(ctx, *args), or forward(*args) followed by setup_context(ctx, inputs, output).
PyRef run_forward(FunctionNode& node, PyObject* const* args, size_t n, bool separate_setup) {
  GradMode off(false);
  PyRef forward = checked(PyObject_GetAttrString(node.function, "forward"));
  PyRef inputs = tuple_of(args, n);
  if (!separate_setup) {
    PyRef context = checked(PyTuple_Pack(1, node.context));
    PyRef all = checked(PySequence_Concat(context.get(), inputs.get()));
    return checked(PyObject_Call(forward.get(), all.get(), nullptr));
  }
  PyRef output = checked(PyObject_Call(forward.get(), inputs.get(), nullptr));
  PyRef setup = checked(PyObject_GetAttrString(node.function, "setup_context"));
  checked(PyObject_CallFunctionObjArgs(setup.get(), node.context, inputs.get(), output.get(), nullptr));
  return output;
}

bool listed(PyObject* tuple, PyObject* item) {
  for (Py_ssize_t k = 0; tuple && k < PyTuple_GET_SIZE(tuple); ++k)
    if (PyTuple_GET_ITEM(tuple, k) == item) return true;
  return false;
}
bool among(PyObject* const* args, size_t n, PyObject* item) { return std::find(args, args + n, item) != args + n; }

// An input returned as it is, or a view of one, stays a view: forbidden to write to, as tracking that would put another
// history in place of the function's. Forward did run without recording.
Tensor as_view_of_input(const Tensor& t) {
  Tensor out = make_view(t, t.sizes(), t.strides(), t->byte_offset);
  out->flags |= TensorImpl::kViewNoGrad;
  return out;
}

// An input handed through, of a class that takes calls: what view_as makes of it, which is of that class again.
PyRef handed_through(PyObject* o) {
  GradMode off(false);
  PyRef view = checked(PyObject_CallMethod(o, "view_as", "O", o));
  return is_tensor(view.get()) ? view : PyRef::borrow(o);
}

// One tensor that forward returned, as the user gets it: with its history.
PyRef finish_output(const Ref<FunctionNode>& node, PyObject* given, size_t k, bool is_input, bool record) {
  ContextObject* c = as_context(node->context);
  const bool dirty = listed(c->dirty, given), takes = takes_calls(given);
  const bool chosen = !listed(c->non_differentiable, given);
  PyRef held = takes && is_input && !dirty ? handed_through(given) : PyRef::borrow(given);
  PyObject* const o = held.get();
  is_input = is_input && o == given;
  const Tensor& t = tensor_of(o);
  const bool differentiable = chosen && is_differentiable(t.dtype());
  node->metas[k] = {Dims(t.sizes()), t.dtype(), t.device()};
  if (dirty && record && differentiable) {
    record_inplace(t, node, static_cast<uint32_t>(k));
    return PyRef::borrow(o);
  }
  if (!differentiable || !record) {
    // An input handed through is another tensor; what forward made is history-free already.
    return is_input && !dirty ? PyRef::steal(wrap(detach(t))) : PyRef::borrow(o);
  }
  // Of such a class the tensor itself, since another would be a plain one.
  const bool itself = takes && !is_input && (t->base || !requires_grad(t));
  if (itself && t->base) t.impl()->flags |= TensorImpl::kViewNoGrad;
  Tensor out = itself ? t : is_input || t->base ? as_view_of_input(t) : requires_grad(t) ? detach(t) : t;
  set_history(out, node, static_cast<uint32_t>(k));
  PyRef result = out.is(t) ? PyRef::borrow(o) : PyRef::steal(wrap(out));
  watch_all_for_cycles(); // the context may hold its own output, or what comes of it
  watch_for_cycles(result.get());
  return result;
}

// An input that forward hands through is saved as the input that it is: what comes out is another tensor.
void save_tensors(FunctionNode& node, PyObject* raw_outputs, PyObject* outputs, PyObject* const* args, size_t n) {
  PyObject* list = as_context(node.context)->to_save;
  for (Py_ssize_t k = 0; list && k < PyTuple_GET_SIZE(list); ++k) {
    PyObject* o = PyTuple_GET_ITEM(list, k);
    if (o == Py_None) {
      node.saved.emplace_back();
      continue;
    }
    TS_CHECK_TYPE(is_tensor(o), "save_for_backward can only save tensors, but argument ", k, " is of type ",
                  type_name(o));
    Py_ssize_t at = -1;
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(raw_outputs); ++j)
      if (PyTuple_GET_ITEM(raw_outputs, j) == o) at = j;
    if (at >= 0 && PyTuple_GET_ITEM(outputs, at) != o && among(args, n, o)) at = -1;
    bool own = at >= 0 && autograd_meta(tensor_of(PyTuple_GET_ITEM(outputs, at)).impl()) &&
               autograd_meta(tensor_of(PyTuple_GET_ITEM(outputs, at)).impl())->grad_fn.get() == &node;
    if (own)
      node.saved.emplace_back(tensor_of(PyTuple_GET_ITEM(outputs, at)), true, static_cast<uint32_t>(at));
    else
      node.saved.emplace_back(tensor_of(o), false);
  }
}

void check_dirty(PyObject* dirty, PyObject* outputs, PyObject* const* args, size_t n, bool record) {
  for (Py_ssize_t k = 0; dirty && k < PyTuple_GET_SIZE(dirty); ++k) {
    PyObject* o = PyTuple_GET_ITEM(dirty, k);
    TS_CHECK_TYPE(is_tensor(o), "mark_dirty can only mark tensors, but argument ", k, " is of type ", type_name(o));
    const Tensor& t = tensor_of(o);
    TS_CHECK(!(grad_enabled() && is_leaf(t) && requires_grad(t)),
             "a leaf Variable that requires grad is being used in an in-place operation.");
    TS_CHECK(!(grad_enabled() && is_view_of_leaf(t)),
             "a view of a leaf Variable that requires grad is being used in an in-place operation.");
    TS_CHECK(listed(outputs, o), "Some elements marked as dirty during the forward method were not returned as output. "
                                 "The inputs that are modified inplace must all be outputs of the Function.");
    TS_CHECK(!(record && t->base && PyTuple_GET_SIZE(outputs) > 1),
             "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
             "more than one Tensor: the view's base would need the history of all of them. Return one, or clone() the "
             "view first.");
    if (!among(args, n, o))
      warn("Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to "
           "pass it to mark_dirty().");
  }
}

PyRef finish_outputs(const Ref<FunctionNode>& node, PyObject* raw, PyObject* const* args, size_t n, bool record) {
  Py_ssize_t count = PyTuple_GET_SIZE(raw);
  node->metas.resize(static_cast<size_t>(count));
  PyRef outputs = checked(PyTuple_New(count));
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject* o = PyTuple_GET_ITEM(raw, k);
    Py_ssize_t same = 0; // a tensor returned twice is one result, whose gradient comes to its last place
    while (same < k && PyTuple_GET_ITEM(raw, same) != o) ++same;
    if (same < k && is_tensor(o)) {
      PyObject* made = PyTuple_GET_ITEM(outputs.get(), same);
      const Tensor& t = tensor_of(made);
      AutogradMeta* meta = autograd_meta(t.impl());
      node->metas[static_cast<size_t>(k)] = node->metas[static_cast<size_t>(same)];
      if (meta && meta->grad_fn.get() == node.get()) set_history(t, node, static_cast<uint32_t>(k));
      PyTuple_SET_ITEM(outputs.get(), k, Py_NewRef(made));
      continue;
    }
    PyRef done =
        is_tensor(o) ? finish_output(node, o, static_cast<size_t>(k), among(args, n, o), record) : PyRef::borrow(o);
    PyTuple_SET_ITEM(outputs.get(), k, done.release());
  }
  return outputs;
}

// _function_apply(function, separate_setup, *args)
PyObject* function_node_apply(PyObject*, PyObject* const* all, Py_ssize_t count) {
  return guarded([&] {
    if (count < 2) raise(PyExc_TypeError, "_function_apply: expected the function and a flag");
    PyObject* const* args = all + 2;
    auto n = static_cast<size_t>(count - 2);
    note_function(args, n);
    Ref<FunctionNode> node = make_node(all[0]);
    bool record = connect(*node, args, n);
    PyRef result = run_forward(*node, args, n, all[1] == Py_True);
    bool single = !PyTuple_Check(result.get());
    PyRef raw = single ? checked(PyTuple_Pack(1, result.get())) : result;
    check_dirty(as_context(node->context)->dirty, raw.get(), args, n, record);
    PyRef outputs = finish_outputs(node, raw.get(), args, n, record);
    if (record) save_tensors(*node, raw.get(), outputs.get(), args, n);
    Py_CLEAR(as_context(node->context)->to_save);
    Py_CLEAR(as_context(node->context)->dirty);
    Py_CLEAR(as_context(node->context)->non_differentiable);
    return single ? Py_NewRef(PyTuple_GET_ITEM(outputs.get(), 0)) : outputs.release();
  });
}

// _node_class(name): what the nodes of functions of that name are
PyObject* node_class(PyObject*, PyObject* name) {
  return guarded([&] { return Py_NewRef(reinterpret_cast<PyObject*>(context_type(to_utf8(name) + "Backward"))); });
}

PyMethodDef g_function_node_functions[] = {
    {"_node_class", node_class, METH_O, nullptr},
    {"_function_apply", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function_node_apply)), METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

PyObject* function_context(Node& node) {
  auto* f = dynamic_cast<FunctionNode*>(&node);
  return f ? f->context : nullptr;
}
bool is_function_context(PyObject* o) { return PyType_IsSubtype(Py_TYPE(o), ContextType); }
Node* node_of_context(PyObject* context) { return as_context(context)->node; }

void init_function_node(PyObject* module) {
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(context_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(context_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(context_clear)},
      {Py_tp_getattro, reinterpret_cast<void*>(get_context_attribute)},
      {Py_tp_call, reinterpret_cast<void*>(call_context)},
      {Py_tp_methods, g_context_methods},
      {Py_tp_getset, g_context_properties},
      {Py_tp_members, g_context_members},
      {Py_tp_doc, const_cast<char*>("What the static methods of an autograd.Function share about one call.")},
      {0, nullptr}};
  static PyType_Spec spec = {"tesserack.autograd.function.FunctionCtx", sizeof(ContextObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots};
  ContextType = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)).release());
  add_object(module, "FunctionCtx", reinterpret_cast<PyObject*>(ContextType));
  checked_status(PyModule_AddFunctions(module, g_function_node_functions));
}

} // namespace ts::py
