#include "python/graph/guard.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include <algorithm>
#include <utility>

namespace ts::py_runtime {

using ts::py::checked;
using ts::py::PyRef;

namespace {

// 0: it has none.
uint64_t version_of(PyObject* type) {
  auto* t = reinterpret_cast<PyTypeObject*>(type);
#if PY_VERSION_HEX < 0x030d0000
  if (!PyType_HasFeature(t, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return t->tp_version_tag; // 0 after a change, from 3.13 on without a flag beside it
}

enum class Kind : uint8_t { Dict, Sequence, Attributes, Class, Function, Cell, Entry, Like, Answer, Slots };

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

#if PY_VERSION_HEX < 0x030c0000
// Changes with whatever is put into a dict or taken out.
uint64_t version_of_dict(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#else
uint64_t version_of_dict(PyObject*) { return 0; } // it has none: contents are compared
#endif

} // namespace

uint64_t class_version(PyObject* type) {
  static PyObject* any = PyUnicode_InternFromString("__doc__");
  _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type), any); // gives it a version if it has none
  return version_of(type);
}

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

template <class F> bool Watched::each_part(Kind kind, PyObject* object, PyObject* key, F visit) {
  switch (kind) {
  case Kind::Dict: {
    PyObject *name, *value;
    if (PyODict_Check(object)) { // has an order of its own, which move_to_end changes in no dict
      PyRef keys = checked(PyODict_Type.tp_iter(object));
      while (PyRef key_of = PyRef::steal(PyIter_Next(keys.get())))
        if (!visit(key_of.get()) || !visit(PyDict_GetItemWithError(object, key_of.get()))) return false;
      return !PyErr_Occurred();
    }
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

bool Watched::note() {
  if (kind == Kind::Class) {
    version = class_version(object.get());
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
  const bool has_order = PyODict_Check(object.get()) && parts.size() > 2; // which changes without its version
  if ((kind == Kind::Dict && !has_order) || kind == Kind::Entry) dict = object.get();
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
  if (kind == Kind::Dict && parts.empty()) return PyDict_GET_SIZE(object.get()) == 0; // most there are
  if (dict && same_version()) return true;
  size_t k = 0;
  bool same = each_part(kind, object.get(), key.get(),
                        [&](PyObject* part) { return k < parts.size() && parts[k++].get() == part; });
  if (PyErr_Occurred()) PyErr_Clear();
  if (!same || k != parts.size()) return false;
  if (dict) version = version_of_dict(dict);
  return true;
}

namespace {

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

struct Identity {
  Kind kind;
  PyObject *object, *key;
  bool operator==(const Identity&) const = default;
};
struct HashOfIdentity {
  size_t operator()(const Identity& of) const {
    const size_t mixed = reinterpret_cast<uintptr_t>(of.object) * 31 + reinterpret_cast<uintptr_t>(of.key);
    return (mixed >> 4) * 31 + static_cast<size_t>(of.kind);
  }
};

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

} // namespace

Guard::Guard(PyObject* watched, PyObject* held, const Guard* base, PyObject* base_object)
    : base_(base), base_object_(PyRef::borrow(base_object)) {
  std::unordered_set<Identity, HashOfIdentity> known;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(watched); ++k) {
    PyObject* item = PyList_GET_ITEM(watched, k);
    TS_CHECK_TYPE(PyTuple_Check(item) && PyTuple_GET_SIZE(item) >= 2, "guard: expected (kind, object)");
    Watched made;
    made.kind = kind_named(ts::py::to_utf8(PyTuple_GET_ITEM(item, 0)));
    made.object = PyRef::borrow(PyTuple_GET_ITEM(item, 1));
    if (PyTuple_GET_SIZE(item) > 2) made.key = PyRef::borrow(PyTuple_GET_ITEM(item, 2));
    if (!known.insert({made.kind, made.object.get(), made.key.get()}).second) continue;
    TS_CHECK_TYPE(is_of(made.kind, made.object.get(), made.key.get()), "guard: expected an object of its kind, got ",
                  Py_TYPE(made.object.get())->tp_name);
    complete_ = made.note() && complete_;
    watched_.push_back(std::move(made));
  }
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(held); ++k) held_.insert(PyList_GET_ITEM(held, k));
}

Guard::~Guard() = default;

bool Guard::holds(std::span<PyObject* const> tensors) const {
  if (!complete_ || (base_ && !base_->holds(tensors))) return false;
  for (PyObject* t : tensors)
    if (held_.contains(t)) return false;
  for (const Watched& w : watched_)
    if (!w.holds()) return false;
  return true;
}

size_t Guard::size() const { return watched_.size() + (base_ ? base_->size() : 0); }

int Guard::traverse(visitproc visit, void* arg) const {
  Py_VISIT(base_object_.get());
  for (const Watched& w : watched_) {
    Py_VISIT(w.object.get());
    Py_VISIT(w.key.get());
    for (const PyRef& part : w.parts) Py_VISIT(part.get());
  }
  return 0;
}
void Guard::clear() {
  complete_ = false;
  base_ = nullptr;
  std::vector<Watched> gone = std::exchange(watched_, {});
  PyRef base = std::move(base_object_);
}

} // namespace ts::py_runtime
