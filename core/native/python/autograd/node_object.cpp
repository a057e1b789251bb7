#include "python/autograd/node_object.h"
#include "autograd/shown_edges.h"
#include "dispatch/schema.h"
#include "ops/shape/basic_index.h"
#include "python/autograd/function_node.h"
#include "python/autograd/hook_handle.h"
#include "python/autograd/saved_tensor_object.h"
#include "python/calls/python_dispatch.h"
#include "python/cycles.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include <map>

namespace ts::py {
namespace {

struct NodeObject {
  PyObject_HEAD Ref<Node> node;
};

PyTypeObject* g_base = nullptr;

Node& value(PyObject* self) { return *reinterpret_cast<NodeObject*>(self)->node; }

bool is_sole_owner(PyObject* self) { return value(self).refs.load(std::memory_order_acquire) == 1; }

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return is_sole_owner(self) ? visit_node(value(self), visit, arg) : 0;
}

int clear(PyObject* self) {
  if (is_sole_owner(self)) clear_node(value(self));
  return 0;
}

void node_object_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* o = reinterpret_cast<NodeObject*>(self);
  o->node->wrapper = nullptr;
  o->node.~Ref<Node>();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* repr(PyObject* self) { return PyUnicode_FromFormat("<%s object at %p>", Py_TYPE(self)->tp_name, self); }

PyObject* get_name(PyObject* self, PyObject*) {
  return guarded([&] {
    std::string name = value(self).name();
    bool qualified = name == "AccumulateGrad" || name == "CopySlices"; // as PyTorch, whose C++ classes these are
    return to_python(qualified ? "torch::autograd::" + name : name).release();
  });
}

PyObject* get_sequence(PyObject* self, PyObject*) {
  return guarded([&] { return PyLong_FromUnsignedLongLong(value(self).sequence); });
}

PyObject* next_functions(PyObject* self, void*) {
  return guarded([&] {
    std::span<Edge> edges = value(self).edges();
    std::vector<int32_t> shown;
    if (auto* node = dynamic_cast<ShowsEdges*>(&value(self)))
      shown = node->shown_edges();
    else
      for (size_t k = 0; k < edges.size(); ++k) shown.push_back(static_cast<int32_t>(k));
    PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(shown.size())));
    for (size_t k = 0; k < shown.size(); ++k) {
      const Edge edge = shown[k] < 0 ? Edge() : edges[static_cast<size_t>(shown[k])];
      PyRef pair = checked(Py_BuildValue("(NI)", node_object(edge.node), edge.input));
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), pair.release());
    }
    return tuple.release();
  });
}

// A dictionary of the node's own: "traceback_" and "parent_" are what anomaly mode noted.
PyObject* metadata(PyObject* self, void*) {
  return guarded([&] {
    Node& node = value(self);
    if (!node.metadata) {
      PyRef dict = checked(PyDict_New());
      if (node.location) {
        PyRef text = to_python(*node.location);
        PyRef lines = checked(PyObject_CallMethod(text.get(), "splitlines", "O", Py_True));
        checked_status(PyDict_SetItemString(dict.get(), "traceback_", lines.get()));
      }
      node.metadata = hold(dict.get());
    }
    auto* dict = static_cast<PyObject*>(node.metadata.get());
    if (node.parent && !PyDict_GetItemString(dict, "parent_")) {
      PyRef parent = PyRef::steal(node_object(node.parent));
      checked_status(PyDict_SetItemString(dict, "parent_", parent.get()));
    }
    return Py_NewRef(dict);
  });
}

PyRef grads_tuple(const std::vector<Tensor>& grads) {
  PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(grads.size())));
  for (size_t k = 0; k < grads.size(); ++k) PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), wrap(grads[k]));
  return tuple;
}

PyObject* variable(PyObject* self, void*) {
  return guarded([&] {
    Tensor* t = value(self).accumulates_into();
    if (!t) raise(PyExc_AttributeError, "'" + value(self).name() + "' object has no attribute 'variable'");
    return wrap(*t);
  });
}

constexpr std::string_view kSaved = "_saved_", kRawSaved = "_raw_saved_";

