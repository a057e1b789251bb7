// Guards, programs and compiled functions, for the package.
#include "python/graph/compiled_function.h"
#include "python/graph/runner.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace pb = pybind11;

namespace ts::py_runtime {

void define_existing(pb::module_& m); // existing.cpp
void define_tokens(pb::module_& m);   // tokens.cpp

namespace {

using Ids = std::vector<uint32_t>;

// --- programs -------------------------------------------------------------------------------------------------------

// (kind, what): "output", "input" or "number" and which, "value" and the object, "tuple" or "list" and its items,
// "dict" and a dict.
Shape shape_of(const pb::tuple& given) {
  const auto kind = given[0].cast<std::string>();
  Shape out;
  if (kind == "value") {
    out.object = ts::py::PyRef::borrow(pb::object(given[1]).ptr());
    return out;
  }
  if (kind == "output" || kind == "input" || kind == "number") {
    out.kind = kind == "output" ? Shape::Kind::Output : kind == "input" ? Shape::Kind::Input : Shape::Kind::Number;
    out.at = given[1].cast<uint32_t>();
    return out;
  }
  if (kind == "dict") {
    const pb::dict items = given[1];
    out.kind = Shape::Kind::Dict;
    out.object = ts::py::checked(PySequence_Tuple(items.ptr()));
    for (const auto& item : items) out.parts.push_back(shape_of(pb::reinterpret_borrow<pb::tuple>(item.second)));
    return out;
  }
  TS_CHECK_VALUE(kind == "tuple" || kind == "list", "_GraphProgram: expected a kind of result, got '", kind, "'");
  out.kind = kind == "tuple" ? Shape::Kind::Tuple : Shape::Kind::List;
  for (const pb::handle& item : pb::list(given[1])) out.parts.push_back(shape_of(item.cast<pb::tuple>()));
  return out;
}

uint32_t most(const Ids& ids) {
  uint32_t n = 0;
  for (uint32_t id : ids) n = std::max(n, id + 1);
  return n;
}

// `steps`: (runner or what is called, values that it is given, values that it gives) each.
std::shared_ptr<Program> make_program(const Ids& inputs, const pb::list& steps, const Ids& outputs,
                                      const pb::dict& held, const pb::object& in_order) {
  auto out = std::make_shared<Program>();
  out->inputs = inputs;
  out->outputs = outputs;
  uint32_t n = std::max(most(inputs), most(outputs));
  for (const pb::handle& item : steps) {
    auto [run, given, gives] = item.cast<std::tuple<pb::object, Ids, Ids>>();
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
    out->held.emplace_back(value.cast<uint32_t>(), ts::py::expect_tensor(tensor.ptr(), "compile"));
    n = std::max(n, out->held.back().first + 1);
  }
  if (!in_order.is_none()) out->in_order = executor_of(in_order);
  out->n_values = n;
  out->finish();
  return out;
}

pb::list run_program(const Program& program, const pb::object& tensors) {
  std::vector<Tensor> in, out;
  for (const pb::handle& t : tensors) in.push_back(ts::py::expect_tensor(t.ptr(), "compile"));
  program.run(in, out);
  pb::list made(out.size());
  for (size_t k = 0; k < out.size(); ++k)
    PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(k), ts::py::wrap(std::move(out[k])));
  return made;
}

// --- what the garbage collector sees ---------------------------------------------------------------------------------

template <class T> T* held_by(PyObject* self) {
  auto* instance = reinterpret_cast<pb::detail::instance*>(self);
  pb::detail::value_and_holder held = instance->get_value_and_holder();
  return held.holder_constructed() ? static_cast<T*>(held.value_ptr()) : nullptr;
}

template <class T> void let_collect(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    const T* held = held_by<T>(self);
    return held ? held->traverse(visit, arg) : 0;
  };
  type->ht_type.tp_clear = [](PyObject* self) {
    if (T* held = held_by<T>(self)) held->clear();
    return 0;
  };
}

// --- graphs by the calls that they are for ---------------------------------------------------------------------------

