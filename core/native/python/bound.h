// What nanobind binds, which is what is called rarely: its headers, and what is made with it more than once.
#pragma once
#include "python/common.h"
#include <initializer_list>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string_view>

namespace nb = nanobind;

// An argument that may be anything may be None.
template <> struct nanobind::detail::has_arg_defaults<nanobind::object> : std::true_type {};
template <> struct nanobind::detail::has_arg_defaults<nanobind::handle> : std::true_type {};

namespace ts::py {

struct DictItem {
  template <class T>
  DictItem(const char* its_key, T&& its_value) : key(its_key), value(nb::cast(std::forward<T>(its_value))) {}
  const char* key;
  nb::object value;
};
inline nb::dict dict_of(std::initializer_list<DictItem> items) {
  nb::dict made;
  for (const DictItem& item : items) checked_status(PyDict_SetItemString(made.ptr(), item.key, item.value.ptr()));
  return made;
}

inline nb::object steal(PyObject* o) { return nb::steal<nb::object>(o); }
inline nb::object given_back(PyRef made) { return steal(made.release()); }
inline nb::list list_of(size_t length) { // to be filled
  return nb::steal<nb::list>(checked(PyList_New(static_cast<Py_ssize_t>(length))).release());
}
inline nb::bytes to_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }
inline std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

} // namespace ts::py
