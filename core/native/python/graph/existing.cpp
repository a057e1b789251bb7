// Which objects there were before a run that is captured.
#include "python/bound.h"
#include <bit>
#include <vector>

namespace ts::py_runtime {
namespace {

using ts::py::checked;
using ts::py::PyRef;

// The objects that the collector of garbage knows when this is made: without a word of Python between, for an object
// that another thread is about to make must not be held. Nothing is kept alive, so that an object of the same type that
// lies where one was is taken for it. There may be millions, of which few are asked for: they are put in order when the
// first is.
class Existing {
public:
  Existing() {
    PyRef all = from_collector("get_objects", nullptr);
    known_.reserve(static_cast<size_t>(PyList_GET_SIZE(all.get())));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(all.get()); ++k) {
      PyObject* o = PyList_GET_ITEM(all.get(), k);
      known_.push_back({o, Py_TYPE(o)});
    }
  }
  bool knows(const nb::object& o) { return is_known(o.ptr()); }
  bool knows_holder(const nb::object& o) {
    PyRef holders = from_collector("get_referrers", o.ptr());
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(holders.get()); ++k)
      if (is_known(PyList_GET_ITEM(holders.get(), k))) return true;
    return false;
  }

private:
  struct Known {
    const PyObject* object; // compared alone
    const PyTypeObject* type;
  };

  bool is_known(PyObject* o) {
    if (table_.empty()) put_in_order();
    for (size_t at = place(o); table_[at].object != nullptr; at = (at + 1) & (table_.size() - 1))
      if (table_[at].object == o) return table_[at].type == Py_TYPE(o);
    return false;
  }
  // By the hash of their addresses, in twice as many places as there are objects.
  void put_in_order() {
    table_.assign(std::bit_ceil(2 * known_.size() + 1), Known{nullptr, nullptr});
    for (const Known& known : known_) {
      size_t at = place(known.object);
      while (table_[at].object != nullptr) at = (at + 1) & (table_.size() - 1);
      table_[at] = known;
    }
    known_ = {};
  }
  size_t place(const PyObject* o) const {
    return ((reinterpret_cast<uintptr_t>(o) >> 4) * 0x9E3779B97F4A7C15u >> 20) & (table_.size() - 1);
  }
  static PyRef from_collector(const char* name, PyObject* arg) {
    PyRef collector = checked(PyImport_ImportModule("gc"));
    PyRef function = checked(PyObject_GetAttrString(collector.get(), name));
    return checked(arg ? PyObject_CallOneArg(function.get(), arg) : PyObject_CallNoArgs(function.get()));
  }
  std::vector<Known> known_, table_;
};

} // namespace

void define_existing(nb::module_& m) {
  nb::class_<Existing>(m, "_Existing", nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("knows", &Existing::knows)
      .def("knows_holder", &Existing::knows_holder);
}

} // namespace ts::py_runtime
