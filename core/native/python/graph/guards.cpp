// What compiled functions depend on, compared in a fraction of the time that Python takes for it: the arguments of a
// call as bytes, and whether everything else that was read is what it was.
//
// Objects are compared by identity, and are held meanwhile, so that none takes the place of another. What is unequal
// here may be equal all the same, as a float that was computed anew is: then the package compares values.
#include "autograd/meta.h"
#include "dispatch/operator.h"
#include "extend/autocast.h"
#include "python/calls/overrides.h"
#include "python/common.h"
#include "python/graph/runner.h"
#include "python/tensor/plain_classes.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "tensor/sparse.h"
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <pybind11/pybind11.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace pb = pybind11;

namespace ts::py_runtime {

void define_existing(pb::module_& m); // existing.cpp

namespace {

using ts::py::checked;
using ts::py::PyRef;

// Bytes that are put together anew for every call, in memory that stays.
class Key {
public:
  std::string_view view() const { return {bytes_.data(), size_}; }
  void clear() { size_ = 0; }
  template <class T> void put(const T& value) {
    if (size_ + sizeof value > bytes_.size()) grow(sizeof value);
    std::memcpy(bytes_.data() + size_, &value, sizeof value);
    size_ += sizeof value;
  }
  void put_text(std::string_view text) {
    if (size_ + text.size() > bytes_.size()) grow(text.size());
    std::memmove(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }

private:
  std::vector<char> bytes_;
  size_t size_ = 0;
  [[gnu::noinline]] void grow(size_t more) { bytes_.resize(2 * (size_ + more) + 256); }
};

bool has_attributes(PyObject* tensor) {
  PyObject* held = ts::py::as_object(tensor)->dict;
  return held && PyDict_GET_SIZE(held);
}

// What a tensor is like, but not which one it is, nor its values.
struct Likeness {
  PyTypeObject* type = nullptr;
  KeySet keys = 0;
  Device device;
  DType dtype = DType::Undefined;
  uint8_t ndim = 0, bits = 0;

  // False for a tensor that cannot be told so.
  bool read(PyObject* o) {
    const Tensor& t = ts::py::tensor_of(o);
    type = Py_TYPE(o), keys = t->keys, device = t->device, dtype = t->dtype, ndim = t->ndim;
    bits = static_cast<uint8_t>((requires_grad(t) ? 1 : 0) | (t->has(TensorImpl::kInference) ? 2 : 0));
    return !t->payload && ts::py::is_known_tensor(o);
  }
  bool operator==(const Likeness&) const = default;
};

bool put_tensor(Key& out, PyObject* o) {
  Likeness like;
  if (!like.read(o)) return false;
  out.put(like.type);
  out.put(like.keys);
  out.put(like.device);
  out.put(like.dtype);
  out.put(like.ndim);
  out.put(like.bits);
  const TensorImpl* t = ts::py::impl_of(o);
  for (const int64_t* dims : {t->sizes_data(), t->strides_data()})
    for (uint8_t d = 0; d < t->ndim; ++d) out.put(dims[d]);
  return true;
}

// --- arguments -------------------------------------------------------------------------------------------------------

// The arguments of a call taken apart.
struct Arguments {
  Key key;
  std::vector<PyObject*> tensors; // each once

  bool add(PyObject* o, int depth) {
    if (ts::py::is_tensor(o)) {
      auto at = std::find(tensors.begin(), tensors.end(), o);
      key.put('T');
      key.put(static_cast<int32_t>(at - tensors.begin()));
      if (at != tensors.end()) return true;
      tensors.push_back(o);
      return !has_attributes(o) && put_tensor(key, o);
    }
    if (o == Py_None || o == Py_True || o == Py_False || o == Py_Ellipsis || ts::py::is_dtype(o)) {
      key.put('o'); // these live for ever
      key.put(o);
      return true;
    }
    if (PyLong_CheckExact(o)) {
      int overflow = 0;
      long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
      key.put('i');
      key.put(i);
      return !overflow;
    }
    if (PyFloat_CheckExact(o)) {
      key.put('f');
      key.put(PyFloat_AS_DOUBLE(o));
      return true;
    }
    if (PyUnicode_CheckExact(o)) {
      Py_ssize_t n = 0;
      const char* text = PyUnicode_AsUTF8AndSize(o, &n);
      if (!text) return PyErr_Clear(), false;
      key.put('s');
      key.put(n);
      key.put_text({text, static_cast<size_t>(n)});
      return true;
    }
    return depth < 16 && add_container(o, depth + 1);
  }

