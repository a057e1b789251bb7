// Everything here is called rarely: nanobind keeps it short.
#include "python/devices/runtime_bindings.h"
#include "dispatch/describe.h"
#include "dispatch/kernel_signatures.h"
#include "dispatch/launch.h"
#include "extend/autocast.h"
#include "extend/override.h"
#include "ops/common/facts.h"
#include "ops/common/promotion.h"
#include "ops/optim/step_rule.h"
#include "python/bound.h"
#include "python/calls/operator_object.h"
#include "python/tensor/tensor_object.h"
#include "runtime/default_device.h"
#include "runtime/device_names.h"
#include "runtime/pinned.h"
#include "runtime/plugin.h"
#include "runtime/services/draws.h"
#include "runtime/warn_once.h"
#include <algorithm>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

namespace ts::py_runtime {

void define_watch(nb::module_& m);    // watch_bindings.cpp
void define_services(nb::module_& m); // service_bindings.cpp
void define_graph(nb::module_& m);    // graph/graph_bindings.cpp
void define_guards(nb::module_& m);   // graph/guards.cpp

namespace {

using ts::py::expect_device;
using ts::py::steal;

Device device_arg(const nb::object& o) { return o.is_none() ? default_device() : expect_device(o.ptr(), "device"); }
DType dtype_arg(const nb::handle& o, const char* what) {
  std::optional<DType> t = ts::py::as_dtype(o.ptr());
  TS_CHECK_TYPE(t, what, ": expected a dtype, got ", ts::py::type_name(o.ptr()));
  return *t;
}
nb::object dtype_result(DType t) { return nb::borrow<nb::object>(ts::py::dtype_object(t)); }

Backend& named_backend(const std::string& name) {
  Backend* b = find_backend(name);
  if (!b) fail(ErrorKind::BackendUnavailable, "backend: no backend named '", name, "' is loaded");
  return *b;
}

// --- backends ----------------------------------------------------------------------------------------------------

nb::dict describe_backend(Backend& b) {
  return ts::py::dict_of({{"name", b.name()},
                          {"vendor", b.vendor()},
                          {"version", b.version()},
                          {"source", b.source()},
                          {"device_count", b.device_count()},
                          {"reason", b.reason()},
                          {"host_memory", b.host_memory()},
                          {"streams", b.table().stream_create != nullptr},
                          {"events", b.table().event_create != nullptr},
                          {"peer_copies", b.table().copy_peer != nullptr},
                          {"profiler", b.table().profiler != nullptr},
                          {"sharing", b.table().sharing != nullptr},
                          {"recovery", b.table().recover != nullptr},
                          {"own_allocator", (b.table().flags & TS_B_OWN_ALLOCATOR) != 0}});
}

// The kernels a backend answers for, with the dtypes each takes.
nb::dict backend_kernels(const std::string& name) {
  Backend& b = named_backend(name);
  nb::dict found;
  bool none = b.device_count() == 0; // the first device's, and of a backend without any what it would answer
  for (const std::string& kernel : kernel_names()) {
    ts_kernel told{};
    told.struct_size = sizeof told;
    const ts_kernel* k = none ? nullptr : b.kernel(KernelId(kernel.c_str()), 0);
    if (none && b.table().get_kernel(b.table().ctx, 0, kernel.c_str(), &told) == TS_OK && told.run) k = &told;
    if (k == &told && !told.dtypes) told.dtypes = (uint64_t{1} << TS_COMPLEX64) - 1;
    if (k) found[kernel.c_str()] = k->dtypes;
  }
  return found;
}

bool has_kernel(const std::string& name, const std::string& kernel) {
  Backend& b = named_backend(name);
  return KernelId::known(kernel) && b.device_count() > 0 && b.kernel(KernelId(kernel.c_str()), 0);
}

nb::dict device_properties(const nb::object& device) {
  Device d = device_arg(device);
  ts_properties p = backend_of(d).properties(d.index);
  return ts::py::dict_of({{"name", std::string(p.name)},
                          {"total_memory", p.total_memory},
                          {"free_memory", p.free_memory},
                          {"dtypes", p.dtypes},
                          {"max_ndim", p.max_ndim},
                          {"compute_units", p.compute_units},
                          {"max_allocation", p.max_allocation},
                          {"alignment", p.alignment},
                          {"flags", p.flags}});
}

void define_backends(nb::module_& m) {
  m.def("_set_backend_loader", [](nb::callable loader) {
    auto held = ts::py::hold(loader.ptr());
    set_backend_loader([held](const std::string& name) {
      ts::py::GilGuard gil;
      ts::py::PyRef text = ts::py::to_python(name);
      ts::py::checked(PyObject_CallOneArg(held.get(), text.get()));
    });
  });
  m.def("_set_default_chooser", [](nb::callable chooser) {
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
  m.def("_abi_version", [] { return nb::make_tuple(TS_ABI_MAJOR, TS_ABI_MINOR); });
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
    nb::list all;
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
  m.def("_note_fallback", [](const std::string& name, const nb::object& tensor) {
    const Tensor& t = ts::py::expect_tensor(tensor.ptr(), name.c_str());
    Backend& here = backend_of(t.device());
    if (&here != &backend_of(parse_device("cpu"))) note_fallback(name, here, describe(t));
  });
  m.def("_set_checked", set_checked);
  m.def("_pin_memory", [](const nb::object& tensor, const std::string& name) {
    Backend* b = name.empty() ? pinning_backend() : &named_backend(name);
    TS_CHECK(b, "pin_memory: no backend in use gives pinned memory; tensors are copied without it as well");
    return steal(ts::py::wrap(pin_memory(ts::py::expect_tensor(tensor.ptr(), "pin_memory"), *b)));
  });
  m.def("_register_host_memory", [](const nb::object& tensor, const std::string& name) {
    const Tensor& t = ts::py::expect_tensor(tensor.ptr(), "register_host_memory");
    return steal(ts::py::wrap(register_memory(t, named_backend(name))));
  });
  m.def("_is_pinned", [](const nb::object& tensor, const std::string& name) {
    const Tensor& t = ts::py::expect_tensor(tensor.ptr(), "is_pinned");
    return is_pinned(t, name.empty() ? nullptr : &named_backend(name));
  });
  m.def("_can_pin_memory", [] { return pinning_backend() != nullptr; });
}

// --- mixed precision ---------------------------------------------------------------------------------------------

void define_autocast(nb::module_& m) {
  m.def("_set_autocast_policy", [](const std::string& base, int host, int device) {
    TS_CHECK_VALUE(host >= 0 && host <= 5 && device >= 0 && device <= 5, "autocast: expected policies from 0 to 5");
    set_autocast_policy(base, static_cast<AutocastPolicy>(host), static_cast<AutocastPolicy>(device));
  });
  m.def("_set_autocast_dtype", [](const std::string& backend, const nb::object& dtype) {
    set_autocast_dtype(backend, dtype.is_none() ? DType::Undefined : dtype_arg(dtype, "autocast"));
  });
  m.def("_clear_autocast_cache", clear_autocast_cache);
  m.def("_keep_autocast_casts", keep_autocast_casts);
  m.def("_in_autocast", [] { return (thread_state().include & key_bit(key::Autocast)) != 0; });
}

// --- devices and memory ------------------------------------------------------------------------------------------

nb::dict memory_stats(const nb::object& device) {
  Device d = device_arg(device);
  MemoryStats s = backend_of(d).allocator(d.index).stats();
  return ts::py::dict_of({{"allocated", s.allocated},
                          {"allocated_peak", s.allocated_peak},
                          {"reserved", s.reserved},
                          {"reserved_peak", s.reserved_peak},
                          {"allocations", s.allocations},
                          {"device_allocations", s.device_allocations}});
}

DeviceAllocator& allocator_arg(const nb::object& device) {
  Device d = device_arg(device);
  return backend_of(d).allocator(d.index);
}

void define_devices(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "get_default_device", [] { return steal(ts::py::device_object(default_device())); },
      "The device of factories called without one.");
  m.def(
      "set_default_device",
      [](const nb::object& device) { set_default_device(device.is_none() ? Device() : device_arg(device)); },
      "device"_a, "Set the device of factories called without one; None restores the declared default.");
  m.def("memory_stats", memory_stats, "device"_a = nb::none(),
        "Bytes allocated and reserved on a device, now and at most, as a dictionary.");
  m.def(
      "empty_cache", [](const nb::object& device) { allocator_arg(device).release_cached(); }, "device"_a = nb::none(),
      "Give memory that no live tensor uses back to the device.");
  m.def(
      "reset_peak_memory_stats", [](const nb::object& device) { allocator_arg(device).reset_peak(); },
      "device"_a = nb::none(), "Start measuring the peaks of memory_stats anew.");
  m.def(
      "synchronize", [](const nb::object& device) { synchronize(device_arg(device)); }, "device"_a = nb::none(),
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
Value operand(const nb::handle& o) {
  if (ts::py::is_tensor(o.ptr())) return Value(ts::py::impl_of(o.ptr()));
  static const Scalar complex(0.0, 1.0); // stands for all of them
  Value v;
  double parts[2];
  TS_CHECK_TYPE(ts::py::as_any_number(o.ptr(), v, parts), "result_type: expected a Tensor or a number, got ",
                ts::py::type_name(o.ptr()));
  return v.tag == Tag::Complex ? Value(complex) : v;
}

void define_dtypes(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "get_default_dtype", [] { return dtype_result(default_dtype()); },
      "The dtype of tensors made from Python floats.");
  m.def(
      "set_default_dtype", [](const nb::object& d) { set_default_dtype(dtype_arg(d, "set_default_dtype")); }, "d"_a,
      "Set the dtype of tensors made from Python floats.");
  m.def(
      "promote_types",
      [](const nb::object& a, const nb::object& b) {
        return dtype_result(promote_types(dtype_arg(a, "promote_types"), dtype_arg(b, "promote_types")));
      },
      "type1"_a, "type2"_a, "The smallest dtype both convert to.");
  m.def(
      "can_cast",
      [](const nb::object& from, const nb::object& to) {
        return can_cast(dtype_arg(from, "can_cast"), dtype_arg(to, "can_cast"));
      },
      "from_"_a, "to"_a, "Whether values keep their category: bool, integer, floating, complex.");
  m.def(
      "result_type",
      [](const nb::object& a, const nb::object& b) {
        Value operands[2] = {operand(a), operand(b)};
        return dtype_result(result_type(operands));
      },
      "tensor1"_a, "tensor2"_a, "The dtype an arithmetic operation of two tensors or numbers gives.");
}

// --- random numbers ----------------------------------------------------------------------------------------------

void define_random(nb::module_& m) {
  m.def("_manual_seed_all", manual_seed_all);
  m.def("_draws", draws);
  m.def("_refuse_draws", refuse_draws);
  m.def("_default_generator", [](const nb::object& device) {
    return steal(ts::py::generator_object(default_generator(device_arg(device))));
  });
}

// --- operators ---------------------------------------------------------------------------------------------------

// What a call does besides computing its results from its arguments.
nb::dict describe_effects(const Operator& op) {
  nb::list mutates;
  for (size_t k = 0; k < op.schema->args.size(); ++k)
    if (op.effects.mutates >> k & 1) mutates.append(op.schema->args[k].name);
  const int where = op.effects.writes_where;
  nb::object writes_where = nb::none();
  if (where >= 0) writes_where = nb::cast(op.schema->args[static_cast<size_t>(where)].name);
  return ts::py::dict_of({{"mutates", mutates},
                          {"writes_where", writes_where},
                          {"random", op.effects.random},
                          {"reads_host", op.effects.reads_host},
                          {"data_dependent", op.effects.data_dependent},
                          {"communicates", op.effects.communicates}});
}

// The kernel that a declaration names, and with what it is called; None for what has none.
nb::object describe_kernel(const Operator& op) {
  if (!op.kernel) return nb::none();
  static constexpr const char* kWork[] = {"largest operand", "always", "product"};
  const KernelSpec& k = *op.kernel;
  nb::list operands, parameters, changing;
  for (const KernelOperand& o : k.operands) operands.append(nb::make_tuple(o.name, to_string(o, *op.schema)));
  for (const KernelParameter& p : k.parameters) parameters.append(nb::make_tuple(p.name, to_string(p, *op.schema)));
  for (int at : k.changing()) changing.append(at);
  return ts::py::dict_of({{"name", k.id.name()},
                          {"results", k.results},
                          {"operands", operands},
                          {"parameters", parameters},
                          {"changing", changing},
                          {"work", kWork[static_cast<size_t>(k.work)]}});
}

nb::dict describe_operator(const Operator& op) {
  static constexpr const char* kKinds[] = {"composite", "pointwise", "primitive", "data-dependent",
                                           "view",      "answer",    "opaque"};
  const char* variant = op.variant == Variant::Functional ? "functional"
                        : op.variant == Variant::Inplace  ? "inplace"
                                                          : "out";
  return ts::py::dict_of({{"name", op.name()},
                          {"base", op.schema->base},
                          {"python_name", op.python_name},
                          {"schema", to_string(*op.schema)},
                          {"doc", op.doc},
                          {"variant", variant},
                          {"function", op.is_function},
                          {"method", op.is_method},
                          {"hidden", op.hidden},
                          {"view", op.view},
                          {"kind", kKinds[static_cast<size_t>(op.kind)]},
                          {"traced", op.traced()},
                          {"composite", op.composite()},
                          {"differentiable", op.differentiable},
                          {"pointwise", op.pointwise != nullptr},
                          {"rule", op.rule != nullptr},
                          {"computes", op.compute != nullptr},
                          {"kernel", describe_kernel(op)},
                          {"decomposes", op.decompose != nullptr},
                          {"code", op.why_code},
                          {"effects", describe_effects(op)},
                          {"computes_in_out", (op.out_rules & kComputesInOut) != 0},
                          {"namespaces", op.namespaces},
                          {"origin", std::string(op.origin)}});
}

// Functionality keys from the highest down, then backends with a kernel of their own for the operator.
nb::list kernel_table(const std::string& name) {
  const Operator& op = get_operator(name);
  nb::list rows;
  for (int k = Operator::kKeys - 1; k >= key::kBackendBits; --k)
    if (const Kernel* at = op.table.find(k)) rows.append(nb::make_tuple(key_name(k), at->owner ? at->owner : ""));
  for (Backend* b : ts::backends()) {
    const Kernel* kernel_at = op.table.find(b->id());
    ts_kernel kernel{};
    kernel.struct_size = sizeof kernel;
    bool own = b->table().get_kernel(b->table().ctx, 0, name.c_str(), &kernel) == TS_OK && kernel.run;
    bool registered = !runs_body(op, b->id()) && kernel_at->owner;
    if (own || registered) rows.append(nb::make_tuple(b->name(), own ? b->source() : std::string(kernel_at->owner)));
  }
  return rows;
}

nb::list keys_in(KeySet keys) {
  nb::list names;
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
nb::set names_in(const std::string& space) {
  nb::set names;
  for (const Operator* op : all_operators())
    if (std::ranges::find(op->namespaces, space) != op->namespaces.end()) names.add(op->python_name);
  return names;
}

void define_operators(nb::module_& m) {
  m.def("_names_in", names_in);
  m.def("_operators", [] {
    nb::list all;
    for (const Operator* op : all_operators()) all.append(describe_operator(*op));
    return all;
  });
  m.def("_facts", facts_by_name);
  m.def("_sgd_rule", optim::sgd_rule, nb::arg("momentum"), nb::arg("nesterov"), nb::arg("first_step"),
        nb::arg("decay"));
  m.def("_adam_rule", optim::adam_rule, nb::arg("amsgrad"), nb::arg("decay"), nb::arg("decoupled"),
        nb::arg("from_mean"));
  m.def("_install_operators", [] { return ts::py::given_back(ts::py::install_operators()); });
  m.def("_kernel_table", kernel_table);
  m.def("_kernel_signature", [](const std::string& name) -> nb::object {
    const KernelSignature* s = kernel_signature(name);
    if (!s) return nb::none();
    return ts::py::dict_of({{"parameters", s->parameters}, {"changing", s->changing}});
  });
  m.def("_withhold_kernels", [](bool on) { return kernels_withheld.exchange(on); });
  m.def("_keys_of", [](const nb::object& tensor) {
    const ThreadState& tls = thread_state();
    return keys_in((ts::py::expect_tensor(tensor.ptr(), "dispatch")->keys | tls.include) & ~tls.exclude);
  });
}

} // namespace

void define_all(PyObject* module) {
  auto m = nb::borrow<nb::module_>(module);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
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
  } catch (nb::python_error& e) {
    e.restore();
    throw_python();
  }
}

} // namespace ts::py
