// Graphs, what writes them down and what runs them, for the package.
#include "autograd/meta.h"
#include "graph/executor.h"
#include "graph/passes/passes.h"
#include "graph/plan/cache.h"
#include "graph/tracer.h"
#include "python/bound.h"
#include "python/calls/python_dispatch.h"
#include "python/devices/runtime_bindings.h"
#include "python/graph/runner.h"
#include "python/graph/traced_size.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/backend.h"
#include <algorithm>
#include <unordered_set>

namespace ts::py {
void watch_sizes(bool on); // traced_size.cpp
}

namespace ts::py_runtime {
namespace {

using graph::Graph;
using graph::Id;
using graph::Item;
using graph::kNone;
using graph::Node;

std::vector<Tensor> tensors_of(const nb::handle& sequence, const char* what) {
  ts::py::PyRef items = ts::py::checked(PySequence_Fast(sequence.ptr(), "graph: expected a list of tensors"));
  auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get()));
  std::vector<Tensor> out(n);
  for (size_t k = 0; k < n; ++k)
    out[k] = ts::py::expect_tensor(PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k)), what);
  return out;
}
nb::list objects_of(const std::vector<Tensor>& list) {
  nb::list out = ts::py::list_of(list.size());
  for (size_t k = 0; k < list.size(); ++k)
    PyList_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(k), ts::py::wrap(list[k]));
  return out;
}

// The innermost line of Python that is not the package's own: "model.py:12".
std::string line_outside(const std::string& package) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  std::string found;
  while (frame && found.empty()) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    std::string file = ts::py::to_utf8(code->co_filename);
    if (!file.starts_with(package) && !file.starts_with('<')) found = concat(file, ':', PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return found;
}

// A tracer whose program is the block between begin() and end() in Python.
class Recorder {
public:
  // Where `whole` is false, sizes are plain numbers, and what cannot be written down ends the writing alone.
  Recorder(const std::string& package, const nb::callable& warn, bool whole, const nb::object& read)
      : tracer_(surroundings(package, warn, read), !whole), whole_(whole) {}
  ~Recorder() { leave(); }
  void add_input(const nb::object& t, const std::string& name) {
    tracer_.add_input(ts::py::expect_tensor(t.ptr(), "trace"), name);
  }
  void begin() {
    tracer_.begin();
    on_ = true;
    if (whole_) ts::py::watch_sizes(true);
  }
  Graph end(const nb::object& outputs) {
    std::vector<Tensor> list = tensors_of(outputs, "trace");
    leave();
    Graph graph = tracer_.end(list);
    if (!whole_) add_sizes(graph);
    return graph;
  }
  void cancel() {
    leave();
    tracer_.cancel();
  }
  graph::Tracer& tracer() { return tracer_; }

private:
  static graph::Surroundings surroundings(const std::string& package, const nb::callable& warn,
                                          const nb::object& read) {
    graph::Surroundings out{[package] { return line_outside(package); },
                            [warn](const std::string& text) {
                              ts::py::checked(PyObject_CallOneArg(warn.ptr(), ts::py::to_python(text).get()));
                            }};
    if (!read.is_none())
      out.reading = [read](const Tensor& t) {
        ts::py::PyRef tensor = ts::py::checked(ts::py::wrap(t));
        const int compared = PyObject_IsTrue(ts::py::checked(PyObject_CallOneArg(read.ptr(), tensor.get())).get());
        ts::py::checked_status(compared);
        return compared == 1;
      };
    return out;
  }
  // What has sizes that follow from values is a result as well, behind all others.
  static void add_sizes(Graph& g) {
    for (const Node& n : g.nodes)
      if (n.parent == kNone && graph::depends_on_data(g, n)) g.each_def(n, [&](Id v) { g.outputs.push_back(v); });
  }
  void leave() {
    if (std::exchange(on_, false) && whole_) ts::py::watch_sizes(false);
  }
  graph::Tracer tracer_;
  bool whole_, on_ = false;
};

// --- looking at a graph --------------------------------------------------------------------------------------------

const Node& node_at(const Graph& g, Id n) {
  TS_CHECK_INDEX(n < g.nodes.size(), "graph: there is no node ", n);
  return g.nodes[n];
}
const graph::ValueInfo& value_at(const Graph& g, Id v) {
  TS_CHECK_INDEX(v < g.values.size(), "graph: there is no value ", v);
  return g.values[v];
}

