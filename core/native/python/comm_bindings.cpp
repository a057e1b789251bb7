// tesserack._native._LocalGroup and _SocketGroup: the communicators of ranks on one machine and on several. Memory
// comes as addresses, checked by the caller in tesserack.distributed to be dense and on the host.
#include "python/comm_bindings.h"
#include "comm/local.h"
#include "comm/sockets.h"
#include "python/bound.h"
#include "python/comm_quick.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include "tensor/outside.h"
#include <limits>
#include <nanobind/stl/optional.h>
#include <optional>

namespace ts::py {
namespace {

using comm::Call;
using comm::Group;
using comm::LocalGroup;
using comm::SocketGroup;
using Addresses = std::vector<uintptr_t>;

DType dtype_of(const nb::handle& o) {
  std::optional<DType> t = as_dtype(o.ptr());
  TS_CHECK_TYPE(t, "communicator: expected a dtype, got ", type_name(o.ptr()));
  return *t;
}
comm::Reduction reduction_of(int code) {
  TS_CHECK_VALUE(code >= 0 && code <= static_cast<int>(comm::Reduction::Xor), "communicator: unknown reduction ", code);
  return static_cast<comm::Reduction>(code);
}
void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }
std::vector<void*> pointers(const Addresses& addresses) {
  std::vector<void*> found(addresses.size());
  for (size_t k = 0; k < found.size(); ++k) found[k] = at(addresses[k]);
  return found;
}
comm::ConstParts read_only(const std::vector<void*>& parts) {
  return {const_cast<const void* const*>(parts.data()), parts.size()};
}

// The interpreter is released: other ranks may be threads' workers, and waiting may be long. By the core's own way,
// which knows then that it may ask for signals.
template <class F> auto released(F&& f) {
  SuspendInterpreter released(std::numeric_limits<int64_t>::max());
  return f();
}

void define(nb::class_<Group>& c) {
  using namespace nb::literals;
  c.def_prop_ro("rank", &Group::rank);
  c.def_prop_ro("ranks", &Group::ranks);
  c.def_prop_ro("aborted", &Group::aborted);
  c.def("abort", &Group::abort, "reason"_a);
  c.def("settle", [](Group& g, double timeout) { released([&] { g.settle(timeout); }); });
  c.def("barrier", [](Group& g, double timeout, const std::string& where) {
    released([&] { g.barrier({"barrier", DType::Undefined, timeout, where.c_str()}); });
  });
  c.def("broadcast", [](Group& g, uintptr_t data, int64_t count, nb::handle dtype, int root, double timeout,
                        const std::string& where) {
    Call call{"broadcast", dtype_of(dtype), timeout, where.c_str(), root};
    released([&] { g.broadcast(call, at(data), count); });
  });
  c.def("all_reduce", [](Group& g, uintptr_t from, uintptr_t to, int64_t count, nb::handle dtype, int reduction,
                         double timeout, const std::string& where) {
    Call call{"all_reduce", dtype_of(dtype), timeout, where.c_str(), 0, reduction_of(reduction)};
    released([&] { g.all_reduce(call, at(from), at(to), count); });
  });
  c.def("reduce", [](Group& g, uintptr_t from, uintptr_t to, int64_t count, nb::handle dtype, int reduction, int root,
                     double timeout, const std::string& where) {
    Call call{"reduce", dtype_of(dtype), timeout, where.c_str(), root, reduction_of(reduction)};
    released([&] { g.reduce(call, at(from), at(to), count); });
  });
  c.def("all_gather", [](Group& g, uintptr_t from, const Addresses& to, const std::vector<int64_t>& counts,
                         nb::handle dtype, double timeout, const std::string& where) {
    Call call{"all_gather", dtype_of(dtype), timeout, where.c_str()};
    released([&] { g.all_gather(call, at(from), pointers(to), counts); });
  });
  c.def("gather", [](Group& g, uintptr_t from, const Addresses& to, const std::vector<int64_t>& counts,
                     nb::handle dtype, int root, double timeout, const std::string& where) {
    Call call{"gather", dtype_of(dtype), timeout, where.c_str(), root};
    released([&] { g.gather(call, at(from), pointers(to), counts); });
  });
  c.def("scatter", [](Group& g, const Addresses& from, uintptr_t to, const std::vector<int64_t>& counts,
                      nb::handle dtype, int root, double timeout, const std::string& where) {
    Call call{"scatter", dtype_of(dtype), timeout, where.c_str(), root};
    std::vector<void*> parts = pointers(from);
    released([&] { g.scatter(call, read_only(parts), at(to), counts); });
  });
  c.def("reduce_scatter", [](Group& g, const Addresses& from, uintptr_t to, const std::vector<int64_t>& counts,
                             nb::handle dtype, int reduction, double timeout, const std::string& where) {
    Call call{"reduce_scatter", dtype_of(dtype), timeout, where.c_str(), 0, reduction_of(reduction)};
    std::vector<void*> parts = pointers(from);
    released([&] { g.reduce_scatter(call, read_only(parts), at(to), counts); });
  });
  c.def("all_to_all",
        [](Group& g, const Addresses& from, const std::vector<int64_t>& given, const Addresses& to,
           const std::vector<int64_t>& gotten, nb::handle dtype, double timeout, const std::string& where) {
          Call call{"all_to_all", dtype_of(dtype), timeout, where.c_str()};
          std::vector<void*> parts = pointers(from);
          released([&] { g.all_to_all(call, read_only(parts), given, pointers(to), gotten); });
        });
  c.def("send", [](Group& g, uintptr_t data, int64_t count, nb::handle dtype, int to, int64_t tag, double timeout,
                   const std::string& where) {
    Call call{"send", dtype_of(dtype), timeout, where.c_str()};
    released([&] { g.send(call, at(data), count, to, tag); });
  });
  c.def("receive", [](Group& g, uintptr_t data, int64_t count, nb::handle dtype, int from, int64_t tag, double timeout,
                      const std::string& where) {
    Call call{"recv", dtype_of(dtype), timeout, where.c_str()};
    return released([&] { return g.receive(call, at(data), count, from, tag); });
  });
}

// Elements, as bytes, of this rank's share of memory that all ranks map. It counts as allocated.
nb::object window(LocalGroup& g, int64_t bytes, double timeout, const std::string& where) {
  using Held = std::shared_ptr<comm::Window>;
  const Call call{"allocate_tensor", DType::UInt8, timeout, where.c_str()};
  auto held = std::make_unique<Held>(released([&] { return g.window(call, bytes); }));
  const int64_t one = 1;
  const auto release = [](Storage& s) {
    outside_bytes -= static_cast<int64_t>(s.nbytes);
    delete static_cast<Held*>(s.deleter_ctx);
  };
  void* memory = (*held)->own();
  Tensor made = from_external(memory, {&bytes, 1}, {&one, 1}, DType::UInt8, host_device(), release, held.get());
  held.release();
  outside_backend = host_device().backend;
  outside_bytes += bytes;
  return steal(wrap(std::move(made)));
}

using comm::Recorder;

nb::dict told(const Recorder::Entry& e) {
  static constexpr const char* kStates[] = {"scheduled", "started", "completed", "failed"};
  nb::dict d;
  d["kind"] = e.message ? "message" : "collective";
  d["number"] = e.number;
  d["op"] = e.op;
  d["of"] = e.of;
  d["where"] = e.where;
  d["state"] = kStates[static_cast<int>(e.state)];
  d["called"] = e.called;
  if (e.state >= Recorder::State::Started) d["started"] = e.started;
  if (e.state >= Recorder::State::Completed) d["ended"] = e.ended;
  if (e.state == Recorder::State::Failed) d["error"] = e.error;
  return d;
}

// A ring of what a rank did, see distributed/_recorder.py.
void define(nb::class_<Recorder>& c) {
  c.def(nb::init<>());
  c.def("begin", [](Recorder& r, const std::string& op, const std::string& of, const std::string& where, bool message) {
    Recorder::Entry& e = r.begin(message);
    e.op = op, e.of = of, e.where = where;
    return e.serial;
  });
  c.def("start", [](Recorder& r, uint64_t serial) {
    if (Recorder::Entry* e = r.find(serial)) r.start(*e);
  });
  c.def("end", [](Recorder& r, uint64_t serial, const std::optional<std::string>& error) {
    Recorder::Entry* e = r.find(serial);
    if (!e) return;
    if (error) e->error = *error;
    r.end(*e, error.has_value());
  });
  c.def("told", [](const Recorder& r) {
    nb::list found;
    r.each([&](const Recorder::Entry& e) { found.append(told(e)); });
    return found;
  });
}

} // namespace

