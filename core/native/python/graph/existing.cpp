// Which objects there were before a run that is captured.
#include "python/common.h"
#include <pybind11/pybind11.h>
#include <unordered_map>

namespace pb = pybind11;

namespace ts::py_runtime {
namespace {

using ts::py::checked;
using ts::py::PyRef;

// The objects that the collector of garbage knows when this is made: without a word of Python between, for an object
// that another thread is about to make must not be held. Nothing is kept alive, so that an object of the same type that
// lies where one was is taken for it.
class Existing {
public:
  Existing() {
    PyRef all = from_collector("get_objects", nullptr);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(all.get()); ++k) {
      PyObject* o = PyList_GET_ITEM(all.get(), k);
      known_.emplace(o, Py_TYPE(o));
    }
  }
  bool knows(const pb::object& o) const { return is_known(o.ptr()); }
  bool knows_holder(const pb::object& o) const {
    PyRef holders = from_collector("get_referrers", o.ptr());
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(holders.get()); ++k)
      if (is_known(PyList_GET_ITEM(holders.get(), k))) return true;
    return false;
  }

private:
  bool is_known(PyObject* o) const {
    auto found = known_.find(o);
    return found != known_.end() && found->second == Py_TYPE(o);
  }
  static PyRef from_collector(const char* name, PyObject* arg) {
    PyRef collector = checked(PyImport_ImportModule("gc"));
    PyRef function = checked(PyObject_GetAttrString(collector.get(), name));
    return checked(arg ? PyObject_CallOneArg(function.get(), arg) : PyObject_CallNoArgs(function.get()));
  }
  std::unordered_map<const PyObject*, const PyTypeObject*> known_; // compared alone
};

} // namespace

void define_existing(pb::module_& m) {
  pb::class_<Existing>(m, "_Existing")
      .def(pb::init<>())
      .def("knows", &Existing::knows)
      .def("knows_holder", &Existing::knows_holder);
}

} // namespace ts::py_runtime