PyObject* saved_object(const SavedPart& part) {
  if (part.value) {
    PyRef found = argument_object(*part.type, *part.value);
    return PyList_Check(found.get()) ? checked(PyList_AsTuple(found.get())).release() : found.release();
  }
  if (!part.tensor) {
    PyRef sizes = PyRef::steal(size_object(part.sizes));
    return checked(PySequence_Tuple(sizes.get())).release();
  }
  if (!part.list) return wrap(part.tensor(0));
  PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(part.count)));
  for (size_t j = 0; j < part.count; ++j)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(j), wrap(part.tensor(j)));
  return tuple.release();
}

PyObject* raw_object(Node& node, const SavedPart& part) {
  auto one = [&](size_t j) {
    SavedTensor* saved = part.raw(j);
    if (saved) check_not_freed(saved->released());
    return saved ? saved_tensor_object(Ref<Node>::share(&node), saved) : none();
  };
  if (!part.list) return one(0);
  PyRef tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(part.count)));
  for (size_t j = 0; j < part.count; ++j) PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(j), one(j));
  return tuple.release();
}

// Names that PyTorch has for what is kept, where ours are those of another operator's arguments.
struct SavedName {
  std::string_view node, name, own;
};
constexpr SavedName kSavedNames[] = {{"MmBackward0", "mat2", "other"},
                                     {"MvBackward0", "vec", "other"},
                                     {"DotBackward0", "tensor", "other"},
                                     {"SplitWithSizesBackward0", "split_sizes", "split_size"},
                                     {"EmbeddingBackward0", "indices", "input"}};

std::string_view own_name(const Node& node, std::string_view name) {
  for (const SavedName& known : kSavedNames)
    if (known.name == name && node.name() == known.node) return known.own;
  return name;
}

// The last of the views that indexing stands for, as PyTorch's node of that view tells of it; whole slices are none.
PyObject* of_last_view(const SavedPart& items, IntSpan sizes, std::string_view name) {
  using namespace basic_index_item;
  PyRef numbers = checked(PySequence_Tuple(argument_object(*items.type, *items.value).get()));
  auto number = [&](Py_ssize_t k) { return PyLong_AsLongLong(PyTuple_GET_ITEM(numbers.get(), k)); };
  long long dim = 0, kind = -1, at[4] = {};
  size_t of = 0; // of the dims that are indexed
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(numbers.get()); k += 4) {
    const long long what = number(k), first = number(k + 1), length = number(k + 2), step = number(k + 3);
    const bool whole =
        what == kSlice && !first && length == sizes[of] && step == 1 && PyTuple_GET_SIZE(numbers.get()) > 4;
    if (!whole) {
      kind = what;
      std::tie(at[0], at[1], at[2], at[3]) = std::tuple(dim, first, first + length * step, step);
    }
    of += what != kNewAxis;
    dim += what != kSelect;
  }
  constexpr std::string_view kOfSlice[] = {"dim", "start", "end", "step"}, kOfSelect[] = {"dim", "index"};
  const std::span<const std::string_view> names = kind == kSlice    ? std::span<const std::string_view>(kOfSlice)
                                                  : kind == kSelect ? std::span<const std::string_view>(kOfSelect)
                                                                    : std::span(kOfSlice, kind == kNewAxis);
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? nullptr : checked(PyLong_FromLongLong(at[found - names.begin()])).release();
}

PyObject* of_index(std::span<const SavedPart> parts, std::string_view name) {
  const SavedPart *items = nullptr, *input = nullptr;
  for (const SavedPart& part : parts) {
    if (part.name == "items" && part.value) items = &part;
    if (part.name == "self_sym_sizes") input = &part;
  }
  return items && input ? of_last_view(*items, input->sizes, name) : nullptr;
}

// What the node keeps, as "_saved_" or "_raw_saved_" and the name of an argument or result; NULL without an error if it
// has none such.
PyObject* saved_attribute(Node& node, std::string_view name) {
  const bool raw = name.starts_with(kRawSaved);
  if (!raw && !name.starts_with(kSaved)) return nullptr;
  name.remove_prefix(raw ? kRawSaved.size() : kSaved.size());
  name = own_name(node, name);
  const std::vector<SavedPart> parts = node.saved_parts();
  for (const SavedPart& part : parts)
    if (part.name == name && (!raw || part.raw)) return raw ? raw_object(node, part) : saved_object(part);
  return raw ? nullptr : of_index(parts, name);
}