nb::object text_or_none(const Graph& g, uint32_t text) {
  return text == kNone ? nb::object(nb::none()) : nb::cast(g.strings[text]);
}

// A value is ("%", number); a constant is itself.
nb::object item_object(const Graph& g, const Item& item, const ArgType& type) {
  if (item.is_value) return nb::make_tuple("%", item.id());
  if (item.tag == Tag::Complex) return ts::py::steal(PyComplex_FromDoubles(g.items[item.at].f, g.items[item.at + 1].f));
  if (item.is_list()) {
    nb::list out;
    ArgType element = type;
    element.list = false;
    for (const Item& e : g.elements(item)) out.append(item_object(g, e, element));
    return out;
  }
  Value v;
  v.tag = item.tag;
  v.i = item.i;
  if (item.tag == Tag::Str) v.str = g.strings[item.at].c_str();
  if (item.tag == Tag::Generator) v.generator = g.generators[item.at].get();
  return ts::py::given_back(ts::py::argument_object(type, v));
}

nb::list items_list(const Graph& g, std::span<const Item> items, const Operator* op, bool results) {
  nb::list out;
  for (size_t k = 0; k < items.size(); ++k) {
    ArgType type;
    if (op && results) type = op->schema->returns[k];
    if (op && !results) type = op->schema->args[k].type;
    out.append(item_object(g, items[k], type));
  }
  return out;
}

nb::dict describe_node(const Graph& g, Id n) {
  const Node& node = node_at(g, n);
  std::string name = node.op ? node.op->name() : std::string(name_of(node.size_op));
  nb::dict out = ts::py::dict_of({{"index", n},
                                  {"op", name},
                                  {"args", items_list(g, g.args(node), node.op, false)},
                                  {"results", items_list(g, g.results(node), node.op, true)},
                                  {"end", node.end},
                                  {"no_grad", node.no_grad},
                                  {"backward", node.backward},
                                  {"line", text_or_none(g, node.line)},
                                  {"module", text_or_none(g, node.path)},
                                  {"random", graph::is_random(node)},
                                  {"writes", graph::written(g, node)}});
  out["parent"] = node.parent == kNone ? nb::object(nb::none()) : nb::int_(node.parent);
  nb::list names;
  if (node.op)
    for (const Argument& a : node.op->schema->args) names.append(a.name);
  out["names"] = names;
  return out;
}

nb::dict describe_value(const Graph& g, Id v) {
  const graph::ValueInfo& info = value_at(g, v);
  if (info.tag == Tag::Int)
    return ts::py::dict_of({{"index", v}, {"kind", "int"}, {"number", info.number.i}, {"producer", info.producer}});
  if (info.tag == Tag::Float)
    return ts::py::dict_of({{"index", v}, {"kind", "float"}, {"number", info.number.f}, {"producer", info.producer}});
  auto list = [](IntSpan dims) { return std::vector<int64_t>(dims.begin(), dims.end()); };
  nb::dict out = ts::py::dict_of({{"index", v},
                                  {"kind", "tensor"},
                                  {"shape", list(g.sizes(info))},
                                  {"stride", list(g.strides(info))},
                                  {"device", to_string(info.device)},
                                  {"requires_grad", info.requires_grad},
                                  {"alias", info.alias},
                                  {"name", text_or_none(g, info.name)}});
  out["dtype"] = nb::borrow<nb::object>(ts::py::dtype_object(info.dtype));
  out["producer"] = info.producer == kNone ? nb::object(nb::none()) : nb::int_(info.producer);
  return out;
}

// The first operator from a node to before another that gives values to Python, or, with `sizes`, results of sizes that
// depend on values; None.
nb::object host_reader(const Graph& g, Id first, Id last, bool sizes) {
  static const std::unordered_set<std::string> answers = {"item", "_local_scalar_dense", "equal", "is_nonzero",
                                                          "allclose"};
  for (Id at = first; at < std::min(last, static_cast<Id>(g.nodes.size())); ++at) {
    const Node& n = g.nodes[at];
    if (n.op && ((sizes && graph::depends_on_data(g, n)) || answers.contains(n.op->schema->base)))
      return nb::cast(n.op->name());
  }
  return nb::none();
}

void rename(Graph& g, Id v, const std::string& name) {
  value_at(g, v);
  g.values[v].name = g.intern(name);
}

graph::Plans plans_named(const std::string& when) {
  if (when == "never") return graph::Plans::Never;
  if (when == "at once") return graph::Plans::AtOnce;
  TS_CHECK_VALUE(when == "again", "_GraphRunner: expected plans to be 'again', 'at once' or 'never', got '", when, "'");
  return graph::Plans::Again;
}

