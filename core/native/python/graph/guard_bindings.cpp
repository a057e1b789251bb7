// Guards, programs and compiled functions, for the package.
#include "python/bound.h"
#include "python/graph/compiled_function.h"
#include "python/graph/runner.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

namespace ts::py_runtime {

void define_existing(nb::module_& m); // existing.cpp
void define_tokens(nb::module_& m);   // tokens.cpp

namespace {

using Ids = std::vector<uint32_t>;

// --- programs -------------------------------------------------------------------------------------------------------

// (kind, what): "output", "input" or "number" and which, "value" and the object, "tuple" or "list" and its items,
// "dict" and a dict.
Shape shape_of(const nb::tuple& given) {
  const auto kind = nb::cast<std::string>(given[0]);
  Shape out;
  if (kind == "value") {
    out.object = ts::py::PyRef::borrow(given[1].ptr());
    return out;
  }
  if (kind == "output" || kind == "input" || kind == "number") {
    out.kind = kind == "output" ? Shape::Kind::Output : kind == "input" ? Shape::Kind::Input : Shape::Kind::Number;
    out.at = nb::cast<uint32_t>(given[1]);
    return out;
  }
  if (kind == "dict") {
    const auto items = nb::cast<nb::dict>(given[1]);
    out.kind = Shape::Kind::Dict;
    out.object = ts::py::checked(PySequence_Tuple(items.ptr()));
    for (const auto& item : items) out.parts.push_back(shape_of(nb::borrow<nb::tuple>(item.second)));
    return out;
  }
  TS_CHECK_VALUE(kind == "tuple" || kind == "list", "_GraphProgram: expected a kind of result, got '", kind, "'");
  out.kind = kind == "tuple" ? Shape::Kind::Tuple : Shape::Kind::List;
  for (const nb::handle& item : nb::list(given[1])) out.parts.push_back(shape_of(nb::cast<nb::tuple>(item)));
  return out;
}

uint32_t most(const Ids& ids) {
  uint32_t n = 0;
  for (uint32_t id : ids) n = std::max(n, id + 1);
  return n;
}

// `steps`: (runner or what is called, values that it is given, values that it gives) each.
std::shared_ptr<Program> make_program(const Ids& inputs, const nb::list& steps, const Ids& outputs,
                                      const nb::dict& held, const nb::object& in_order) {
  auto out = std::make_shared<Program>();
  out->inputs = inputs;
  out->outputs = outputs;
  uint32_t n = std::max(most(inputs), most(outputs));
  for (const nb::handle& item : steps) {
    auto [run, given, gives] = nb::cast<std::tuple<nb::object, Ids, Ids>>(item);
    Program::Step step;
    if (is_runner(run)) {
      step.graph = executor_of(run);
      step.outside = runs_outside(run);
    } else {
      step.call = ts::py::PyRef::borrow(run.ptr());
    }
    n = std::max({n, most(given), most(gives)});
    step.given = std::move(given);
    step.gives = std::move(gives);
    out->steps.push_back(std::move(step));
  }
  for (const auto& [value, tensor] : held) {
    out->held.emplace_back(nb::cast<uint32_t>(value), ts::py::expect_tensor(tensor.ptr(), "compile"));
    n = std::max(n, out->held.back().first + 1);
  }
  if (!in_order.is_none()) out->in_order = executor_of(in_order);
  out->n_values = n;
  out->finish();
  return out;
}

nb::list run_program(const Program& program, const nb::object& tensors) {
  std::vector<Tensor> in, out;
  for (const nb::handle& t : tensors) in.push_back(ts::py::expect_tensor(t.ptr(), "compile"));
  program.run(in, out);
  nb::list made = ts::py::list_of(out.size());
  for (size_t k = 0; k < out.size(); ++k)
    PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(k), ts::py::wrap(std::move(out[k])));
  return made;
}

// --- what the garbage collector sees ---------------------------------------------------------------------------------

template <class T> T* held_by(PyObject* self) { return nb::inst_ready(self) ? nb::inst_ptr<T>(self) : nullptr; }

template <class T> int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const T* held = held_by<T>(self);
  return held ? held->traverse(visit, arg) : 0;
}
template <class T> int clear(PyObject* self) {
  if (T* held = held_by<T>(self)) held->clear();
  return 0;
}
template <class T>
PyType_Slot collected[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear<T>)},
                           {0, nullptr}};