  bool add_container(PyObject* o, int depth) {
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
      Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      key.put(PyList_CheckExact(o) ? 'l' : 't');
      key.put(n);
      for (Py_ssize_t k = 0; k < n; ++k)
        if (!add(PySequence_Fast_GET_ITEM(o, k), depth)) return false;
      return true;
    }
    if (!PyDict_CheckExact(o)) return false;
    key.put('d');
    key.put(PyDict_GET_SIZE(o));
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(o, &at, &name, &value);)
      if (!PyUnicode_CheckExact(name) || !add(name, depth) || !add(value, depth)) return false;
    return true;
  }
};

// Modes and regions see a thread's calls in ways of their own: the package asks about these.
constexpr KeySet kSpecial =
    key_bit(key::Python) | key_bit(key::Batching) | key_bit(key::Tracer) | key_bit(key::Leaf) | key_bit(key::UserMode);

// False for arguments that are not plain, or where the thread is in a special state.
bool read_call(Arguments& found, PyObject* args, PyObject* kwargs) {
  const ThreadState& state = thread_state();
  if ((state.include & kSpecial) || ts::py::override_modes()) return false;
  found.key.put(state.include);
  found.key.put(state.exclude);
  if (state.include & key_bit(key::Autocast)) {
    std::string regions;
    describe_autocast(regions);
    found.key.put_text(regions);
  }
  found.key.put(static_cast<uint8_t>(state.inference | state.anomaly << 1));
  found.key.put(default_dtype());
  found.key.put(default_device());
  return found.add(args, 0) && (!kwargs || found.add(kwargs, 0));
}

// --- everything else -------------------------------------------------------------------------------------------------

enum class Kind : uint8_t { Dict, Sequence, Attributes, Class, Function, Cell, Entry, Like, Answer, Slots };

struct Watched {
  Kind kind;
  PyRef object, key;
  std::vector<PyRef> parts;     // what it held
  mutable uint64_t version = 0; // of a class or a dict
  PyObject* dict = nullptr;     // that has the version; held as a part, or as the object
  Likeness like;                // of a tensor
  std::vector<int64_t> dims;

  template <class F> static bool each_part(Kind kind, PyObject* object, PyObject* key, F visit); // false: stopped
  bool note();
  bool holds() const;
  bool same_tensor() const;
  bool same_version() const;
  bool same_answer() const;
};

// Classes have a version, which changes with any attribute of theirs or of their bases. 0: it has none.
uint64_t version_of(PyObject* type) {
  auto* t = reinterpret_cast<PyTypeObject*>(type);
#if PY_VERSION_HEX < 0x030d0000
  if (!PyType_HasFeature(t, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return t->tp_version_tag; // 0 after a change, from 3.13 on without a flag beside it
}

// Attributes that have a place of their own in an object; null for one that is not set.
template <class F> bool each_slot(PyObject* object, F visit) {
  PyObject* classes = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(classes); ++k) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(classes, k));
    if (!PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) continue;
    PyObject *name, *member;
    for (Py_ssize_t at = 0; PyDict_Next(base->tp_dict, &at, &name, &member);) {
      if (!Py_IS_TYPE(member, &PyMemberDescr_Type)) continue;
      PyRef value = PyRef::steal(Py_TYPE(member)->tp_descr_get(member, object, nullptr));
      if (!value) PyErr_Clear();
      if (!visit(value.get())) return false;
    }
  }
  return true;
}

