// From Python objects to operator arguments, by types of a schema.
#pragma once
#include "dispatch/schema.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"

namespace ts::py {

// Memory of the list arguments of one call; tensors in lists are kept alive by it.
class Scratch {
public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { reset(); }
  int64_t* words(size_t n);  // also room for doubles
  Tensor* tensors(size_t n); // n undefined tensors
  // Forgets everything, for another attempt.
  void reset() {
    used_words_ = 0;
    if (used_tensors_ || more_words_ || more_tensors_) [[unlikely]]
      drop();
  }

private:
  void drop();
  static constexpr size_t kWords = 48, kTensors = 12;
  size_t used_words_ = 0, used_tensors_ = 0;
  std::unique_ptr<std::vector<std::unique_ptr<int64_t[]>>> more_words_;
  std::unique_ptr<std::vector<std::unique_ptr<Tensor[]>>> more_tensors_;
  int64_t words_[kWords];
  alignas(Tensor) unsigned char tensors_[kTensors * sizeof(Tensor)];
};

// Whether (and as what value) `o` is a value of type `t`. False: it is not. Throws only for values out of range and
// errors of the object's own methods. A single int makes an int[n], and with `lenient` any int[].
bool convert(const ArgType& t, PyObject* o, Value& out, Scratch& scratch, bool lenient);

bool as_int(PyObject* o, int64_t& out);
// As an argument of an operator, where a tensor of one element in any number of dimensions is an int too.
bool as_int_argument(PyObject* o, int64_t& out);
bool as_number(PyObject* o, Value& out); // Int, Float or Bool; numbers, NumPy scalars, tensors of one element
// The same or a complex number, whose parts stand in `parts`, which must live as long as `out`.
bool as_any_number(PyObject* o, Value& out, double* parts);
bool as_int_list(PyObject* o, Value& out, Scratch& scratch);
// The single element as a number. RuntimeError unless there is exactly one.
Value item_value(const Tensor& t);

// How a type reads in messages: "tuple of ints".
std::string friendly(const ArgType& t);
// numpy.ndarray and numpy.generic if NumPy was imported, else NULL; borrowed.
PyTypeObject* numpy_array_type();
PyTypeObject* numpy_scalar_type();

} // namespace ts::py
