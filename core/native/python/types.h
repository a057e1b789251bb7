// Small Python classes: dtype, device, Size, memory_format, layout, Generator.
#pragma once
#include "python/common.h"
#include "runtime/generator.h"
#include "tensor/sparse.h"
#include "tensor/tensor.h"
#include <optional>

namespace ts::py {

struct DTypeObject {
  PyObject_HEAD DType value;
};
struct DeviceObject {
  PyObject_HEAD Device value;
};
struct FormatObject {
  PyObject_HEAD MemoryFormat value;
};
struct GeneratorObject {
  PyObject_HEAD Generator* value; // owned reference
};

extern PyTypeObject DTypeType, DeviceType, SizeType, FormatType, LayoutType, GeneratorType;

PyObject* dtype_object(DType t); // borrowed singletons
inline bool is_dtype(PyObject* o) { return Py_TYPE(o) == &DTypeType; }
// A dtype object, or bool, int, float; nothing for anything else.
std::optional<DType> as_dtype(PyObject* o);

PyObject* device_object(Device d); // new reference
inline bool is_device(PyObject* o) { return Py_TYPE(o) == &DeviceType; }
// A device object or its text. TypeError naming `what` for others, RuntimeError for unknown names.
Device expect_device(PyObject* o, const char* what);
// The device whose memory the host addresses: the default device if it is one.
Device host_device();

PyObject* size_object(IntSpan sizes);    // new reference
PyObject* format_object(MemoryFormat f); // borrowed
inline bool is_format(PyObject* o) { return Py_TYPE(o) == &FormatType; }
inline bool is_generator(PyObject* o) {
  return Py_TYPE(o) == &GeneratorType || PyType_IsSubtype(Py_TYPE(o), &GeneratorType);
}
PyObject* generator_object(Generator& g); // new reference
PyObject* strided_layout();               // borrowed
PyObject* layout_object(Layout layout);   // borrowed singletons
std::optional<Layout> as_layout(PyObject* o);

void init_types(PyObject* module);
void init_device_type(PyObject* module);
void init_generator_type(PyObject* module);
void init_host_numbers(PyObject* module); // tensor_item.cpp
void init_tensor_lists(PyObject* module); // tensor_lists.cpp
void init_size_type(PyObject* module);

} // namespace ts::py
