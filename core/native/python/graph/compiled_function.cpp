#include "python/graph/compiled_function.h"
#include "python/tensor/tensor_object.h"
#include <algorithm>

namespace ts::py_runtime {

using ts::py::checked;
using ts::py::PyRef;

void Replays::add(const std::string& signature, Entry entry) {
  List& there = entries_[signature];
  std::erase_if(there, [&](const auto& e) { return e->place == entry.place; });
  there.insert(there.begin(),
               std::make_shared<const Entry>(std::move(entry))); // what was needed last is looked at first
}

const Replays::List* Replays::with_key(std::string_view key) const {
  if (last_ && last_->first == key) return &last_->second;
  auto found = entries_.find(std::string(key));
  if (found == entries_.end()) return nullptr;
  last_ = &*found;
  return &found->second;
}

std::shared_ptr<const Replays::Entry> Replays::holding(const List& list, const Arguments& given) {
  for (size_t at = 0; at < list.size(); ++at)
    if (std::shared_ptr<const Entry> entry = list[at]; // comparing may collect garbage: that runs anything
        entry->guard->holds(given.tensors))
      return entry;
  return nullptr;
}

std::shared_ptr<const Replays::Entry> Replays::of_values(const List& list, std::shared_ptr<const Entry> found,
                                                         const Arguments& given, std::span<const Tensor> in) {
  Program::Check now;
  try {
    now = found->program->read_first(in);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Python || error.kind() == ErrorKind::Interrupted) throw;
    return found; // which fails there, too
  }
  if (now == found->program->checks[0]) return ++found->program->quiet, found;
  found->program->quiet = 0;
  for (size_t at = 0; at < list.size(); ++at)
    if (std::shared_ptr<const Entry> entry = list[at]; entry->program && !entry->program->checks.empty() &&
                                                       entry->program->checks[0] == now &&
                                                       entry->guard->holds(given.tensors))
      return entry;
  return found;
}

namespace {

bool g_quick = true;

struct Scratch { // which keeps its memory
  Arguments given;
  std::vector<Tensor> in, out;
};

struct CompiledObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject *dict, *weakrefs, *function, *run, *failed;
  std::shared_ptr<const Replays>* replays;
  Scratch* spare;
  bool plain;
};

CompiledObject* as_compiled(PyObject* o) { return reinterpret_cast<CompiledObject*>(o); }

struct Call {
  PyObject* const* args;
  size_t n;
  PyObject* names;
  size_t n_names() const { return names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0; }

  PyRef tuple() const {
    PyRef made = checked(PyTuple_New(static_cast<Py_ssize_t>(n)));
    for (size_t k = 0; k < n; ++k) PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(k), Py_NewRef(args[k]));
    return made;
  }
  PyRef dict() const {
    PyRef made = checked(PyDict_New());
    for (size_t k = 0; k < n_names(); ++k)
      ts::py::checked_status(
          PyDict_SetItem(made.get(), PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(k)), args[n + k]));
    return made;
  }
};

// Of the graph that fits; NULL, without an error, where none is at hand.
std::shared_ptr<const Replays::Entry> find(const Replays& replays, Scratch& scratch, const Call& call) {
  Arguments& given = scratch.given;
  if (replays.empty() || !given.read(call.args, call.n, call.names, call.n_names())) return nullptr;
  const Replays::List* there = replays.with_key(given.key.view());
  const bool all = there && std::ranges::all_of(*there, [](const auto& e) { return e->program != nullptr; });
  std::shared_ptr<const Replays::Entry> found = all ? Replays::holding(*there, given) : nullptr;
  if (!found) return nullptr;
  for (PyObject* t : given.tensors) scratch.in.push_back(ts::py::tensor_of(t));
  return found->program->asks_first() ? Replays::of_values(*there, std::move(found), given, scratch.in) : found;
}

// What a graph's error comes to: the program's own, or a result all the same.
PyObject* after_error(CompiledObject* self, int place, const Call& call) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  PyObject* result = ts::py::guarded([&]() -> PyObject* {
    return PyObject_CallFunction(self->failed, "iOOO", place, value, call.tuple().get(), call.dict().get());
  });
  if (result != Py_NotImplemented) {
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    return result;
  }
  Py_DECREF(result);
  PyErr_Restore(type, value, trace);
  return nullptr;
}