class Runner {
public:
  // `outside`: runs are as outside of all autocast regions.
  Runner(const Graph& g, const std::string& plans, bool outside)
      : executor_(std::make_shared<graph::Executor>(Graph(g), plans_named(plans))), outside_(outside) {}
  // None where `only_fitting`, and sizes, layouts or dtypes are others than were written down.
  PyObject* run(PyObject* inputs, PyObject* captures, PyObject* on_guard, bool only_fitting) const {
    std::vector<Tensor> in = tensors_of(inputs, "graph"), held;
    if (captures) held = tensors_of(captures, "graph");
    if (only_fitting && !executor_->fits(in, held)) Py_RETURN_NONE;
    const WithoutKeys inside(outside_ ? key_bit(key::Autocast) : 0);
    std::function<void(Id)> told;
    if (on_guard && on_guard != Py_None)
      told = [on_guard](Id n) {
        ts::py::checked(PyObject_CallOneArg(on_guard, ts::py::checked(PyLong_FromUnsignedLong(n)).get()));
      };
    return objects_of(executor_->run(in, held, told)).release().ptr();
  }

  bool fits(const nb::object& inputs, const nb::object& captures) const {
    return executor_->fits(tensors_of(inputs, "graph"), tensors_of(captures, "graph"));
  }

  nb::list plans() const {
    nb::list out;
    for (const graph::Plan::Summary& s : executor_->plans().summaries())
      out.append(ts::py::dict_of({{"half", s.half},
                                  {"kernels", s.kernels},
                                  {"fused", s.fused},
                                  {"claimed", s.claimed},
                                  {"recorded", s.recorded},
                                  {"branches", s.branches},
                                  {"called", s.called},
                                  {"arena", s.arena},
                                  {"apart", s.apart},
                                  {"operators", s.operators}}));
    return out;
  }

  std::vector<std::string> why_called() const { return executor_->plans().why_called(); }
  const std::shared_ptr<graph::Executor>& executor() const { return executor_; }
  bool outside() const { return outside_; }

private:
  std::shared_ptr<graph::Executor> executor_;
  bool outside_;
};

// Called by every run of a compiled or traced program: without what nanobind asks of a call.
template <bool only_fitting> PyObject* run_graph(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return ts::py::guarded([&]() -> PyObject* {
    constexpr const char* kNames[] = {"inputs", "captures", "on_guard"};
    PyObject* given[3] = {};
    TS_CHECK_TYPE(n <= 3, "run() takes at most 3 arguments, got ", n);
    std::copy_n(args, n, given);
    for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); ++k) {
      const auto* at = std::ranges::find_if(kNames, [&](const char* name) {
        return PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), name) == 0;
      });
      TS_CHECK_TYPE(at != std::end(kNames) && !given[at - kNames], "run() got an unexpected keyword argument '",
                    ts::py::to_utf8(PyTuple_GET_ITEM(names, k)), "'");
      given[at - kNames] = args[n + k];
    }
    TS_CHECK_TYPE(given[0], "run(): expected inputs, a list of tensors");
    return nb::cast<const Runner&>(nb::handle(self)).run(given[0], given[1], given[2], only_fitting);
  });
}

PyMethodDef g_run_methods[] = {{"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(run_graph<false>)),
                                METH_FASTCALL | METH_KEYWORDS, nullptr},
                               {"run_fitting", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(run_graph<true>)),
                                METH_FASTCALL | METH_KEYWORDS, nullptr}};

void add_methods(const nb::object& type, std::span<PyMethodDef> methods) {
  for (PyMethodDef& method : methods) {
    ts::py::PyRef made = ts::py::checked(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method));
    ts::py::checked_status(PyObject_SetAttrString(type.ptr(), method.ml_name, made.get()));
  }
}

} // namespace

bool is_runner(const nb::object& object) { return nb::isinstance<Runner>(object); }
std::shared_ptr<const graph::Executor> executor_of(const nb::object& runner) {
  return nb::cast<const Runner&>(runner).executor();
}
bool runs_outside(const nb::object& runner) { return nb::cast<const Runner&>(runner).outside(); }