template <class F> bool Watched::each_part(Kind kind, PyObject* object, PyObject* key, F visit) {
  switch (kind) {
  case Kind::Dict: {
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &name, &value);)
      if (!visit(name) || !visit(value)) return false;
    return true;
  }
  case Kind::Sequence: {
    if (PyList_Check(object) || PyTuple_Check(object)) {
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(object); ++k)
        if (!visit(PySequence_Fast_GET_ITEM(object, k))) return false;
      return true;
    }
    PyRef iterator = checked(PySet_Type.tp_iter(object)); // of a set
    while (PyRef item = PyRef::steal(PyIter_Next(iterator.get())))
      if (!visit(item.get())) return false;
    return !PyErr_Occurred();
  }
  case Kind::Attributes: { // of which class an object is, and its attributes
    if (!visit(reinterpret_cast<PyObject*>(Py_TYPE(object)))) return false;
    PyRef held = PyRef::steal(PyObject_GenericGetDict(object, nullptr));
    if (!held) return PyErr_Clear(), true; // it has none
    return visit(held.get()) && each_part(Kind::Dict, held.get(), nullptr, visit);
  }
  case Kind::Function:
    return visit(PyFunction_GET_CODE(object)) && visit(PyFunction_GET_DEFAULTS(object)) &&
           visit(PyFunction_GET_KW_DEFAULTS(object)) && visit(PyFunction_GET_CLOSURE(object)) &&
           visit(reinterpret_cast<PyFunctionObject*>(object)->func_dict);
  case Kind::Cell: return visit(PyCell_GET(object));
  case Kind::Entry: return visit(PyDict_GetItemWithError(object, key));
  case Kind::Slots: return each_slot(object, visit);
  case Kind::Class:
  case Kind::Like:
  case Kind::Answer: return true;
  }
  return true;
}

