// Everything here is called rarely: pybind11 keeps it short.
#include <algorithm>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "dispatch/describe.h"
#include "dispatch/kernel_signatures.h"
#include "dispatch/launch.h"
#include "extend/autocast.h"
#include "extend/override.h"
#include "ops/common/facts.h"
#include "ops/common/promotion.h"
#include "ops/optim/step_rule.h"
#include "python/calls/operator_object.h"
#include "python/devices/runtime_bindings.h"
#include "python/tensor/tensor_object.h"
#include "runtime/default_device.h"
#include "runtime/device_names.h"
#include "runtime/pinned.h"
#include "runtime/plugin.h"
#include "runtime/services/draws.h"
#include "runtime/warn_once.h"

namespace pb = pybind11;

namespace ts::py_runtime {

void define_watch(pb::module_& m);    // watch_bindings.cpp
void define_services(pb::module_& m); // service_bindings.cpp
void define_graph(pb::module_& m);    // graph/graph_bindings.cpp
void define_guards(pb::module_& m);   // graph/guards.cpp

namespace {

using ts::py::expect_device;

pb::object steal(PyObject* o) { return pb::reinterpret_steal<pb::object>(o); }

Device device_arg(const pb::object& o) { return o.is_none() ? default_device() : expect_device(o.ptr(), "device"); }
DType dtype_arg(const pb::handle& o, const char* what) {
  std::optional<DType> t = ts::py::as_dtype(o.ptr());
  TS_CHECK_TYPE(t, what, ": expected a dtype, got ", ts::py::type_name(o.ptr()));
  return *t;
}
pb::object dtype_result(DType t) { return pb::reinterpret_borrow<pb::object>(ts::py::dtype_object(t)); }

Backend& named_backend(const std::string& name) {
  Backend* b = find_backend(name);
  if (!b) fail(ErrorKind::BackendUnavailable, "backend: no backend named '", name, "' is loaded");
  return *b;
}

// --- backends ----------------------------------------------------------------------------------------------------

pb::dict describe_backend(Backend& b) {
  using namespace pybind11::literals;
  return pb::dict("name"_a = b.name(), "vendor"_a = b.vendor(), "version"_a = b.version(), "source"_a = b.source(),
                  "device_count"_a = b.device_count(), "reason"_a = b.reason(), "host_memory"_a = b.host_memory(),
                  "streams"_a = b.table().stream_create != nullptr, "events"_a = b.table().event_create != nullptr,
                  "peer_copies"_a = b.table().copy_peer != nullptr, "profiler"_a = b.table().profiler != nullptr,
                  "sharing"_a = b.table().sharing != nullptr, "recovery"_a = b.table().recover != nullptr,
                  "own_allocator"_a = (b.table().flags & TS_B_OWN_ALLOCATOR) != 0);
}

// The kernels a backend answers for, with the dtypes each takes.
pb::dict backend_kernels(const std::string& name) {
  Backend& b = named_backend(name);
  pb::dict found;
  bool none = b.device_count() == 0; // the first device's, and of a backend without any what it would answer
  for (const std::string& kernel : kernel_names()) {
    ts_kernel told{};
    told.struct_size = sizeof told;
    const ts_kernel* k = none ? nullptr : b.kernel(KernelId(kernel.c_str()), 0);
    if (none && b.table().get_kernel(b.table().ctx, 0, kernel.c_str(), &told) == TS_OK && told.run) k = &told;
    if (k == &told && !told.dtypes) told.dtypes = (uint64_t{1} << TS_COMPLEX64) - 1;
    if (k) found[pb::str(kernel)] = k->dtypes;
  }
  return found;
}

bool has_kernel(const std::string& name, const std::string& kernel) {
  Backend& b = named_backend(name);
  return KernelId::known(kernel) && b.device_count() > 0 && b.kernel(KernelId(kernel.c_str()), 0);
}

pb::dict device_properties(const pb::object& device) {
  using namespace pybind11::literals;
  Device d = device_arg(device);
  ts_properties p = backend_of(d).properties(d.index);
  return pb::dict("name"_a = std::string(p.name), "total_memory"_a = p.total_memory, "free_memory"_a = p.free_memory,
                  "dtypes"_a = p.dtypes, "max_ndim"_a = p.max_ndim, "compute_units"_a = p.compute_units,
                  "max_allocation"_a = p.max_allocation, "alignment"_a = p.alignment, "flags"_a = p.flags);
}

void define_backends(pb::module_& m) {
  m.def("_set_backend_loader", [](pb::function loader) {
    auto held = ts::py::hold(loader.ptr());
    set_backend_loader([held](const std::string& name) {
      ts::py::GilGuard gil;
      ts::py::PyRef text = ts::py::to_python(name);
      ts::py::checked(PyObject_CallOneArg(held.get(), text.get()));
    });
  });
  m.def("_set_default_chooser", [](pb::function chooser) {
    auto held = ts::py::hold(chooser.ptr());
    set_default_chooser([held] {
      ts::py::GilGuard gil;
      return expect_device(ts::py::checked(PyObject_CallNoArgs(held.get())).get(), "default device");
    });
  });
  m.def("_declared_default", declared_default);
  m.def("_forget_chosen_device", forget_chosen_device);
  m.def("_load_backend", [](const std::string& path, const std::string& name, const std::string& owner) {
    load_plugin(path, name, owner);
  });
  m.def("_probe_again", [](const std::string& name) { probe_again(name); });
  m.def("_abi_version", [] { return pb::make_tuple(TS_ABI_MAJOR, TS_ABI_MINOR); });
  m.def("_kernel_names", kernel_names);
  // Whether a kernel of this name would ever be called.
  m.def("_is_kernel_used", [](const std::string& name) {
    const Operator* op = find_operator(name);
    return KernelId::known(name) || (op && replaceable(*op));
  });
  m.def("_required_kernels", [] {
    auto names = required_kernels();
    return std::vector<std::string>(names.begin(), names.end());
  });
  m.def("_backend_kernels", backend_kernels);
  m.def("_has_kernel", has_kernel);
  m.def("_set_device_alias", set_device_alias);
  m.def("_real_device_name", [](const std::string& name) { return real_device_name(name); });
  m.def("_set_warn_always", [](bool on) { warn_always() = on; });
  m.def("_set_nameable_devices", set_nameable_devices);
  // A device that can be used: never one that only has a name.
  m.def("_resolve_device", [](const std::string& text) { return steal(ts::py::device_object(parse_device(text))); });
  m.def("_current_index", [](const std::string& name) { return current_index(named_backend(name).id()); });
  m.def("_set_current_index", [](const std::string& name, int index) {
    Backend& b = named_backend(name);
    b.check_index(index);
    set_current_index(b.id(), static_cast<int16_t>(index));
  });
  m.def("_backends", [] {
    pb::list all;
    for (Backend* b : backends()) all.append(describe_backend(*b));
    return all;
  });
  // A kernel was registered: backends that are in use are asked anew.
  m.def("_kernel_changed", [](const std::string& backend, const std::string& kernel) {
    Backend* b = find_backend(backend);
    if (!b) return;
    if (KernelId::known(kernel)) b->forget_kernel(KernelId(kernel.c_str()));
    if (const Operator* op = find_operator(kernel)) install_override(*b, *op);
  });
  m.def("_is_loaded", [](const std::string& name) { return find_backend(name) != nullptr; });
  m.def("_device_count", [](const std::string& name) { return named_backend(name).device_count(); });
  m.def("_backend_reason", [](const std::string& name) { return named_backend(name).reason(); });
  m.def("_device_properties", device_properties);
  m.def("_set_fallback", set_fallback_mode);
  m.def("_fallback_mode", fallback_mode);
  m.def("_fallbacks", fallback_counts);
  m.def("_reset_fallbacks", reset_fallback_counts);
  m.def("_note_fallback", [](const std::string& name, const pb::object& tensor) {
    const Tensor& t = ts::py::expect_tensor(tensor.ptr(), name.c_str());
    Backend& here = backend_of(t.device());
    if (&here != &backend_of(parse_device("cpu"))) note_fallback(name, here, describe(t));
  });
  m.def("_set_checked", set_checked);
  m.def("_pin_memory", [](const pb::object& tensor, const std::string& name) {
    Backend* b = name.empty() ? pinning_backend() : &named_backend(name);
    TS_CHECK(b, "pin_memory: no backend in use gives pinned memory; tensors are copied without it as well");
    return steal(ts::py::wrap(pin_memory(ts::py::expect_tensor(tensor.ptr(), "pin_memory"), *b)));
  });
  m.def("_register_host_memory", [](const pb::object& tensor, const std::string& name) {
    const Tensor& t = ts::py::expect_tensor(tensor.ptr(), "register_host_memory");
    return steal(ts::py::wrap(register_memory(t, named_backend(name))));
  });
  m.def("_is_pinned", [](const pb::object& tensor, const std::string& name) {
    const Tensor& t = ts::py::expect_tensor(tensor.ptr(), "is_pinned");
    return is_pinned(t, name.empty() ? nullptr : &named_backend(name));
  });
  m.def("_can_pin_memory", [] { return pinning_backend() != nullptr; });
}

// --- mixed precision ---------------------------------------------------------------------------------------------

void define_autocast(pb::module_& m) {
  m.def("_set_autocast_policy", [](const std::string& base, int host, int device) {
    TS_CHECK_VALUE(host >= 0 && host <= 5 && device >= 0 && device <= 5, "autocast: expected policies from 0 to 5");
    set_autocast_policy(base, static_cast<AutocastPolicy>(host), static_cast<AutocastPolicy>(device));
  });
  m.def("_set_autocast_dtype", [](const std::string& backend, const pb::object& dtype) {
    set_autocast_dtype(backend, dtype.is_none() ? DType::Undefined : dtype_arg(dtype, "autocast"));
  });
  m.def("_clear_autocast_cache", clear_autocast_cache);
  m.def("_keep_autocast_casts", keep_autocast_casts);
  m.def("_in_autocast", [] { return (thread_state().include & key_bit(key::Autocast)) != 0; });
}

// --- devices and memory ------------------------------------------------------------------------------------------

pb::dict memory_stats(const pb::object& device) {
  using namespace pybind11::literals;
  Device d = device_arg(device);
  MemoryStats s = backend_of(d).allocator(d.index).stats();
  return pb::dict("allocated"_a = s.allocated, "allocated_peak"_a = s.allocated_peak, "reserved"_a = s.reserved,
                  "reserved_peak"_a = s.reserved_peak, "allocations"_a = s.allocations,
                  "device_allocations"_a = s.device_allocations);
}

DeviceAllocator& allocator_arg(const pb::object& device) {
  Device d = device_arg(device);
  return backend_of(d).allocator(d.index);
}

void define_devices(pb::module_& m) {
  using namespace pybind11::literals;
  m.def(
      "get_default_device", [] { return steal(ts::py::device_object(default_device())); },
      "The device of factories called without one.");
  m.def(
      "set_default_device",
      [](const pb::object& device) { set_default_device(device.is_none() ? Device() : device_arg(device)); },
      "device"_a, "Set the device of factories called without one; None restores the declared default.");
  m.def("memory_stats", memory_stats, "device"_a = pb::none(),
        "Bytes allocated and reserved on a device, now and at most, as a dictionary.");
  m.def(
      "empty_cache", [](const pb::object& device) { allocator_arg(device).release_cached(); }, "device"_a = pb::none(),
      "Give memory that no live tensor uses back to the device.");
  m.def(
      "reset_peak_memory_stats", [](const pb::object& device) { allocator_arg(device).reset_peak(); },
      "device"_a = pb::none(), "Start measuring the peaks of memory_stats anew.");
  m.def(
      "synchronize", [](const pb::object& device) { synchronize(device_arg(device)); }, "device"_a = pb::none(),
      "Wait until a device has finished all work given to it.");
  m.def("_host_table", [] { return reinterpret_cast<uintptr_t>(host_table()); });
  m.def("_take_last_error", take_last_error);
  m.def("_set_num_threads", [](const std::string& name, int n) {
    auto set = named_backend(name).table().set_num_threads;
    if (set) set(named_backend(name).table().ctx, n);
    return set != nullptr;
  });
  m.def("_get_num_threads", [](const std::string& name) {
    auto get = named_backend(name).table().get_num_threads;
    return get ? get(named_backend(name).table().ctx) : 1;
  });
}

// --- dtypes ------------------------------------------------------------------------------------------------------

// Value of a tensor or number argument, for promotion only.
Value operand(const pb::handle& o) {
  if (ts::py::is_tensor(o.ptr())) return Value(ts::py::impl_of(o.ptr()));
  static const Scalar complex(0.0, 1.0); // stands for all of them
  Value v;
  double parts[2];
  TS_CHECK_TYPE(ts::py::as_any_number(o.ptr(), v, parts), "result_type: expected a Tensor or a number, got ",
                ts::py::type_name(o.ptr()));
  return v.tag == Tag::Complex ? Value(complex) : v;
}

void define_dtypes(pb::module_& m) {
  using namespace pybind11::literals;
  m.def(
      "get_default_dtype", [] { return dtype_result(default_dtype()); },
      "The dtype of tensors made from Python floats.");
  m.def(
      "set_default_dtype", [](const pb::object& d) { set_default_dtype(dtype_arg(d, "set_default_dtype")); }, "d"_a,
      "Set the dtype of tensors made from Python floats.");
  m.def(
      "promote_types",
      [](const pb::object& a, const pb::object& b) {
        return dtype_result(promote_types(dtype_arg(a, "promote_types"), dtype_arg(b, "promote_types")));
      },
      "type1"_a, "type2"_a, "The smallest dtype both convert to.");
  m.def(
      "can_cast",
      [](const pb::object& from, const pb::object& to) {
        return can_cast(dtype_arg(from, "can_cast"), dtype_arg(to, "can_cast"));
      },
      "from_"_a, "to"_a, "Whether values keep their category: bool, integer, floating, complex.");
  m.def(
      "result_type",
      [](const pb::object& a, const pb::object& b) {
        Value operands[2] = {operand(a), operand(b)};
        return dtype_result(result_type(operands));
      },
      "tensor1"_a, "tensor2"_a, "The dtype an arithmetic operation of two tensors or numbers gives.");
}

// --- random numbers ----------------------------------------------------------------------------------------------

void define_random(pb::module_& m) {
  m.def("_manual_seed_all", manual_seed_all);
  m.def("_draws", draws);
  m.def("_refuse_draws", refuse_draws);
  m.def("_default_generator", [](const pb::object& device) {
    return steal(ts::py::generator_object(default_generator(device_arg(device))));
  });
}

// --- operators ---------------------------------------------------------------------------------------------------

// What a call does besides computing its results from its arguments.
pb::dict describe_effects(const Operator& op) {
  using namespace pybind11::literals;
  pb::list mutates;
  for (size_t k = 0; k < op.schema->args.size(); ++k)
    if (op.effects.mutates >> k & 1) mutates.append(op.schema->args[k].name);
  const int where = op.effects.writes_where;
  pb::object writes_where = pb::none();
  if (where >= 0) writes_where = pb::cast(op.schema->args[static_cast<size_t>(where)].name);
  return pb::dict("mutates"_a = mutates, "writes_where"_a = writes_where, "random"_a = op.effects.random,
                  "reads_host"_a = op.effects.reads_host, "data_dependent"_a = op.effects.data_dependent,
                  "communicates"_a = op.effects.communicates);
}

// The kernel that a declaration names, and with what it is called; None for what has none.
pb::object describe_kernel(const Operator& op) {
  using namespace pybind11::literals;
  if (!op.kernel) return pb::none();
  static constexpr const char* kWork[] = {"largest operand", "always", "product"};
  const KernelSpec& k = *op.kernel;
  pb::list operands, parameters, changing;
  for (const KernelOperand& o : k.operands) operands.append(pb::make_tuple(o.name, to_string(o, *op.schema)));
  for (const KernelParameter& p : k.parameters) parameters.append(pb::make_tuple(p.name, to_string(p, *op.schema)));
  for (int at : k.changing()) changing.append(at);
  return pb::dict("name"_a = k.id.name(), "results"_a = k.results, "operands"_a = operands, "parameters"_a = parameters,
                  "changing"_a = changing, "work"_a = kWork[static_cast<size_t>(k.work)]);
}

pb::dict describe_operator(const Operator& op) {
  using namespace pybind11::literals;
  static constexpr const char* kKinds[] = {"composite", "pointwise", "primitive", "data-dependent",
                                           "view",      "answer",    "opaque"};
  const char* variant = op.variant == Variant::Functional ? "functional"
                        : op.variant == Variant::Inplace  ? "inplace"
                                                          : "out";
  return pb::dict("name"_a = op.name(), "base"_a = op.schema->base, "python_name"_a = op.python_name,
                  "schema"_a = to_string(*op.schema), "doc"_a = op.doc, "variant"_a = variant,
                  "function"_a = op.is_function, "method"_a = op.is_method, "hidden"_a = op.hidden, "view"_a = op.view,
                  "kind"_a = kKinds[static_cast<size_t>(op.kind)], "traced"_a = op.traced(),
                  "composite"_a = op.composite(), "differentiable"_a = op.differentiable,
                  "pointwise"_a = op.pointwise != nullptr, "rule"_a = op.rule != nullptr,
                  "computes"_a = op.compute != nullptr, "kernel"_a = describe_kernel(op),
                  "decomposes"_a = op.decompose != nullptr, "code"_a = op.why_code, "effects"_a = describe_effects(op),
                  "computes_in_out"_a = (op.out_rules & kComputesInOut) != 0, "namespaces"_a = op.namespaces,
                  "origin"_a = std::string(op.origin));
}

// Functionality keys from the highest down, then backends with a kernel of their own for the operator.
pb::list kernel_table(const std::string& name) {
  const Operator& op = get_operator(name);
  pb::list rows;
  for (int k = Operator::kKeys - 1; k >= key::kBackendBits; --k)
    if (const Kernel* at = op.table.find(k)) rows.append(pb::make_tuple(key_name(k), at->owner ? at->owner : ""));
  for (Backend* b : ts::backends()) {
    const Kernel* kernel_at = op.table.find(b->id());
    ts_kernel kernel{};
    kernel.struct_size = sizeof kernel;
    bool own = b->table().get_kernel(b->table().ctx, 0, name.c_str(), &kernel) == TS_OK && kernel.run;
    bool registered = !runs_body(op, b->id()) && kernel_at->owner;
    if (own || registered) rows.append(pb::make_tuple(b->name(), own ? b->source() : std::string(kernel_at->owner)));
  }
  return rows;
}

pb::list keys_in(KeySet keys) {
  pb::list names;
  for (; keys; keys &= ~key_bit(highest_key(keys))) {
    int k = highest_key(keys);
    if (k >= key::kBackendBits)
      names.append(key_name(k));
    else
      names.append(k == kMetaBackend ? std::string("meta") : ts::backends()[static_cast<size_t>(k) - 1]->name());
  }
  return names;
}

// Those that a namespace such as "special" shows.
pb::set names_in(const std::string& space) {
  pb::set names;
  for (const Operator* op : all_operators())
    if (std::ranges::find(op->namespaces, space) != op->namespaces.end()) names.add(op->python_name);
  return names;
}

void define_operators(pb::module_& m) {
  m.def("_names_in", names_in);
  m.def("_operators", [] {
    pb::list all;
    for (const Operator* op : all_operators()) all.append(describe_operator(*op));
    return all;
  });
  m.def("_facts", facts_by_name);
  m.def("_sgd_rule", optim::sgd_rule, pb::arg("momentum"), pb::arg("nesterov"), pb::arg("first_step"),
        pb::arg("decay"));
  m.def("_adam_rule", optim::adam_rule, pb::arg("amsgrad"), pb::arg("decay"));
  m.def("_install_operators", [] { return pb::reinterpret_steal<pb::object>(ts::py::install_operators().release()); });
  m.def("_kernel_table", kernel_table);
  m.def("_kernel_signature", [](const std::string& name) -> pb::object {
    using namespace pybind11::literals;
    const KernelSignature* s = kernel_signature(name);
    if (!s) return pb::none();
    return pb::dict("parameters"_a = s->parameters, "changing"_a = s->changing);
  });
  m.def("_withhold_kernels", [](bool on) { return kernels_withheld.exchange(on); });
  m.def("_keys_of", [](const pb::object& tensor) {
    const ThreadState& tls = thread_state();
    return keys_in((ts::py::expect_tensor(tensor.ptr(), "dispatch")->keys | tls.include) & ~tls.exclude);
  });
}

} // namespace

void define_all(PyObject* module) {
  auto m = pb::reinterpret_borrow<pb::module_>(module);
  pb::register_local_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const ts::Error&) {
      ts::py::set_error_from_exception();
    }
  });
  define_backends(m);
  define_autocast(m);
  define_devices(m);
  define_dtypes(m);
  define_random(m);
  define_operators(m);
  define_watch(m);
  define_services(m);
  define_graph(m);
  define_guards(m);
}

} // namespace ts::py_runtime

namespace ts::py {

void init_runtime(PyObject* module) {
  try {
    py_runtime::define_all(module);
  } catch (pybind11::error_already_set& e) {
    e.restore();
    throw_python();
  }
}

} // namespace ts::py