PyObject* directory(PyObject* self, PyObject*) {
  return guarded([&] {
    PyRef type = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__"));
    PyRef names = checked(PyObject_CallOneArg(type.get(), self));
    const std::vector<SavedPart> parts = value(self).saved_parts();
    auto add = [&](std::string_view prefix, std::string_view name) {
      checked_status(PyList_Append(names.get(), to_python(std::string(prefix).append(name)).get()));
    };
    for (std::string_view name : {"dim", "start", "end", "step", "index"})
      if (PyRef::steal(of_index(parts, name))) add(kSaved, name);
    for (const SavedPart& part : parts) {
      std::string_view shown = part.name;
      for (const SavedName& known : kSavedNames)
        if (known.own == part.name && value(self).name() == known.node) shown = known.name;
      for (std::string_view prefix : {kSaved, kRawSaved}) {
        if (prefix == kRawSaved && !part.raw) continue;
        add(prefix, part.name);
        if (shown != part.name) add(prefix, shown);
      }
    }
    return names.release();
  });
}

// What is kept of the call, too.
PyObject* get_attribute(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  if (const char* text = PyUnicode_AsUTF8(name)) {
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    found = guarded([&] { return saved_attribute(value(self), text); });
    if (found || PyErr_Occurred()) {
      Py_XDECREF(kind), Py_XDECREF(error), Py_XDECREF(trace);
      return found;
    }
    PyErr_Restore(kind, error, trace);
  }
  return nullptr;
}

// The context of a custom function has a dictionary; other nodes have nowhere to keep an attribute.
int set_attribute(PyObject* self, PyObject* name, PyObject* given) {
  PyObject* context = function_context(value(self));
  return context ? PyObject_SetAttr(context, name, given) : PyObject_GenericSetAttr(self, name, given);
}

// node(*gradients of its results): the gradients for its edges, one alone as it is, without hooks.
PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    Node& node = value(self);
    const auto n = static_cast<size_t>(PyTuple_GET_SIZE(args));
    if (kwargs && PyDict_GET_SIZE(kwargs)) raise(PyExc_TypeError, node.name() + ": takes no keyword arguments");
    if (n != node.num_results())
      raise(PyExc_TypeError,
            node.name() + ": expected " + std::to_string(node.num_results()) + " gradients, got " + std::to_string(n));
    std::vector<Tensor> grads(n), out(node.edges().size());
    for (size_t k = 0; k < n; ++k)
      if (PyObject* g = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(k)); g != Py_None)
        grads[k] = expect_tensor(g, "a gradient");
    node.backward(grads, out, ~EdgeMask{0});
    return out.size() == 1 ? wrap(out[0]) : grads_tuple(out).release();
  });
}

// --- hooks -------------------------------------------------------------------------------------------------------

// A hook's answer: None leaves the gradients, a tensor or a tuple replaces them.
void replace_grads(std::vector<Tensor>& grads, PyObject* answer, const char* what) {
  if (answer == Py_None) return;
  PyRef one = PyTuple_Check(answer) ? PyRef::borrow(answer) : checked(PyTuple_Pack(1, answer));
  TS_CHECK(static_cast<size_t>(PyTuple_GET_SIZE(one.get())) == grads.size(), what,
           ": hook returned an incorrect number of values (expected ", grads.size(), ", got ",
           PyTuple_GET_SIZE(one.get()), ")");
  for (size_t k = 0; k < grads.size(); ++k) {
    PyObject* g = PyTuple_GET_ITEM(one.get(), static_cast<Py_ssize_t>(k));
    grads[k] = g == Py_None ? Tensor() : expect_tensor(g, what);
  }
}

PyObject* register_hook(PyObject* self, PyObject* fn) {
  return guarded([&] {
    auto callable = hold(fn);
    watch_all_for_cycles();
    PostHook call = [callable](std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
      GilGuard gil;
      PyRef a = grads_tuple(inputs), b = grads_tuple(outputs);
      replace_grads(inputs, checked(PyObject_CallFunctionObjArgs(callable.get(), a.get(), b.get(), nullptr)).get(),
                    "register_hook");
    };
    NodeHooks& hooks = value(self).make_hooks();
    return hook_remover(add_hook(hooks, hooks.post, 0, std::move(call), callable));
  });
}

