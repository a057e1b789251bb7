// tesserack.Generator: a stream of random numbers on a device.
#include "python/types.h"
#include "runtime/backend.h"

namespace ts::py {
namespace {

Generator& generator_value(PyObject* o) { return *reinterpret_cast<GeneratorObject*>(o)->value; }

PyObject* make(PyTypeObject* type, Generator* owned) {
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) {
    release(owned);
    throw_python();
  }
  reinterpret_cast<GeneratorObject*>(o)->value = owned;
  return o;
}

PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", const_cast<char**>(names), &device)) return nullptr;
  return guarded([&] {
    Device d = device && device != Py_None ? expect_device(device, "Generator") : default_device();
    auto* g = new Generator;
    g->device = d;
    return make(type, g);
  });
}
void generator_dealloc(PyObject* self) {
  release(reinterpret_cast<GeneratorObject*>(self)->value);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
}

PyObject* generator_manual_seed(PyObject* self, PyObject* seed) {
  return guarded([&] {
    PyRef number = checked(PyNumber_Index(seed));
    int beyond = 0; // -1 where it is below int64, 1 where above
    uint64_t s = static_cast<uint64_t>(PyLong_AsLongLongAndOverflow(number.get(), &beyond));
    if (beyond > 0) s = PyLong_AsUnsignedLongLong(number.get());
    if (PyErr_Occurred()) PyErr_Clear(), beyond = -1;
    TS_CHECK_VALUE(beyond >= 0, "manual_seed: expected a seed of 64 bits, got ",
                   to_utf8(checked(PyObject_Str(number.get())).get()));
    generator_value(self).manual_seed(s);
    return Py_NewRef(self);
  });
}
PyObject* generator_seed(PyObject* self, PyObject*) {
  return guarded([&] {
    PyRef random = checked(PyImport_ImportModule("secrets"));
    PyRef seed = checked(PyObject_CallMethod(random.get(), "randbits", "i", 53));
    generator_value(self).manual_seed(PyLong_AsUnsignedLongLongMask(seed.get()));
    return seed.release();
  });
}
PyObject* generator_initial_seed(PyObject* self, PyObject*) {
  Generator& g = generator_value(self);
  std::lock_guard lock(g.mutex);
  return PyLong_FromUnsignedLongLong(g.seed);
}
PyObject* generator_state(PyObject* self, PyObject*) {
  Generator& g = generator_value(self);
  std::lock_guard lock(g.mutex);
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(g.seed), static_cast<unsigned long long>(g.offset));
}
PyObject* generator_set_position(PyObject* self, PyObject* args) {
  unsigned long long seed = 0, offset = 0;
  if (!PyArg_ParseTuple(args, "KK:_set_position", &seed, &offset)) return nullptr;
  return guarded([&] {
    TS_CHECK_VALUE(offset % 4 == 0, "Generator: expected a position that is a multiple of 4, got ", offset);
    Generator& g = generator_value(self);
    std::lock_guard lock(g.mutex);
    g.seed = seed;
    g.offset = offset;
    return Py_NewRef(self);
  });
}
PyObject* generator_device(PyObject* self, void*) {
  return guarded([&] { return device_object(generator_value(self).device); });
}

// A default generator is wrapped anew whenever it is asked for: the same stream is equal to itself.
PyObject* generator_compare(PyObject* a, PyObject* b, int op) {
  if (!PyObject_TypeCheck(b, &GeneratorType) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((&generator_value(a) == &generator_value(b)) == (op == Py_EQ));
}
Py_hash_t generator_hash(PyObject* self) {
  auto address = static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(&generator_value(self)) >> 4);
  return address == -1 ? -2 : address;
}

PyMethodDef g_generator_object_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O, "Start the stream anew from a seed; returns the generator."},
    {"seed", generator_seed, METH_NOARGS, "Start from a seed drawn from the operating system; returns it."},
    {"initial_seed", generator_initial_seed, METH_NOARGS, "The seed the stream started from."},
    {"_position", generator_state, METH_NOARGS, "(seed, offset)."},
    {"_set_position", generator_set_position, METH_VARARGS, "Set (seed, offset)."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_generator_object_properties[] = {
    {"device", generator_device, nullptr, "Where its numbers are drawn.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject generator_object_make_type() {
  PyTypeObject t = blank_type("tesserack.Generator", sizeof(GeneratorObject),
                              "Generator(device=None)\n--\n\nA stream of random numbers: the same seed gives the same "
                              "numbers on every backend.");
  t.tp_flags |= Py_TPFLAGS_BASETYPE;
  t.tp_new = generator_new;
  t.tp_dealloc = generator_dealloc;
  t.tp_richcompare = generator_compare;
  t.tp_hash = generator_hash;
  t.tp_methods = g_generator_object_methods;
  t.tp_getset = g_generator_object_properties;
  return t;
}

// A method written in Python, on a class the interpreter does not let Python change.
PyObject* add_method(PyObject*, PyObject* args) {
  PyObject *name, *function;
  if (!PyArg_ParseTuple(args, "UO:_add_generator_method", &name, &function)) return nullptr;
  if (PyDict_SetItem(GeneratorType.tp_dict, name, function) < 0) return nullptr;
  PyType_Modified(&GeneratorType);
  return none();
}
PyMethodDef g_generator_object_functions[] = {{"_add_generator_method", add_method, METH_VARARGS, nullptr},
                                              {nullptr, nullptr, 0, nullptr}};

} // namespace

PyTypeObject GeneratorType = generator_object_make_type();

PyObject* generator_object(Generator& g) {
  retain(&g);
  return make(&GeneratorType, &g);
}

void init_generator_type(PyObject* module) {
  checked_status(PyType_Ready(&GeneratorType));
  add_object(module, "Generator", reinterpret_cast<PyObject*>(&GeneratorType));
  checked_status(PyModule_AddFunctions(module, g_generator_object_functions));
}

} // namespace ts::py
