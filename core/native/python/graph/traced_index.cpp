#include "python/graph/traced_index.h"
#include "dispatch/op_handles.h"
#include "python/calls/parse.h"

namespace ts::py {
namespace {

Tensor run(const Operator& op, std::span<const Value> args) {
  Value result;
  Frame f{args.data(), &result, static_cast<int32_t>(args.size()), 1};
  call(op, f);
  return Tensor::adopt(result.tensor);
}

// A bound where the call finds it; None stays none.
void put(PyObject* o, Value& out) {
  int64_t i = 0;
  if (o == Py_None) return;
  if (follow_read(o, out, &out, true)) return;
  TS_CHECK_TYPE(as_int(o, i), "slice indices must be integers or None or have an __index__ method, got ", type_name(o));
  out = Value(i);
  note_number(o, &out);
}

PySliceObject* bounds(PyObject* slice) { return reinterpret_cast<PySliceObject*>(slice); }

} // namespace

Tensor traced_select(const Tensor& t, int64_t dim, PyObject* index) {
  Value args[3] = {Value(t), Value(dim), Value()};
  put(index, args[2]);
  return run(ops::select.get(), args);
}

bool goes_forward(PyObject* slice) {
  int64_t step = 1;
  return bounds(slice)->step == Py_None || (as_int(bounds(slice)->step, step) && step > 0);
}

Tensor traced_slice(const Tensor& t, int64_t dim, PyObject* slice) {
  const PySliceObject& s = *bounds(slice);
  if (s.start == Py_None && s.stop == Py_None && s.step == Py_None) return t;
  Value args[5] = {Value(t), Value(dim), Value(), Value(), Value(int64_t{1})};
  put(s.start, args[2]);
  put(s.stop, args[3]);
  put(s.step, args[4]);
  return run(ops::slice.get(), args);
}

Tensor traced_scalar(PyObject* number, DType dtype, Device device) {
  Value args[5] = {Value(IntSpan()), Value(), Value(dtype), Value(device), Value(false)};
  TS_CHECK_TYPE(as_number(number, args[1]), "tensor: expected a number, got ", type_name(number));
  return run(ops::full.get(), args);
}

} // namespace ts::py
