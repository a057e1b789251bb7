// tesserack.dtype, memory_format and layout: immutable singletons.
#include "python/shown_package.h"
#include "python/types.h"
#include <array>

namespace ts::py {
namespace {

DTypeObject g_dtypes[kNumDTypes];

DType dtype_value(PyObject* o) { return reinterpret_cast<DTypeObject*>(o)->value; }

PyObject* dtype_repr(PyObject* self) {
  return guarded([&] { return to_python(shown_package() + "." + std::string(name(dtype_value(self)))).release(); });
}
PyObject* dtype_reduce(PyObject* self, PyObject*) {
  return PyUnicode_FromString(std::string(name(dtype_value(self))).c_str());
}
PyObject* dtype_itemsize(PyObject* self, void*) { return PyLong_FromLongLong(item_size(dtype_value(self))); }
PyObject* dtype_values(PyObject* self, void*) { return PyLong_FromLongLong(values_in(dtype_value(self))); }
PyObject* dtype_is_floating(PyObject* self, void*) { return PyBool_FromLong(is_floating(dtype_value(self))); }
PyObject* dtype_is_complex(PyObject* self, void*) { return PyBool_FromLong(is_complex(dtype_value(self))); }
PyObject* dtype_is_signed(PyObject* self, void*) { return PyBool_FromLong(has_sign(dtype_value(self))); }

PyObject* dtype_to_complex(PyObject* self, PyObject*) {
  return guarded([&] {
    DType t = dtype_value(self);
    TS_CHECK(!is_storage_dtype(t) || is_complex(t), "dtype.to_complex: there is no complex dtype of two ", t);
    TS_CHECK_TYPE(is_differentiable(t),
                  "dtype.to_complex: expected float16, bfloat16, float32, float64 or a complex dtype, got ", t);
    return Py_NewRef(dtype_object(complex_type(t)));
  });
}
PyObject* dtype_to_real(PyObject* self, PyObject*) { return Py_NewRef(dtype_object(real_type(dtype_value(self)))); }

PyMethodDef g_dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, nullptr},
    {"to_complex", dtype_to_complex, METH_NOARGS, "The complex dtype of the same precision."},
    {"to_real", dtype_to_real, METH_NOARGS, "The real dtype of the same precision."},
    {nullptr, nullptr, 0, nullptr},
};
// "f32", "bf16", "c64", "b8": a letter or two and the bits.
PyObject* dtype_abbr(PyObject* self, void*) {
  return guarded([&] {
    DType t = dtype_value(self);
    const char* kind = t == DType::Bool       ? "b"
                       : t == DType::BFloat16 ? "bf"
                       : is_complex(t)        ? "c"
                       : is_floating(t)       ? "f"
                       : is_unsigned(t)       ? "u"
                                              : "i";
    if (!is_narrow(t) && !is_packed(t)) return to_python(concat(kind, 8 * item_size(t))).release();
    std::string text(name(t)); // "float8_e5m2": f8e5m2
    text.erase(text.find('_') == std::string::npos ? text.size() : text.find('_'), 1);
    return to_python(text[0] + text.substr(text.find_first_of("468"))).release();
  });
}