#if PY_VERSION_HEX < 0x030c0000
// Changes with whatever is put into a dict or taken out.
uint64_t version_of_dict(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#else
uint64_t version_of_dict(PyObject*) { return 0; } // it has none: contents are compared
#endif

bool Watched::note() {
  if (kind == Kind::Class) {
    static PyObject* any = PyUnicode_InternFromString("__doc__");
    _PyType_Lookup(reinterpret_cast<PyTypeObject*>(object.get()), any); // gives it a version if it has none
    version = version_of(object.get());
    return version != 0;
  }
  if (kind == Kind::Like) {
    const TensorImpl* t = ts::py::impl_of(object.get());
    dims.assign(t->sizes_data(), t->sizes_data() + t->ndim);
    dims.insert(dims.end(), t->strides_data(), t->strides_data() + t->ndim);
    return like.read(object.get());
  }
  if (kind == Kind::Answer) {
    parts.push_back(checked(PyObject_CallNoArgs(object.get())));
    return true;
  }
  bool noted = each_part(kind, object.get(), key.get(), [&](PyObject* part) {
    parts.push_back(PyRef::borrow(part));
    return true;
  });
  if (kind == Kind::Dict || kind == Kind::Entry) dict = object.get();
  if (kind == Kind::Attributes && parts.size() > 1) dict = parts[1].get();
  if (dict) version = version_of_dict(dict);
  return noted;
}

bool Watched::same_tensor() const {
  const TensorImpl* t = ts::py::impl_of(object.get());
  Likeness now;
  return now.read(object.get()) && now == like && std::equal(dims.begin(), dims.begin() + like.ndim, t->sizes_data()) &&
         std::equal(dims.begin() + like.ndim, dims.end(), t->strides_data());
}

// Whether the dict is the same, and nothing has been put into it.
bool Watched::same_version() const {
  if (!version || version_of_dict(dict) != version) return false;
  if (kind != Kind::Attributes) return true;
  PyObject** held = _PyObject_GetDictPtr(object.get());
  return held && *held == dict && reinterpret_cast<PyObject*>(Py_TYPE(object.get())) == parts[0].get();
}

// What something of C, which only tells, answers: the same object, or an int as great.
bool Watched::same_answer() const {
  PyRef now = PyRef::steal(PyObject_CallNoArgs(object.get()));
  if (!now) return PyErr_Clear(), false;
  PyObject* then = parts.front().get();
  return now.get() == then || (PyLong_CheckExact(now.get()) && PyLong_CheckExact(then) &&
                               PyObject_RichCompareBool(now.get(), then, Py_EQ) == 1);
}

bool Watched::holds() const {
  if (kind == Kind::Answer) return same_answer();
  if (kind == Kind::Class) return version_of(object.get()) == version;
  if (kind == Kind::Like) return same_tensor();
  if (dict && same_version()) return true;
  size_t k = 0;
  bool same = each_part(kind, object.get(), key.get(),
                        [&](PyObject* part) { return k < parts.size() && parts[k++].get() == part; });
  if (PyErr_Occurred()) PyErr_Clear();
  if (!same || k != parts.size()) return false;
  if (dict) version = version_of_dict(dict);
  return true;
}

Kind kind_named(std::string_view name) {
  constexpr std::pair<std::string_view, Kind> all[] = {
      {"dict", Kind::Dict},   {"sequence", Kind::Sequence}, {"attributes", Kind::Attributes},
      {"class", Kind::Class}, {"function", Kind::Function}, {"cell", Kind::Cell},
      {"entry", Kind::Entry}, {"tensor", Kind::Like},       {"answer", Kind::Answer},
      {"slots", Kind::Slots}};
  for (const auto& [text, kind] : all)
    if (text == name) return kind;
  fail(ErrorKind::Value, "guard: there is nothing to watch of the kind '", name, '\'');
}

bool is_of(Kind kind, PyObject* o, PyObject* key) {
  switch (kind) {
  case Kind::Dict: return PyDict_Check(o);
  case Kind::Sequence: return PyList_Check(o) || PyTuple_Check(o) || PyAnySet_Check(o);
  case Kind::Attributes:
  case Kind::Slots: return true;
  case Kind::Class: return PyType_Check(o);
  case Kind::Function: return PyFunction_Check(o);
  case Kind::Cell: return PyCell_Check(o);
  case Kind::Entry: return PyDict_Check(o) && key;
  case Kind::Like: return ts::py::is_tensor(o);
  case Kind::Answer: return PyCallable_Check(o);
  }
  return false;
}

// What was read, as it was when this was made.
class Guard {
public:
  // (kind, object) or ("entry", dict, key) each; `held`: tensors that no call must be given as arguments. `base`: what
  // is watched besides; None.
  Guard(const pb::list& watched, const pb::list& held, const pb::object& base) {
    if (!base.is_none()) {
      base_ = base.cast<const Guard*>();
      base_object_ = PyRef::borrow(base.ptr());
    }
    for (const pb::handle& item : watched) {
      TS_CHECK_TYPE(PyTuple_Check(item.ptr()) && PyTuple_GET_SIZE(item.ptr()) >= 2, "guard: expected (kind, object)");
      Watched made;
      made.kind = kind_named(ts::py::to_utf8(PyTuple_GET_ITEM(item.ptr(), 0)));
      made.object = PyRef::borrow(PyTuple_GET_ITEM(item.ptr(), 1));
      if (PyTuple_GET_SIZE(item.ptr()) > 2) made.key = PyRef::borrow(PyTuple_GET_ITEM(item.ptr(), 2));
      TS_CHECK_TYPE(is_of(made.kind, made.object.get(), made.key.get()), "guard: expected an object of its kind, got ",
                    Py_TYPE(made.object.get())->tp_name);
      complete_ = made.note() && complete_;
      watched_.push_back(std::move(made));
    }
    for (const pb::handle& t : held) held_.insert(t.ptr());
  }

  bool holds(const std::vector<PyObject*>& tensors) const {
    if (!complete_ || (base_ && !base_->holds(tensors))) return false;
    for (PyObject* t : tensors)
      if (held_.contains(t)) return false;
    for (const Watched& w : watched_)
      if (!w.holds()) return false;
    return true;
  }
  size_t size() const { return watched_.size() + (base_ ? base_->size() : 0); }
  bool complete() const { return complete_ && (!base_ || base_->complete()); }

  // For the garbage collector: what is held here often leads back to the compiled function.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(base_object_.get());
    for (const Watched& w : watched_) {
      Py_VISIT(w.object.get());
      Py_VISIT(w.key.get());
      for (const PyRef& part : w.parts) Py_VISIT(part.get());
    }
    return 0;
  }
  void clear() {
    complete_ = false;
    base_ = nullptr;
    std::vector<Watched> gone = std::exchange(watched_, {});
    PyRef base = std::move(base_object_);
  }

private:
  std::vector<Watched> watched_;
  const Guard* base_ = nullptr; // of the object
  PyRef base_object_;
  std::unordered_set<PyObject*> held_;
  bool complete_ = true;
};