std::string signature_of(const pb::tuple& args, const pb::dict& kwargs) {
  Arguments found;
  return found.read(args.ptr(), kwargs.ptr()) ? std::string(found.key.view()) : std::string();
}

void add_entry(Replays& replays, const std::string& signature, const std::shared_ptr<Guard>& guard, int place,
               const std::shared_ptr<Program>& program) {
  replays.add(signature, {guard, place, program && program->has_shape ? program : nullptr});
}

// The place of one that holds, and the call's tensors. None if none holds or the call is not plain; False where there
// is none for the call's signature.
pb::object find_entry(const Replays& replays, const pb::tuple& args, const pb::dict& kwargs) {
  Arguments given;
  if (replays.empty() || !given.read(args.ptr(), kwargs.ptr())) return pb::none();
  const Replays::List* there = replays.with_key(given.key.view());
  if (!there) return pb::bool_(false);
  const auto found = Replays::holding(*there, given);
  if (!found) return pb::none();
  pb::list tensors;
  for (PyObject* t : given.tensors) tensors.append(pb::handle(t));
  return pb::make_tuple(found->place, tensors);
}

bool guard_holds(const Guard& guard, const pb::list& tensors) {
  std::vector<PyObject*> list;
  for (const pb::handle& t : tensors) list.push_back(t.ptr());
  return guard.holds(list);
}

std::shared_ptr<Guard> make_guard(const pb::list& watched, const pb::list& held, const pb::object& base) {
  const Guard* under = base.is_none() ? nullptr : base.cast<const Guard*>();
  return std::make_shared<Guard>(watched.ptr(), held.ptr(), under, under ? base.ptr() : nullptr);
}

} // namespace

void define_guards(pb::module_& m) {
  m.def("_call_signature",
        [](const pb::tuple& args, const pb::dict& kwargs) { return pb::bytes(signature_of(args, kwargs)); });
  pb::class_<Guard, std::shared_ptr<Guard>>(m, "_Guard", pb::custom_type_setup(let_collect<Guard>))
      .def(pb::init(&make_guard), pb::arg("watched"), pb::arg("held"), pb::arg("base") = pb::none())
      .def("holds", &guard_holds)
      .def("__len__", &Guard::size)
      .def_property_readonly("complete", &Guard::complete);
  define_existing(m);
  define_tokens(m);
  pb::class_<Program, std::shared_ptr<Program>>(m, "_GraphProgram", pb::custom_type_setup(let_collect<Program>))
      .def(pb::init(&make_program), pb::arg("inputs"), pb::arg("steps"), pb::arg("outputs"),
           pb::arg("held") = pb::dict(), pb::arg("in_order") = pb::none())
      .def("returns",
           [](Program& program, const pb::tuple& shape) {
             program.shape = shape_of(shape);
             program.has_shape = true;
           })
      .def("expects",
           [](Program& program, size_t at, const std::vector<int64_t>& sizes, const pb::object& values) {
             TS_CHECK_INDEX(at < program.outputs.size(), "_GraphProgram: there is no result ", at);
             std::string bytes;
             if (!values.is_none()) bytes = bytes_of(ts::py::expect_tensor(values.ptr(), "compile"));
             program.checks.push_back({at, !values.is_none(), sizes, std::move(bytes)});
           })
      .def("may_be_meant", &Program::may_be_meant)
      .def("asks",
           [](Program& program, const pb::object& first_read) {
             TS_CHECK_VALUE(!program.checks.empty(), "_GraphProgram: no values are compared");
             program.first_read = executor_of(first_read);
             program.quiet = 0;
           })
      .def("run", &run_program);
  pb::class_<Replays, std::shared_ptr<Replays>>(m, "_Replays")
      .def(pb::init<>())
      .def("add", &add_entry, pb::arg("signature"), pb::arg("guard"), pb::arg("place"), pb::arg("program") = pb::none())
      .def("find", &find_entry);
  m.def("_use_replays", [](const pb::object& compiled, std::shared_ptr<Replays> replays) {
    use_replays(compiled.ptr(), std::move(replays));
  });
  m.def("_allow_quick", &allow_quick);
  init_compiled_function(m.ptr());
}

} // namespace ts::py_runtime