PyGetSetDef g_dtype_properties[] = {
    {"abbr", dtype_abbr, nullptr, "A short name, \"f32\".", nullptr},
    {"itemsize", dtype_itemsize, nullptr, "Bytes per element.", nullptr},
    {"_values", dtype_values, nullptr, "Values in an element; of more than one, elements are not converted.", nullptr},
    {"is_floating_point", dtype_is_floating, nullptr, "Whether it is a floating dtype.", nullptr},
    {"is_complex", dtype_is_complex, nullptr, "Whether it is a complex dtype.", nullptr},
    {"is_signed", dtype_is_signed, nullptr, "Whether it has negative values.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// --- memory_format and layout ------------------------------------------------------------------------------------

constexpr const char* kFormatNames[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
FormatObject g_formats[4];

PyObject* format_repr(PyObject* self) {
  auto k = static_cast<int>(reinterpret_cast<FormatObject*>(self)->value);
  return guarded([&] { return to_python(shown_package() + "." + kFormatNames[k]).release(); });
}
PyObject* format_reduce(PyObject* self, PyObject*) {
  return PyUnicode_FromString(kFormatNames[static_cast<int>(reinterpret_cast<FormatObject*>(self)->value)]);
}
PyMethodDef g_format_methods[] = {{"__reduce__", format_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

struct LayoutObject {
  PyObject_HEAD Layout value;
};
LayoutObject g_layouts[std::size(kLayoutNames)];

const char* name_of_layout(PyObject* self) { return layout_name(reinterpret_cast<LayoutObject*>(self)->value); }
PyObject* layout_repr(PyObject* self) {
  return guarded([&] { return to_python(shown_package() + "." + name_of_layout(self)).release(); });
}
PyObject* layout_reduce(PyObject* self, PyObject*) { return PyUnicode_FromString(name_of_layout(self)); }
PyMethodDef g_layout_methods[] = {{"__reduce__", layout_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

PyTypeObject plain_type(const char* type_name, size_t size, reprfunc repr, PyMethodDef* methods, const char* doc) {
  PyTypeObject t = blank_type(type_name, size, doc);
  t.tp_repr = repr;
  t.tp_methods = methods;
  return t;
}

struct Alias {
  const char* name;
  DType type;
};
constexpr Alias kAliases[] = {
    {"float", DType::Float32},    {"double", DType::Float64},     {"half", DType::Float16},
    {"long", DType::Int64},       {"int", DType::Int32},          {"short", DType::Int16},
    {"cfloat", DType::Complex64}, {"cdouble", DType::Complex128}, {"chalf", DType::Complex32}};

void add_dtypes(PyObject* module) {
  for (int k = 0; k < kNumDTypes; ++k) {
    auto t = static_cast<DType>(k);
    PyObject_Init(reinterpret_cast<PyObject*>(&g_dtypes[k]), &DTypeType);
    g_dtypes[k].value = t;
    add_object(module, std::string(name(t)).c_str(), dtype_object(t));
  }
  PyRef all = checked(PyTuple_New(kNumDTypes)); // in the order of the codes
  for (int k = 0; k < kNumDTypes; ++k) PyTuple_SET_ITEM(all.get(), k, Py_NewRef(dtype_object(static_cast<DType>(k))));
  add_object(module, "_dtypes", all.get());
  for (const Alias& a : kAliases) add_object(module, a.name, dtype_object(a.type));
}

void add_formats(PyObject* module) {
  for (int k = 0; k < 4; ++k) {
    PyObject_Init(reinterpret_cast<PyObject*>(&g_formats[k]), &FormatType);
    g_formats[k].value = static_cast<MemoryFormat>(k);
    add_object(module, kFormatNames[k], reinterpret_cast<PyObject*>(&g_formats[k]));
  }
  for (size_t k = 0; k < std::size(kLayoutNames); ++k) {
    PyObject_Init(reinterpret_cast<PyObject*>(&g_layouts[k]), &LayoutType);
    g_layouts[k].value = static_cast<Layout>(k);
    add_object(module, kLayoutNames[k], reinterpret_cast<PyObject*>(&g_layouts[k]));
  }
}

} // namespace

PyTypeObject DTypeType =
    plain_type("tesserack.dtype", sizeof(DTypeObject), dtype_repr, g_dtype_methods, "An element type.");
PyTypeObject FormatType = plain_type("tesserack.memory_format", sizeof(FormatObject), format_repr, g_format_methods,
                                     "How the dimensions of a tensor are laid out in memory.");
PyTypeObject LayoutType = plain_type("tesserack.layout", sizeof(LayoutObject), layout_repr, g_layout_methods,
                                     "How the elements of a tensor are stored.");

PyObject* dtype_object(DType t) { return reinterpret_cast<PyObject*>(&g_dtypes[static_cast<int>(t)]); }
PyObject* format_object(MemoryFormat f) { return reinterpret_cast<PyObject*>(&g_formats[static_cast<int>(f)]); }
PyObject* layout_object(Layout layout) { return reinterpret_cast<PyObject*>(&g_layouts[static_cast<int>(layout)]); }
PyObject* strided_layout() { return layout_object(Layout::Strided); }
std::optional<Layout> as_layout(PyObject* o) {
  if (Py_TYPE(o) != &LayoutType) return std::nullopt;
  return reinterpret_cast<LayoutObject*>(o)->value;
}

std::optional<DType> as_dtype(PyObject* o) {
  if (is_dtype(o)) return dtype_value(o);
  auto* t = reinterpret_cast<PyTypeObject*>(o);
  if (t == &PyFloat_Type) return DType::Float64;
  if (t == &PyLong_Type) return DType::Int64;
  if (t == &PyBool_Type) return DType::Bool;
  return std::nullopt;
}

void init_types(PyObject* module) {
  DTypeType.tp_getset = g_dtype_properties;
  for (PyTypeObject* t : {&DTypeType, &FormatType, &LayoutType}) {
    checked_status(PyType_Ready(t));
    add_object(module, strrchr(t->tp_name, '.') + 1, reinterpret_cast<PyObject*>(t));
  }
  add_dtypes(module);
  add_formats(module);
  init_size_type(module);
  init_device_type(module);
  init_generator_type(module);
  init_host_numbers(module);
  init_tensor_lists(module);
}

} // namespace ts::py