std::string signature_of(const pb::tuple& args, const pb::dict& kwargs) {
  Arguments found;
  return read_call(found, args.ptr(), kwargs.ptr()) ? std::string(found.key.view()) : std::string();
}

// The graphs of a function, each by the signature of its calls and a guard.
class Replays {
public:
  struct Entry {
    std::shared_ptr<Guard> guard;
    int place;
    std::shared_ptr<const graph::Executor> executor; // where its one result is what the function returns
    bool again = false;                              // a run that fails may be made anew by Python
  };

  void add(const std::string& signature, const std::shared_ptr<Guard>& guard, int place, const pb::object& runner,
           bool again) {
    std::vector<Entry>& there = entries_[signature];
    std::erase_if(there, [&](const Entry& e) { return e.place == place; });
    there.push_back({guard, place, runner.is_none() ? nullptr : executor_of(runner), again});
  }
  // The place of one that holds, and the call's tensors. None if none holds or the call is not plain; False where there
  // is none for the call's signature.
  pb::object find(const pb::tuple& args, const pb::dict& kwargs) const {
    if (entries_.empty()) return pb::none();
    Arguments given;
    if (!read_call(given, args.ptr(), kwargs.ptr())) return pb::none();
    const std::vector<Entry>* there = with_key(given.key.view());
    if (!there) return pb::bool_(false);
    const std::optional<Entry> found = holding(*there, given);
    if (!found) return pb::none();
    pb::list tensors(given.tensors.size());
    for (size_t k = 0; k < given.tensors.size(); ++k)
      PyList_SET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(k), Py_NewRef(given.tensors[k]));
    return pb::make_tuple(found->place, tensors);
  }
  // One that holds, if all that there are for the call have executors.
  std::optional<Entry> find(Arguments& given, PyObject* args, PyObject* kwargs) const {
    if (entries_.empty() || !read_call(given, args, kwargs)) return {};
    const std::vector<Entry>* there = with_key(given.key.view());
    const bool all = there && std::ranges::all_of(*there, [](const Entry& e) { return e.executor != nullptr; });
    return all ? holding(*there, given) : std::nullopt;
  }

private:
  const std::vector<Entry>* with_key(std::string_view key) const {
    if (last_ && last_->first == key) return &last_->second;
    auto found = entries_.find(std::string(key));
    if (found == entries_.end()) return nullptr;
    last_ = &*found;
    return &found->second;
  }
  static std::optional<Entry> holding(const std::vector<Entry>& there, const Arguments& given) {
    for (size_t at = 0; at < there.size(); ++at)
      if (Entry entry = there[at];
          entry.guard->holds(given.tensors)) // comparing may collect garbage: that runs anything
        return entry;
    return {};
  }

  std::unordered_map<std::string, std::vector<Entry>> entries_;
  mutable const std::pair<const std::string, std::vector<Entry>>* last_ = nullptr; // asked for
};

bool g_quick = true; // false where all is to be run by Python

// The way of a call to a graph without a word of Python. What it does not find is looked for by the package.
class Quick {
public:
  void use(const pb::object& replays) { replays_ = replays.is_none() ? PyRef() : PyRef::borrow(replays.ptr()); }

