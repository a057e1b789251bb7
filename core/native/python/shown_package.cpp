#include "python/shown_package.h"
#include "python/types.h"
#include <cstring>
#include <vector>

namespace ts::py {
namespace {

std::string& package() {
  static auto* name = new std::string("tesserack");
  return *name;
}
PyObject* g_chooser = nullptr; // asked for the name, where it depends on who prints

// Static types keep their module in the name they were made with.
void rename_types(const std::string& to) {
  for (PyTypeObject* t : {&DTypeType, &DeviceType, &SizeType, &FormatType, &LayoutType, &GeneratorType}) {
    // PyTorch has generators in its extension module, and shows it.
    const char* inner = t == &GeneratorType && to == "torch" ? "._C." : ".";
    auto* name = new std::string(to + inner + (std::strrchr(t->tp_name, '.') + 1)); // kept: the type points to it
    t->tp_name = name->c_str();
    PyType_Modified(t);
  }
}

// _set_shown_package("torch"), or a function that names it
PyObject* set_shown_package(PyObject*, PyObject* o) {
  return guarded([&] {
    if (PyUnicode_Check(o)) {
      Py_CLEAR(g_chooser);
      package() = to_utf8(o);
      rename_types(package());
    } else {
      Py_XSETREF(g_chooser, Py_NewRef(o));
    }
    return none();
  });
}
PyMethodDef g_functions[] = {{"_set_shown_package", set_shown_package, METH_O, nullptr},
                             {nullptr, nullptr, 0, nullptr}};

} // namespace

std::string shown_package() {
  if (!g_chooser) return package();
  PyRef name = checked(PyObject_CallNoArgs(g_chooser));
  return to_utf8(name.get());
}

void init_shown_package(PyObject* module) { checked_status(PyModule_AddFunctions(module, g_functions)); }

} // namespace ts::py
