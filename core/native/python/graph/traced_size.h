// Sizes of tensors while a program is written down (graph/tracer.h), and what Python makes of them: objects of classes
// of the package's own, which know what value of the graph they are, so that what is computed from them follows the
// sizes of later inputs.
#pragma once
#include "python/common.h"
#include "tensor/tensor.h"

namespace ts::py {

// The class of whole ones; NULL while no thread writes a program down.
inline PyTypeObject* traced_int = nullptr;

PyObject* traced_size_object(const Tensor& t);       // as size_object
PyObject* traced_size(const Tensor& t, int64_t dim); // one of them
PyObject* traced_numel(const Tensor& t);
PyObject* traced_stride(const Tensor& t, int64_t dim);
// Whether the code that calls is the program's, not the package's.
bool program_calls();
bool is_traced_int(PyObject* o);
// What an object of the classes is, without a guard; false for others.
bool traced_number(PyObject* o, Value& out);
// That an argument, at this place, came from this object, if it is of the classes.
void link_traced(PyObject* o, const void* place);
inline void note_number(PyObject* o, const void* place) {
  if (traced_int) [[unlikely]]
    link_traced(o, place);
}
// Values of the tensor become numbers of Python; `what`, as PyTorch says it: "Python boolean".
// The number that a tensor of the program holds, as the argument at this place, which later runs read anew; false where
// that is not possible.
bool read_traced(PyObject* o, Value& out, const void* place, bool whole);
inline bool follow_read(PyObject* o, Value& out, const void* place, bool whole) {
  return traced_int && read_traced(o, out, place, whole);
}
void note_host_read(const Tensor& t, const char* what);
void warn_traced(const char* text);
bool is_tracing(); // this thread
// A function with a gradient of its own is about to run on these arguments.
void note_traced_function(PyObject* const* args, size_t n);
inline void note_function(PyObject* const* args, size_t n) {
  if (traced_int) [[unlikely]]
    note_traced_function(args, n);
}

// A tensor that nobody has computed is about to require gradients; a graph would make one that does not.
void note_leaf();

void init_traced_size(PyObject* module);

} // namespace ts::py