  // The result; NotImplemented where the package is to look, or to run the call.
  PyObject* run(PyObject* args, PyObject* kwargs) {
    if (!replays_ || !g_quick) return Py_NewRef(Py_NotImplemented);
    PyRef held = replays_;
    Arguments given = std::move(spare_);
    given.key.clear();
    given.tensors.clear();
    bool again = false;
    PyObject* result = ts::py::guarded([&]() -> PyObject* {
      const auto* known = static_cast<const Replays*>(value_of(held.get()));
      const std::optional<Replays::Entry> found = known->find(given, args, kwargs);
      if (!found) return Py_NewRef(Py_NotImplemented);
      again = found->again;
      std::vector<Tensor> in;
      in.reserve(given.tensors.size());
      for (PyObject* t : given.tensors) in.push_back(ts::py::tensor_of(t));
      return ts::py::wrap(std::move(found->executor->run(in, {}, {}).front()));
    });
    spare_ = std::move(given);
    if (!result && again && PyErr_ExceptionMatches(PyExc_Exception)) {
      PyErr_Clear();
      return Py_NewRef(Py_NotImplemented);
    }
    return result;
  }

  static void* value_of(PyObject* self) {
    return reinterpret_cast<pb::detail::instance*>(self)->get_value_and_holder().value_ptr();
  }

private:
  PyRef replays_;
  static thread_local Arguments spare_; // which keeps its memory
};
thread_local Arguments Quick::spare_;

PyObject* run_quick(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 2 || !PyTuple_CheckExact(args[0]) || !PyDict_CheckExact(args[1]))
    return PyErr_SetString(PyExc_TypeError, "run(): expected a tuple and a dict"), nullptr;
  return static_cast<Quick*>(Quick::value_of(self))->run(args[0], args[1]);
}
PyMethodDef g_run_quick = {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(run_quick)), METH_FASTCALL,
                           nullptr};

Guard* guard_of(PyObject* self) {
  auto* instance = reinterpret_cast<pb::detail::instance*>(self);
  pb::detail::value_and_holder held = instance->get_value_and_holder();
  return held.holder_constructed() ? static_cast<Guard*>(held.value_ptr()) : nullptr;
}

void let_collect(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    const Guard* guard = guard_of(self);
    return guard ? guard->traverse(visit, arg) : 0;
  };
  type->ht_type.tp_clear = [](PyObject* self) {
    if (Guard* guard = guard_of(self)) guard->clear();
    return 0;
  };
}

} // namespace

void define_guards(pb::module_& m) {
  m.def("_call_signature",
        [](const pb::tuple& args, const pb::dict& kwargs) { return pb::bytes(signature_of(args, kwargs)); });
  pb::class_<Guard, std::shared_ptr<Guard>>(m, "_Guard", pb::custom_type_setup(let_collect))
      .def(pb::init<const pb::list&, const pb::list&, const pb::object&>(), pb::arg("watched"), pb::arg("held"),
           pb::arg("base") = pb::none())
      .def("holds",
           [](const Guard& guard, const pb::list& tensors) {
             std::vector<PyObject*> list;
             for (const pb::handle& t : tensors) list.push_back(t.ptr());
             return guard.holds(list);
           })
      .def("__len__", &Guard::size)
      .def_property_readonly("complete", &Guard::complete);
  define_existing(m);
  pb::class_<Replays>(m, "_Replays")
      .def(pb::init<>())
      .def("add", &Replays::add, pb::arg("signature"), pb::arg("guard"), pb::arg("place"),
           pb::arg("runner") = pb::none(), pb::arg("again") = false)
      .def("find", pb::overload_cast<const pb::tuple&, const pb::dict&>(&Replays::find, pb::const_));
  auto quick = pb::class_<Quick>(m, "_Quick").def(pb::init<>()).def("use", &Quick::use);
  ts::py::PyRef made = ts::py::checked(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(quick.ptr()), &g_run_quick));
  ts::py::checked_status(PyObject_SetAttrString(quick.ptr(), "run", made.get()));
  m.def("_allow_quick", [](bool on) { g_quick = on; });
}

} // namespace ts::py_runtime