// --- graphs by the calls that they are for ---------------------------------------------------------------------------

std::string signature_of(const nb::tuple& args, const nb::dict& kwargs) {
  Arguments found;
  return found.read(args.ptr(), kwargs.ptr()) ? std::string(found.key.view()) : std::string();
}

void add_entry(Replays& replays, const nb::bytes& signature, const std::shared_ptr<Guard>& guard, int place,
               const std::shared_ptr<Program>& program) {
  replays.add(std::string(ts::py::view(signature)), {guard, place, program && program->has_shape ? program : nullptr});
}

// The place of one that holds, and the call's tensors. None if none holds or the call is not plain; False where there
// is none for the call's signature.
nb::object find_entry(const Replays& replays, const nb::tuple& args, const nb::dict& kwargs) {
  Arguments given;
  if (replays.empty() || !given.read(args.ptr(), kwargs.ptr())) return nb::none();
  const Replays::List* there = replays.with_key(given.key.view());
  if (!there) return nb::bool_(false);
  const auto found = Replays::holding(*there, given);
  if (!found) return nb::none();
  nb::list tensors;
  for (PyObject* t : given.tensors) tensors.append(nb::handle(t));
  return nb::make_tuple(found->place, tensors);
}

bool guard_holds(const Guard& guard, const nb::list& tensors) {
  std::vector<PyObject*> list;
  for (const nb::handle& t : tensors) list.push_back(t.ptr());
  return guard.holds(list);
}

std::shared_ptr<Guard> make_guard(const nb::list& watched, const nb::list& held, const nb::object& base) {
  const Guard* under = base.is_none() ? nullptr : nb::cast<const Guard*>(base);
  return std::make_shared<Guard>(watched.ptr(), held.ptr(), under, under ? base.ptr() : nullptr);
}

} // namespace

void define_guards(nb::module_& m) {
  m.def("_call_signature",
        [](const nb::tuple& args, const nb::dict& kwargs) { return ts::py::to_bytes(signature_of(args, kwargs)); });
  nb::class_<Guard>(m, "_Guard", nb::type_slots(collected<Guard>), nb::is_weak_referenceable())
      .def(nb::new_(&make_guard), nb::arg("watched"), nb::arg("held"), nb::arg("base") = nb::none())
      .def("holds", &guard_holds)
      .def("__len__", &Guard::size)
      .def_prop_ro("complete", &Guard::complete);
  define_existing(m);
  define_tokens(m);
  nb::class_<Program>(m, "_GraphProgram", nb::type_slots(collected<Program>), nb::is_weak_referenceable())
      .def(nb::new_(&make_program), nb::arg("inputs"), nb::arg("steps"), nb::arg("outputs"),
           nb::arg("held") = nb::dict(), nb::arg("in_order") = nb::none())
      .def("returns",
           [](Program& program, const nb::tuple& shape) {
             program.shape = shape_of(shape);
             program.has_shape = true;
           })
      .def("expects",
           [](Program& program, size_t at, const std::vector<int64_t>& sizes, const nb::object& values) {
             TS_CHECK_INDEX(at < program.outputs.size(), "_GraphProgram: there is no result ", at);
             std::string bytes;
             if (!values.is_none()) bytes = bytes_of(ts::py::expect_tensor(values.ptr(), "compile"));
             program.checks.push_back({at, !values.is_none(), sizes, std::move(bytes)});
           })
      .def("may_be_meant", &Program::may_be_meant)
      .def("asks",
           [](Program& program, const nb::object& first_read) {
             TS_CHECK_VALUE(!program.checks.empty(), "_GraphProgram: no values are compared");
             program.first_read = executor_of(first_read);
             program.quiet = 0;
           })
      .def("run", &run_program);
  nb::class_<Replays>(m, "_Replays", nb::is_weak_referenceable())
      .def(nb::new_([] { return std::make_shared<Replays>(); }))
      .def("add", &add_entry, nb::arg("signature"), nb::arg("guard"), nb::arg("place"), nb::arg("program") = nb::none())
      .def("find", &find_entry);
  m.def(
      "_use_replays",
      [](const nb::object& compiled, std::shared_ptr<Replays> replays) {
        use_replays(compiled.ptr(), std::move(replays));
      },
      nb::arg("compiled"), nb::arg("replays").none());
  m.def("_allow_quick", &allow_quick);
  init_compiled_function(m.ptr());
}

} // namespace ts::py_runtime
