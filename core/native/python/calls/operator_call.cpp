// Running a bound call and handing its results to Python.
#include "autograd/meta.h"
#include "dispatch/primitive.h"
#include "python/calls/operator_plan.h"
#include "python/graph/traced_size.h"
#include "runtime/pinned.h"
#include <cstring>

namespace ts::py {
namespace {

// Results in place, without the bookkeeping of `Results` for the usual single one.
struct OneResult {
  Value value;
  ~OneResult() {
    if (value.tag == Tag::Tensor)
      release(value.tensor);
    else if (value.tag == Tag::Tensors)
      delete[] value.tensors;
  }
};

PyObject* list_to_tuple(Value& v) {
  std::unique_ptr<Tensor[]> owned(const_cast<Tensor*>(v.tensors));
  v.tag = Tag::None;
  PyRef tuple = checked(PyTuple_New(v.len));
  for (int32_t k = 0; k < v.len; ++k) PyTuple_SET_ITEM(tuple.get(), k, wrap(std::move(owned[static_cast<size_t>(k)])));
  return tuple.release();
}

PyObject* value_to_python(Value& v) {
  switch (v.tag) {
  case Tag::Tensor: {
    v.tag = Tag::None;
    return wrap(Tensor::adopt(v.tensor));
  }
  case Tag::Tensors: return list_to_tuple(v);
  case Tag::Int: return checked(PyLong_FromLongLong(v.i)).release();
  case Tag::Float: return checked(PyFloat_FromDouble(v.f)).release();
  case Tag::Bool: return Py_NewRef(v.i ? Py_True : Py_False);
  default: return none();
  }
}

PyObject* several_to_python(Value* rets, size_t n, PyTypeObject* tuple_type) {
  if (n == 0) return none();
  PyRef out = checked(tuple_type ? PyStructSequence_New(tuple_type) : PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (size_t k = 0; k < n; ++k) PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(k), value_to_python(rets[k]));
  return out.release();
}

PyObject* made_with(const FactoryOptions& options, Value& result) {
  Tensor made = Tensor::adopt(result.tensor);
  result.tag = Tag::None;
  if (options.pin_memory) made = pin_new(made);
  if (options.requires_grad) {
    set_requires_grad(made, true);
    note_leaf();
  }
  return wrap(std::move(made));
}

PyObject* run_single(const Operator& op, Frame& f, Value& result, FactoryOptions options) {
  call(op, f);
  if (options.any()) [[unlikely]]
    return made_with(options, result);
  return value_to_python(result);
}

PyObject* run(const Operator& op, const Value* values, const Signature* s, const std::string* name,
              FactoryOptions options) {
  auto nargs = static_cast<int32_t>(op.schema->args.size());
  auto nrets = static_cast<int32_t>(op.schema->returns.size());
  if (nrets == 1) [[likely]] {
    OneResult r;
    Frame f{values, &r.value, nargs, 1};
    return run_single(op, f, r.value, options);
  }
  Results results;
  Frame f{values, results.data(), nargs, nrets};
  call(op, f);
  if (s && !s->tuple_type && nrets > 1) s->tuple_type = make_tuple_type(*s, *name);
  return several_to_python(results.data(), static_cast<size_t>(nrets),
                           s && s->tuple_type != &PyTuple_Type ? s->tuple_type : nullptr);
}

} // namespace

PyObject* invoke(const Plan& plan, const Signature& s, Bound& bound) {
  FactoryOptions options = bound.options;
  if (s.requires_grad_param >= 0) options.requires_grad |= bound.values()[s.requires_grad_param].i != 0;
  return run(*s.op, bound.values(), &s, &plan.name, options);
}

PyObject* invoke_operator(const Operator& op, const Value* given, size_t n) {
  const Schema& schema = *op.schema;
  ValueBuffer values;
  std::copy_n(given, n, values.data());
  for (size_t k = n; k < schema.args.size(); ++k) values.data()[k] = schema.args[k].default_value;
  return run(op, values.data(), nullptr, nullptr, {});
}

PyObject* invoke_below(const Operator& op, const Value* values, KeySet keys) {
  Results results;
  size_t n = op.schema->returns.size();
  Frame f{values, results.data(), static_cast<int32_t>(op.schema->args.size()), static_cast<int32_t>(n)};
  redispatch(op, f, keys);
  return n == 1 ? value_to_python(results[0]) : several_to_python(results.data(), n, nullptr);
}

PyObject* invoke_decomposition(const Operator& op, const Value* values) {
  Results results;
  size_t n = op.schema->returns.size();
  Frame f{values, results.data(), static_cast<int32_t>(op.schema->args.size()), static_cast<int32_t>(n)};
  run_decomposition(op, f);
  return n == 1 ? value_to_python(results[0]) : several_to_python(results.data(), n, nullptr);
}

PyObject* invoke_single(const Operator& op, const Value* values, int32_t n) {
  OneResult r;
  Frame f{values, &r.value, n, 1};
  call(op, f);
  return value_to_python(r.value);
}

} // namespace ts::py