void init_comm(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  using namespace nb::literals;
  nb::class_<Group> c(m, "_Communicator", nb::is_weak_referenceable());
  define(c);
  nb::class_<Recorder> recorder(m, "_RankRecorder", nb::is_weak_referenceable());
  define(recorder);
  m.def("_quick_calls", [](nb::object group, nb::object recorder) {
    auto made = std::make_unique<Quick>();
    made->group = nb::cast<Group*>(group);
    made->recorder = nb::cast<Recorder*>(recorder);
    made->kept_group = PyRef::borrow(group.ptr());
    made->kept_recorder = PyRef::borrow(recorder.ptr());
    return steal(quick_calls(std::move(made)));
  });
  nb::class_<LocalGroup, Group>(m, "_LocalGroup", nb::is_weak_referenceable())
      .def(nb::init<int, int, int>(), "descriptor"_a, "rank"_a, "ranks"_a)
      .def("leave", &LocalGroup::leave)
      .def("all_reduce_parts",
           [](LocalGroup& g, const Addresses& parts, const std::vector<int64_t>& counts, nb::handle dtype,
              int reduction, double timeout, const std::string& where) {
             Call call{"all_reduce", dtype_of(dtype), timeout, where.c_str(), 0, reduction_of(reduction)};
             released([&] { g.all_reduce_parts(call, pointers(parts), counts); });
           })
      .def("window", &window)
      .def_static("bytes_for", &comm::Segment::bytes_for, "ranks"_a);
  // Raises what a reduction has no meaning for.
  m.def("_check_reduction", [](const char* op, nb::handle dtype, int reduction) {
    comm::check_reduction(op, reduction_of(reduction), dtype_of(dtype));
  });
  // Takes over the sockets' descriptors.
  nb::class_<SocketGroup, Group>(m, "_SocketGroup", nb::is_weak_referenceable())
      .def(nb::init<std::vector<int>, std::vector<int>, std::vector<int>, int, int>(), "collectives"_a, "letters"_a,
           "news"_a, "rank"_a, "spins"_a);
}

} // namespace ts::py