void define_graph(nb::module_& m) {
  nb::class_<Graph>(m, "_Graph", nb::is_weak_referenceable())
      .def_static(
          "parse",
          [](const std::string& text, const nb::object& captured) {
            return graph::parse_text(text, tensors_of(captured, "graph"));
          },
          nb::arg("text"), nb::arg("captured") = nb::tuple())
      .def("__str__", [](const Graph& g) { return graph::to_text(g); })
      .def("verify", [](const Graph& g) { graph::verify(g); })
      .def("outer_level", [](const Graph& g) { return graph::outer_level(g); })
      .def("leaf_level", [](const Graph& g) { return graph::leaf_level(g); })
      .def("part",
           [](const Graph& g, Id begin, Id end) {
             graph::Part part = graph::part_of(g, begin, end);
             return nb::make_tuple(std::move(part.graph), part.inputs, part.outputs);
           })
      .def("casts_first",
           [](const Graph& g) {
             auto [graph, count] = graph::casts_first(g);
             return nb::make_tuple(std::move(graph), count);
           })
      .def("specialised", [](const Graph& g) { return graph::specialised(g); })
      .def("fold", [](const Graph& g) { return graph::fold(g); })
      .def("share_equal", [](const Graph& g) { return graph::share_equal(g); })
      .def("rewrite", [](const Graph& g) { return graph::rewrite(g); })
      .def("only",
           [](const Graph& g, Id v) {
             value_at(g, v);
             Graph made = g;
             made.outputs = {v};
             return graph::without_dead(made);
           })
      .def("dissolved", [](const Graph& g, const std::string& op) { return graph::dissolved(g, op); })
      .def("without_dead", [](const Graph& g) { return graph::without_dead(g); })
      .def(
          "optimised", [](const Graph& g, bool freeze, bool any_size) { return graph::optimised(g, freeze, any_size); },
          nb::arg("freeze") = false, nb::arg("any_size") = false)
      .def("node", describe_node)
      .def("value", describe_value)
      .def("rename", rename)
      .def_prop_ro("has_backward", [](const Graph& g) { return graph::has_backward(g); })
      .def_prop_ro("writes_memory", [](const Graph& g) { return graph::writes_memory(g); })
      .def("host_reader", host_reader, nb::arg("first") = 0, nb::arg("last") = kNone, nb::arg("sizes") = true)
      .def_prop_ro("has_random",
                   [](const Graph& g) {
                     return std::ranges::any_of(g.nodes, [](const Node& n) { return graph::is_random(n); });
                   })
      .def_prop_ro("num_nodes", [](const Graph& g) { return g.nodes.size(); })
      .def_prop_ro("num_values", [](const Graph& g) { return g.values.size(); })
      .def_prop_ro("inputs", [](const Graph& g) { return g.inputs; })
      .def_prop_ro("captures", [](const Graph& g) { return g.captures; })
      .def_prop_ro("outputs", [](const Graph& g) { return g.outputs; })
      .def_prop_ro("constant", [](const Graph& g) { return g.constant; })
      .def_prop_ro("captured", [](const Graph& g) { return objects_of(g.captured); });
  nb::class_<Recorder>(m, "_Tracer", nb::is_weak_referenceable())
      .def(nb::init<const std::string&, const nb::callable&, bool, const nb::object&>(), nb::arg("package"),
           nb::arg("warn"), nb::arg("whole") = true, nb::arg("read") = nb::none())
      .def("add_input", &Recorder::add_input)
      .def("begin", &Recorder::begin)
      .def("end", &Recorder::end)
      .def("cancel", &Recorder::cancel)
      .def_prop_ro("makes_leaves", [](Recorder& r) { return r.tracer().makes_leaves(); })
      .def_prop_ro("num_calls", [](Recorder& r) { return r.tracer().num_calls(); })
      .def_prop_ro("failed", [](Recorder& r) { return r.tracer().failed(); })
      .def("enter_module", [](Recorder& r, const std::string& path) { r.tracer().enter_module(path); })
      .def("leave_module", [](Recorder& r) { r.tracer().leave_module(); });
  nb::class_<Runner>(m, "_GraphRunner", nb::is_weak_referenceable())
      .def(nb::init<const Graph&, const std::string&, bool>(), nb::arg("graph"), nb::arg("plans") = "again",
           nb::arg("outside") = false)
      .def("plans", &Runner::plans)
      .def("why_called", &Runner::why_called)
      .def("fits", &Runner::fits, nb::arg("inputs"), nb::arg("captures") = nb::tuple());
  add_methods(m.attr("_GraphRunner"), g_run_methods);
}

} // namespace ts::py_runtime