PyObject* register_prehook(PyObject* self, PyObject* fn) {
  return guarded([&] {
    auto callable = hold(fn);
    watch_all_for_cycles();
    GradsHook call = [callable](std::vector<Tensor>& grads) {
      GilGuard gil;
      PyRef a = grads_tuple(grads);
      replace_grads(grads, checked(PyObject_CallFunctionObjArgs(callable.get(), a.get(), nullptr)).get(),
                    "register_prehook");
    };
    NodeHooks& hooks = value(self).make_hooks();
    return hook_remover(add_hook(hooks, hooks.pre, 0, std::move(call), callable));
  });
}

PyMethodDef g_node_object_methods[] = {
    {"name", get_name, METH_NOARGS, "name()\n--\n\nThe node's name."},
    {"_sequence_nr", get_sequence, METH_NOARGS, "_sequence_nr()\n--\n\nThe order of recording."},
    {"__dir__", directory, METH_NOARGS, nullptr},
    {"_register_hook", register_hook, METH_O, nullptr},
    {"_register_prehook", register_prehook, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_node_object_properties[] = {
    {"next_functions", next_functions, nullptr, "The nodes that receive this node's gradients, with result numbers.",
     nullptr},
    {"metadata", metadata, nullptr, "A dictionary for the user.", nullptr},
    {"variable", variable, nullptr, "The leaf an AccumulateGrad node adds to.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject* make_base() {
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(node_object_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {Py_tp_setattro, reinterpret_cast<void*>(set_attribute)},
      {Py_tp_call, reinterpret_cast<void*>(call)},
      {Py_tp_repr, reinterpret_cast<void*>(repr)},
      {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
      {Py_tp_methods, g_node_object_methods},
      {Py_tp_getset, g_node_object_properties},
      {Py_tp_doc,
       const_cast<char*>("A recorded operation: what turns gradients of its results into gradients of its inputs.")},
      {0, nullptr}};
  static PyType_Spec spec = {
      "tesserack.autograd.graph.Node", sizeof(NodeObject), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)).release());
}

// One class per name of node, made when first seen.
PyTypeObject* type_named(const std::string& node_name) {
  static std::map<std::string, PyTypeObject*> known;
  auto [it, fresh] = known.try_emplace(node_name, nullptr);
  if (it->second) return it->second;
  PyType_Slot slots[] = {{0, nullptr}};
  // Kept for good, as the class is.
  auto* full_name = new std::string("tesserack.autograd." + node_name);
  PyType_Spec spec = {full_name->c_str(), sizeof(NodeObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  PyRef bases = checked(PyTuple_Pack(1, g_base));
  PyRef type = checked(PyType_FromSpecWithBases(&spec, bases.get()));
  it->second = reinterpret_cast<PyTypeObject*>(type.release());
  it->second->tp_name = it->first.c_str(); // as messages show it
  return it->second;
}

} // namespace

PyObject* node_object(Ref<Node> node) {
  if (!node) return none();
  if (PyObject* context = function_context(*node)) return Py_NewRef(context);
  return owning_node_object(std::move(node));
}

PyObject* owning_node_object(Ref<Node> node) {
  if (node->wrapper) return Py_NewRef(static_cast<PyObject*>(node->wrapper));
  PyTypeObject* type = type_named(node->name());
  PyObject* self = checked(type->tp_alloc(type, 0)).release();
  auto* o = reinterpret_cast<NodeObject*>(self);
  new (&o->node) Ref<Node>(std::move(node));
  o->node->wrapper = self;
  return self;
}

PyTypeObject* node_type(const Node& node) { return type_named(node.name()); }

Node* node_of(PyObject* o) {
  if (is_function_context(o)) return node_of_context(o);
  return PyType_IsSubtype(Py_TYPE(o), g_base) ? &value(o) : nullptr;
}

void init_node_type(PyObject* module) {
  g_base = make_base();
  add_object(module, "Node", reinterpret_cast<PyObject*>(g_base));
}

} // namespace ts::py
