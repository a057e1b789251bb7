#include "python/graph/program.h"
#include "autograd/meta.h"
#include "dispatch/operator.h"
#include "python/tensor/tensor_object.h"
#include "runtime/backend.h"
#include <algorithm>
#include <numeric>

namespace ts::py_runtime {

using ts::py::checked;
using ts::py::PyRef;

bool is_hooked(const graph::Executor& graph) {
  return std::ranges::any_of(graph.graph().captured, [](const Tensor& t) {
    const AutogradMeta* meta = autograd_meta(t.impl());
    return meta && (meta->leaf_hooks || (meta->accumulator && meta->accumulator->hooks));
  });
}

namespace {

std::vector<Tensor> call_python(PyObject* call, const std::vector<Tensor>& args) {
  std::vector<PyRef> held;
  std::vector<PyObject*> given;
  held.reserve(args.size());
  given.reserve(args.size());
  for (const Tensor& t : args) given.push_back(held.emplace_back(checked(ts::py::wrap(t))).get());
  PyRef made = checked(PyObject_Vectorcall(call, given.data(), given.size(), nullptr));
  PyRef items = checked(PySequence_Fast(made.get(), "compile: expected a list of tensors"));
  std::vector<Tensor> out;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k)
    out.push_back(ts::py::expect_tensor(PySequence_Fast_GET_ITEM(items.get(), k), "compile"));
  return out;
}

} // namespace

void Program::finish() {
  std::vector<bool> needed(n_values);
  for (uint32_t v : outputs) needed[v] = true;
  for (const auto& [v, tensor] : held) needed[v] = true;
  for (size_t k = steps.size(); k-- > 0;)
    for (const std::vector<uint32_t>* list : {&steps[k].given, &steps[k].gives})
      for (uint32_t v : *list)
        if (!needed[v]) {
          needed[v] = true;
          steps[k].done.push_back(v);
        }
  const bool alone = steps.size() == 1 && steps[0].graph && !steps[0].outside && !in_order;
  if (alone && steps[0].given == inputs && steps[0].gives == outputs) only_ = steps[0].graph.get();
}

std::string bytes_of(const Tensor& contiguous) {
  std::string out(static_cast<size_t>(contiguous.numel() * contiguous.item_size()), '\0');
  if (!out.empty()) copy_bytes_to_host(out.data(), contiguous, out.size(), "compile");
  return out;
}

namespace {

Program::Check read(const Tensor& t, const Program::Check& like) {
  return {like.at, like.reads, {t.sizes().begin(), t.sizes().end()}, like.reads ? bytes_of(t) : std::string()};
}

thread_local std::vector<Program::Check> t_met; // up to the first that is another

} // namespace

// Where Python has gone by values the graph is that of these values.
void Program::run(std::span<const Tensor> in, std::vector<Tensor>& out) const {
  if (!checks.empty()) t_met.clear();
  run_any(in, out);
  for (size_t k = 0; k < checks.size(); ++k) {
    Check now = read(out[checks[k].at], checks[k]);
    if (now == checks[k]) continue;
    t_met.assign(checks.begin(), checks.begin() + static_cast<ptrdiff_t>(k));
    t_met.push_back(std::move(now));
    fail(ErrorKind::Runtime, "compile: other values than those that this graph is of");
  }
}

// Up to where they part, graphs of one function read the same.
bool Program::may_be_meant() const {
  return std::equal(t_met.begin(), t_met.begin() + static_cast<ptrdiff_t>(std::min(t_met.size(), checks.size())),
                    checks.begin());
}

Program::Check Program::read_first(std::span<const Tensor> in) const {
  const GradMode off(false);
  std::vector<Tensor> out;
  first_read->run(in, {}, {}, out);
  return read(out[0], checks[0]);
}

void Program::run_any(std::span<const Tensor> in, std::vector<Tensor>& out) const {
  if (only_) return only_->run(in, {}, {}, out);
  TS_CHECK(in.size() == inputs.size(), "compile: expected ", inputs.size(), " tensors, got ", in.size());
  if (in_order && std::ranges::any_of(steps, [](const Step& s) { return s.graph && is_hooked(*s.graph); }))
    return in_order->run(in, {}, {}, out);
  run_steps(in, out);
}

