// Sizes of tensors while a program is written down (graph/tracer.h): an int of a class of the package's own, which
// knows what value of the graph it is, so that what is computed from it follows the sizes of later inputs.
#pragma once
#include "python/common.h"
#include "tensor/tensor.h"

namespace ts::py {

// That class; NULL while no thread writes a program down.
inline PyTypeObject* traced_int = nullptr;

PyObject* traced_size_object(const Tensor& t);       // as size_object
PyObject* traced_size(const Tensor& t, int64_t dim); // one of them
PyObject* traced_numel(const Tensor& t);
// That an argument, at this place, came from this object, if it is one of the class.
void link_traced(PyObject* o, const void* place, int64_t number);
inline void note_number(PyObject* o, const void* place, int64_t number) {
  if (traced_int) [[unlikely]]
    link_traced(o, place, number);
}
// Values of the tensor become numbers of Python; `what`, as PyTorch says it: "Python boolean".
void note_host_read(const Tensor& t, const char* what);
void warn_traced(const char* text);
bool is_tracing(); // this thread
// A function with a gradient of its own is about to run on these arguments.
void note_traced_function(PyObject* const* args, size_t n);
inline void note_function(PyObject* const* args, size_t n) {
  if (traced_int) [[unlikely]]
    note_traced_function(args, n);
}

void init_traced_size(PyObject* module);

} // namespace ts::py