// NotImplemented where the package is to look, or to run the call.
PyObject* run_quickly(CompiledObject* self, const Call& call) {
  std::unique_ptr<Scratch> scratch(std::exchange(self->spare, nullptr));
  if (!scratch) scratch = std::make_unique<Scratch>();
  std::shared_ptr<const Replays::Entry> found;
  PyObject* result = ts::py::guarded([&]() -> PyObject* {
    const std::shared_ptr<const Replays> replays = *self->replays;
    found = find(*replays, *scratch, call);
    if (!found) return Py_NewRef(Py_NotImplemented);
    found->program->run(scratch->in, scratch->out);
    return found->program->result(scratch->given.tensors, scratch->out);
  });
  scratch->given.clear();
  scratch->in.clear();
  scratch->out.clear();
  delete std::exchange(self->spare, scratch.release()); // of a call within this one
  return result || !found ? result : after_error(self, found->place, call);
}

PyObject* call_compiled(PyObject* o, PyObject* const* args, size_t flags, PyObject* names) {
  CompiledObject* self = as_compiled(o);
  if (self->plain) return PyObject_Vectorcall(self->function, args, flags, names);
  const Call call{args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names};
  if (g_quick) {
    PyObject* result = run_quickly(self, call);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  return ts::py::guarded([&]() -> PyObject* {
    const PyRef run = PyRef::borrow(self->run), tuple = call.tuple(), dict = call.dict();
    PyObject* given[] = {tuple.get(), dict.get()};
    return PyObject_Vectorcall(run.get(), given, 2, nullptr);
  });
}

PyObject* new_compiled(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *run, *failed;
  if (!PyArg_ParseTuple(args, "OOO:_CompiledFunction", &function, &run, &failed)) return nullptr;
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) return nullptr;
  CompiledObject* self = as_compiled(o);
  self->call = call_compiled;
  self->function = Py_NewRef(function);
  self->run = Py_NewRef(run);
  self->failed = Py_NewRef(failed);
  self->replays = new std::shared_ptr<const Replays>();
  self->plain = true;
  return o;
}

int traverse_compiled(PyObject* o, visitproc visit, void* arg) {
  const CompiledObject* self = as_compiled(o);
  for (PyObject* part : {self->dict, self->function, self->run, self->failed}) Py_VISIT(part);
  return 0;
}

int clear_compiled(PyObject* o) {
  CompiledObject* self = as_compiled(o);
  for (PyObject** part : {&self->run, &self->failed}) { // as long as it can be called it can call
    PyObject* gone = std::exchange(*part, Py_NewRef(Py_None));
    Py_XDECREF(gone);
  }
  Py_CLEAR(self->dict);
  return 0;
}

void free_compiled(PyObject* o) {
  CompiledObject* self = as_compiled(o);
  PyObject_GC_UnTrack(o);
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->function);
  Py_CLEAR(self->run);
  Py_CLEAR(self->failed);
  delete self->replays;
  delete self->spare;
  Py_TYPE(o)->tp_free(o);
}

PyObject* bind_compiled(PyObject* self, PyObject* owner, PyObject*) {
  return owner && owner != Py_None ? PyMethod_New(self, owner) : Py_NewRef(self);
}

// What it has not itself the function has: its code, and defaults.
PyObject* attribute_of_compiled(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(as_compiled(self)->function, name);
}

PyObject* show_compiled(PyObject* self) { return PyObject_Repr(as_compiled(self)->function); }

// By its name, as a function.
PyObject* reduce_compiled(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMethodDef g_methods[] = {{"__reduce__", reduce_compiled, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef g_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                          {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject make_type() {
  PyTypeObject t = ts::py::blank_type("tesserack._native._CompiledFunction", sizeof(CompiledObject), nullptr);
  t.tp_flags |= Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  t.tp_vectorcall_offset = offsetof(CompiledObject, call);
  t.tp_call = PyVectorcall_Call;
  t.tp_dictoffset = offsetof(CompiledObject, dict);
  t.tp_weaklistoffset = offsetof(CompiledObject, weakrefs);
  t.tp_new = new_compiled;
  t.tp_dealloc = free_compiled;
  t.tp_traverse = traverse_compiled;
  t.tp_clear = clear_compiled;
  t.tp_descr_get = bind_compiled;
  t.tp_getattro = attribute_of_compiled;
  t.tp_repr = show_compiled;
  t.tp_methods = g_methods;
  t.tp_getset = g_getset;
  return t;
}
PyTypeObject g_type = make_type();

} // namespace

void init_compiled_function(PyObject* module) {
  ts::py::checked_status(PyType_Ready(&g_type));
  ts::py::add_object(module, "_CompiledFunction", reinterpret_cast<PyObject*>(&g_type));
}

void use_replays(PyObject* compiled, std::shared_ptr<const Replays> replays) {
  TS_CHECK_TYPE(Py_IS_TYPE(compiled, &g_type), "compile: expected a compiled function");
  CompiledObject* self = as_compiled(compiled);
  self->plain = !replays;
  self->replays->swap(replays);
}

void allow_quick(bool on) { g_quick = on; }

} // namespace ts::py_runtime