void Program::run_steps(std::span<const Tensor> in, std::vector<Tensor>& out) const {
  std::vector<Tensor> values(n_values), args, made;
  for (const auto& [v, tensor] : held) values[v] = tensor;
  for (size_t k = 0; k < in.size(); ++k) values[inputs[k]] = in[k];
  for (const Step& step : steps) {
    args.clear();
    for (uint32_t v : step.given) args.push_back(values[v]);
    made.clear();
    if (step.graph) {
      const WithoutKeys outside(step.outside ? key_bit(key::Autocast) : 0);
      step.graph->run(args, {}, {}, made);
    } else {
      PyRef call = step.call;
      TS_CHECK(call, "compile: the program is gone");
      made = call_python(call.get(), args);
    }
    TS_CHECK(made.size() == step.gives.size(), "compile: expected ", step.gives.size(), " results of a step, got ",
             made.size());
    for (size_t k = 0; k < made.size(); ++k) values[step.gives[k]] = std::move(made[k]);
    for (uint32_t v : step.done) values[v] = Tensor();
  }
  out.reserve(outputs.size());
  for (uint32_t v : outputs) out.push_back(values[v]);
}

namespace {

PyObject* build(const Shape& shape, std::span<PyObject* const> in, const std::vector<Tensor>& out);

PyRef build_list(const Shape& shape, std::span<PyObject* const> in, const std::vector<Tensor>& out) {
  const auto n = static_cast<Py_ssize_t>(shape.parts.size());
  const bool tuple = shape.kind == Shape::Kind::Tuple;
  PyRef made = checked(tuple ? PyTuple_New(n) : PyList_New(n));
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* item = checked(build(shape.parts[static_cast<size_t>(k)], in, out)).release();
    if (tuple)
      PyTuple_SET_ITEM(made.get(), k, item);
    else
      PyList_SET_ITEM(made.get(), k, item);
  }
  return made;
}

PyObject* build(const Shape& shape, std::span<PyObject* const> in, const std::vector<Tensor>& out) {
  switch (shape.kind) {
  case Shape::Kind::Output: return ts::py::wrap(out[shape.at]);
  case Shape::Kind::Input: return Py_NewRef(in[shape.at]);
  case Shape::Kind::Number: {
    PyRef tensor = checked(ts::py::wrap(out[shape.at]));
    return PyObject_CallMethod(tensor.get(), "item", nullptr);
  }
  case Shape::Kind::Value: return Py_NewRef(shape.object.get());
  case Shape::Kind::Tuple:
  case Shape::Kind::List: return build_list(shape, in, out).release();
  case Shape::Kind::Dict: break;
  }
  PyRef made = checked(PyDict_New());
  for (size_t k = 0; k < shape.parts.size(); ++k) {
    PyRef item = checked(build(shape.parts[k], in, out));
    ts::py::checked_status(
        PyDict_SetItem(made.get(), PyTuple_GET_ITEM(shape.object.get(), static_cast<Py_ssize_t>(k)), item.get()));
  }
  return made.release();
}

template <class F> int each_object(const Shape& shape, F visit) {
  if (int status = visit(shape.object.get())) return status;
  for (const Shape& part : shape.parts)
    if (int status = each_object(part, visit)) return status;
  return 0;
}

} // namespace

PyObject* Program::result(std::span<PyObject* const> in, std::vector<Tensor>& out) const {
  if (shape.kind == Shape::Kind::Output) return ts::py::wrap(std::move(out[shape.at]));
  return build(shape, in, out);
}

int Program::traverse(visitproc visit, void* arg) const {
  for (const Step& step : steps) Py_VISIT(step.call.get());
  return each_object(shape, [&](PyObject* object) {
    Py_VISIT(object);
    return 0;
  });
}

void Program::clear() {
  has_shape = false;
  Shape gone = std::exchange(shape, {});
  std::vector<PyRef> calls;
  for (Step& step : steps) calls.push_back(std::move(step.call));
}

} // namespace ts::py_runtime
