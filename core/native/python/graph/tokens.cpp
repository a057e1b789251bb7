// Tokens of what objects hold: of a model's modules the greater part are values that stand for themselves and dicts
// of hooks that are empty.
#include "python/bound.h"
#include "python/graph/guard.h"
#include "python/tensor/tensor_object.h"

namespace ts::py_runtime {
namespace {

using ts::py::checked;
using ts::py::checked_status;
using ts::py::PyRef;

bool has_type(const nb::handle& types, PyTypeObject* type) {
  const int found = PySet_Contains(types.ptr(), reinterpret_cast<PyObject*>(type));
  checked_status(found);
  return found == 1;
}

struct Notes {
  PyObject *watched, *kept; // a list, a dict by id; not asked for: nullptr

  // Of an empty list, set or dict.
  PyRef of_empty(PyObject* value) const {
    PyRef id = checked(PyLong_FromVoidPtr(value));
    if (watched) {
      static PyObject* const sequence = PyUnicode_InternFromString("sequence");
      static PyObject* const dict = PyUnicode_InternFromString("dict");
      PyRef note = checked(PyTuple_Pack(2, PyDict_Check(value) ? dict : sequence, value));
      checked_status(PyList_Append(watched, note.get()));
      checked_status(PyDict_SetItem(kept, id.get(), value));
    }
    return checked(PyTuple_Pack(2, Py_TYPE(value), id.get()));
  }
};

// (name, token) of each attribute but the private ones. `of` makes the tokens of those that are neither `simple` nor an
// empty container.
nb::object attribute_tokens(const nb::dict& attributes, const nb::frozenset& simple, const nb::frozenset& containers,
                            const nb::frozenset& hidden, const nb::object& of, const nb::object& watched,
                            const nb::dict& kept) {
  const Notes notes{watched.is_none() ? nullptr : watched.ptr(), kept.ptr()};
  const PyRef seen = checked(PyDict_Copy(attributes.ptr())); // `of` may come to what changes them
  PyRef made = checked(PyList_New(0));
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(seen.get(), &at, &name, &value);) {
    const int is_hidden = PySet_Contains(hidden.ptr(), name);
    checked_status(is_hidden);
    if (is_hidden == 1) continue;
    const auto token = [&] {
      if (has_type(simple, Py_TYPE(value))) return checked(PyTuple_Pack(2, Py_TYPE(value), value));
      if (has_type(containers, Py_TYPE(value)) && PyObject_Size(value) == 0) return notes.of_empty(value);
      return checked(PyObject_CallOneArg(of.ptr(), value));
    }();
    checked_status(PyList_Append(made.get(), checked(PyTuple_Pack(2, name, token.get())).get()));
  }
  return ts::py::given_back(checked(PyList_AsTuple(made.get())));
}

// What a tensor is like, as bytes that are equal as long as it is; None for one of a kind that cannot be told so.
nb::object likeness_of(const nb::object& tensor) {
  TS_CHECK_TYPE(ts::py::is_tensor(tensor.ptr()), "likeness: expected a tensor, got ", Py_TYPE(tensor.ptr())->tp_name);
  Key key;
  if (!put_tensor(key, tensor.ptr())) return nb::none();
  return ts::py::to_bytes(key.view());
}

} // namespace

void define_tokens(nb::module_& m) {
  m.def("_attribute_tokens", &attribute_tokens, nb::arg("attributes"), nb::arg("simple"), nb::arg("containers"),
        nb::arg("hidden"), nb::arg("of"), nb::arg("watched"), nb::arg("kept"));
  m.def("_likeness", &likeness_of);
  m.def("_class_version", [](const nb::type_object& cls) { return class_version(cls.ptr()); });
}

} // namespace ts::py_runtime
