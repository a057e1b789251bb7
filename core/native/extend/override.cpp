#include "extend/override.h"
#include "autograd/meta.h"
#include "dispatch/launch.h"
#include "dispatch/primitive.h"
#include "runtime/empty.h"
#include <map>

namespace ts {
namespace {

// The kernel of one operator, on any backend.
struct Override {
  KernelId id;
  Kernel declared; // what the backend's key did before
};

struct Overrides {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Override>> by_name;
};
Overrides& overrides() {
  static auto* o = new Overrides;
  return *o;
}

bool records_gradient(const Operator& op, const Frame& f) {
  if (!op.traced() || (op.gradient && op.rule) || !grad_enabled()) return false;
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && requires_grad(v.tensor)) return true;
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined() && requires_grad(t.impl())) return true;
  }
  return false;
}

// The arguments as tensors that have a shape and a dtype only.
struct MetaArguments {
  std::vector<Value> values;
  std::vector<Tensor> tensors;
  std::vector<std::vector<Tensor>> lists;

  explicit MetaArguments(const Frame& f) : values(f.args, f.args + f.nargs) {
    tensors.reserve(values.size());
    lists.reserve(values.size());
    for (Value& v : values) {
      if (v.tag == Tag::Tensor) {
        tensors.push_back(meta(v.as_tensor()));
        v = tensors.back();
      } else if (v.tag == Tag::Tensors) {
        lists.emplace_back();
        for (const Tensor& t : v.as_tensors()) lists.back().push_back(t.defined() ? meta(t) : Tensor());
        v = lists.back();
      } else if (v.tag == Tag::Device) {
        v = Device{kMetaBackend, 0};
      }
    }
  }
  static Tensor meta(const Tensor& t) { return empty_tensor(t.sizes(), t.dtype(), {kMetaBackend, 0}); }
};

// The device all tensors share; none where they do not.
Device device_of(const Frame& f) {
  Device found;
  bool mixed = false;
  auto look = [&](const Tensor& t) {
    if (!t.defined()) return;
    mixed = mixed || (found.defined() && !(found == t.device()));
    found = t.device();
  };
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor) look(v.as_tensor());
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors()) look(t);
  }
  return mixed ? Device() : found;
}

// Fresh results of the shapes and dtypes the declaration gives. False where it needs the values to tell.
bool make_results(const Operator& op, const Frame& f, Device device, std::vector<Tensor>& out) {
  MetaArguments meta(f);
  Results results;
  Frame inner{meta.values.data(), results.data(), f.nargs, f.nrets};
  try {
    ExcludeKeys no_grad(key_bit(key::Autograd));
    op.body(op, inner);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::NotImplemented) return false;
    throw; // wrong arguments are wrong on every device
  }
  for (int32_t k = 0; k < f.nrets; ++k) {
    Tensor like = results.take(k);
    if (!like.defined()) return false;
    out.push_back(empty_tensor(like.sizes(), like.dtype(), device));
  }
  return true;
}

bool has_work(const std::vector<Tensor>& results) {
  return std::any_of(results.begin(), results.end(), [](const Tensor& t) { return t.numel() > 0; });
}

bool launch(const Override& o, const Frame& f, Device device, TensorList results) {
  Launch call(o.id, device);
  for (const Tensor& t : results) call.out(t);
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      call.in(v.as_tensor());
    else if (v.tag == Tag::Tensors)
      call.ins(v.as_tensors());
    else if (v.tag == Tag::Generator)
      return false;
    else
      call.param(v);
  }
  return call.run();
}

// Into the frame's results, which are there.
bool launch_results(const Override& o, Frame& f, Device device) {
  std::array<Tensor, Results::kMax> results;
  for (int32_t k = 0; k < f.nrets; ++k)
    if (f.rets[k].tag == Tag::Tensor) results[static_cast<size_t>(k)] = f.rets[k].as_tensor();
  try {
    return launch(o, f, device, {results.data(), static_cast<size_t>(f.nrets)});
  } catch (...) {
    drop_results(f);
    throw;
  }
}

// The rule alone says what the results are. A composite without a gradient for this case is traced instead.
void run_replaced(const Override& o, const Operator& op, Frame& f, KeySet keys) {
  if (records_gradient(op, f)) return o.declared.fn(o.declared.ctx, op, f, keys);
  check_backend_call(op, f);
  op.rule(op, f);
  Device device = f.rets[0].tag == Tag::Tensor ? f.rets[0].tensor->device : device_of(f);
  if (!allocate_results(op, f) || launch_results(o, f, device)) return;
  if (op.compute) return compute_results(op, f);
  drop_results(f);
  o.declared.fn(o.declared.ctx, op, f, keys);
}

void run_override(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  const Override& o = *static_cast<Override*>(ctx);
  if (op.rule) return run_replaced(o, op, f, keys);
  std::vector<Tensor> results;
  Device device = device_of(f);
  bool possible = device.defined() && !device.is_meta() && !records_gradient(op, f);
  possible = possible && make_results(op, f, device, results) && has_work(results) && launch(o, f, device, results);
  if (!possible) return o.declared.fn(o.declared.ctx, op, f, keys);
  for (size_t k = 0; k < results.size(); ++k) f.give(static_cast<int>(k), results[k]);
}

} // namespace

bool computes(const Operator& op, int backend) {
  if (!op.compute) return false;
  const Kernel* kernel = op.table.find(backend);
  return runs_body(op, backend) || (kernel && kernel->fn == run_override);
}

void compute_on(const Operator& op, Frame& f, Device device) {
  const Kernel* kernel = op.table.find(device.backend);
  bool overridden = kernel && kernel->fn == run_override;
  if (overridden && launch_results(*static_cast<const Override*>(kernel->ctx), f, device)) return;
  compute_results(op, f);
}

bool replaceable(const Operator& op) {
  const Schema& s = *op.schema;
  bool plain_results = !s.returns.empty() && std::all_of(s.returns.begin(), s.returns.end(), [](const ArgType& r) {
    return r.kind == TypeKind::Tensor && !r.list && !r.alias;
  });
  return plain_results && op.variant == Variant::Functional && !op.view && !op.make && !s.mutates();
}

namespace {

// Asked without a lock: the answer may come from Python.
bool answers(Backend& backend, const Operator& op) {
  ts_kernel kernel{};
  kernel.struct_size = sizeof kernel;
  const ts_backend& t = backend.table();
  for (int device = 0; device < backend.device_count(); ++device)
    if (t.get_kernel(t.ctx, device, op.name().c_str(), &kernel) == TS_OK && kernel.run) return true;
  return false;
}

struct InstallHook {
  InstallHook() { set_backend_ready_hook(install_overrides); }
} hook;

} // namespace

void install_override(Backend& backend, const Operator& op) {
  if (!replaceable(op) || !answers(backend, op)) return;
  Overrides& all = overrides();
  std::lock_guard lock(all.mutex);
  auto found = all.by_name.find(op.name());
  // A name that bodies launch by themselves is asked for there.
  if (found == all.by_name.end() && KernelId::known(op.name())) return;
  KernelTable& table = mutable_operator(op).table;
  if (found == all.by_name.end()) {
    auto made = std::make_unique<Override>(Override{KernelId(op.name().c_str()), *table.find(backend.id())});
    found = all.by_name.emplace(op.name(), std::move(made)).first;
  }
  backend.forget_kernel(found->second->id);
  mutable_operator(op).overridden |= key_bit(backend.id());
  table.set(backend.id(), {run_override, found->second.get(), backend.name().c_str()});
}

void install_overrides(Backend& backend) {
  for (const Operator* op : all_operators()) install_override(backend, *op);
}

} // namespace ts
