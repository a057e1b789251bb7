#include "extend/autocast.h"
#include "autograd/accumulate.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "runtime/backend.h"
#include "runtime/device_names.h"
#include "tensor/unversioned.h"
#include <array>
#include <map>
#include <unordered_map>

namespace ts {
namespace {

struct Policies {
  AutocastPolicy host, device;
};

// Every pair there is, for kernels to refer to.
constexpr int kPolicies = static_cast<int>(AutocastPolicy::Exempt) + 1;
const Policies& policies_of(AutocastPolicy host, AutocastPolicy device) {
  static constexpr auto kPairs = [] {
    std::array<Policies, kPolicies * kPolicies> pairs{};
    for (int k = 0; k < kPolicies * kPolicies; ++k)
      pairs[static_cast<size_t>(k)] = {static_cast<AutocastPolicy>(k / kPolicies),
                                       static_cast<AutocastPolicy>(k % kPolicies)};
    return pairs;
  }();
  return kPairs[static_cast<size_t>(host) * kPolicies + static_cast<size_t>(device)];
}

struct Cast {
  Tensor source, result; // the source is held, so that its address stays its own
  const Storage* memory = source->storage;
  uint32_t version = source.version();
  uint64_t aliases = unversioned_aliases.load();

  // Nothing wrote to the source since. Other tensors of its memory might, without a trace in its version.
  bool holds() const {
    const Storage* now = source->storage;
    return now == memory && is_sole(now) && source.version() == version && unversioned_aliases.load() == aliases;
  }
};

struct ThreadAutocast {
  std::map<std::string, DType> dtypes; // by backend
  std::unordered_map<const TensorImpl*, Cast> kept;
  bool keep = false;
  bool of_program = false; // whether a program that is written down has begun to keep them
  uint64_t asked = 0;
};
ThreadAutocast& autocast() {
  thread_local ThreadAutocast state;
  return state;
}

// Calls `f` for each tensor among the arguments.
template <class F> void for_each_tensor(const Frame& frame, F&& f) {
  for (int32_t k = 0; k < frame.nargs; ++k) {
    const Value& v = frame.args[k];
    if (v.tag == Tag::Tensor) f(v.as_tensor());
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined()) f(t);
  }
}

bool keeps_cast(const Tensor& t) {
  return autocast().keep && t.dtype() == DType::Float32 && requires_grad(t) && is_leaf(t) && grad_enabled();
}

const Op kCast("_autocast_cast");

Tensor kept_cast(const Tensor& t, DType to) {
  auto& kept = autocast().kept;
  auto at = kept.find(t.impl());
  if (at == kept.end()) return {};
  if (at->second.result.dtype() == to && at->second.holds()) return at->second.result;
  kept.erase(at);
  return {};
}

bool written_down() { return thread_state().include & key_bit(key::Tracer); }

// A program that is written down asks for a cast that is kept by an operator: each run has what is kept then. Of a
// region of its own, which no run enters, it has the first cast in all places: gradients meet there.
Tensor cast_to(const Tensor& t, DType to) {
  if (t.dtype() == to) return t;
  if (!keeps_cast(t)) return ops::to_dtype(t, to);
  if (!written_down()) return autocast_cast(t, to);
  Tensor kept = autocast().of_program ? kept_cast(t, to) : Tensor();
  return kept.defined() && held_by_tracer && held_by_tracer(kept->storage) ? kept : kCast(t, to);
}

// float64 and what is not real floating point stay as they are.
bool may_cast(const Tensor& t, int16_t backend) {
  DType d = t.dtype();
  return t.device().backend == backend && is_floating(d) && d != DType::Float64;
}

// One call's arguments, cast; those that stay are borrowed as they were.
class CastArguments {
public:
  CastArguments(const Frame& f, int16_t backend, DType to) : values_(f.args, f.args + f.nargs) {
    tensors_.reserve(values_.size());
    lists_.reserve(values_.size());
    for (Value& v : values_) {
      if (v.tag == Tag::Tensor && may_cast(v.as_tensor(), backend)) {
        tensors_.push_back(cast_to(v.as_tensor(), to));
        v = Value(tensors_.back());
      } else if (v.tag == Tag::Tensors) {
        std::vector<Tensor>& list = lists_.emplace_back(v.as_tensors().begin(), v.as_tensors().end());
        for (Tensor& t : list)
          if (t.defined() && may_cast(t, backend)) t = cast_to(t, to);
        v = Value(list);
      }
    }
  }
  const Value* data() const { return values_.data(); }

private:
  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<Tensor>> lists_;
};

DType widest(const Frame& f, int16_t backend, DType lower) {
  DType found = lower;
  for_each_tensor(f, [&](const Tensor& t) {
    if (may_cast(t, backend) && t.dtype() != lower) found = DType::Float32;
  });
  return found;
}

// The region that applies to a call: that of the first tensor's backend.
struct Region {
  int16_t backend = -1;
  DType dtype = DType::Undefined;
  bool host = false;
};
Region region_of(const Frame& f) {
  Region found;
  for_each_tensor(f, [&](const Tensor& t) {
    if (found.backend >= 0 || t.device().is_meta()) return;
    Backend& b = backend_of(t.device());
    const auto& dtypes = autocast().dtypes;
    auto at = dtypes.find(b.name());
    found = {b.id(), at == dtypes.end() ? DType::Undefined : at->second, b.host_memory()};
  });
  return found;
}

bool first_has(const Frame& f, DType dtype) {
  for (int32_t k = 0; k < f.nargs; ++k)
    if (f.args[k].tag == Tag::Tensor) return f.args[k].as_tensor().dtype() == dtype;
  return false;
}

void run_cast(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  const auto& policies = *static_cast<const Policies*>(ctx);
  KeySet rest = keys & below(key::Autocast);
  Region region = region_of(f);
  AutocastPolicy policy = region.host ? policies.host : policies.device;
  if (policy != AutocastPolicy::None) ++autocast().asked;
  if (region.dtype == DType::Undefined || policy == AutocastPolicy::None) return redispatch(op, f, rest);
  if (policy == AutocastPolicy::First) {
    if (!first_has(f, region.dtype)) return redispatch(op, f, rest);
    policy = AutocastPolicy::Lower;
  }
  if (policy == AutocastPolicy::Exempt) {
    ExcludeKeys exclude(key_bit(key::Autocast));
    return redispatch(op, f, rest);
  }
  DType to = policy == AutocastPolicy::Lower     ? region.dtype
             : policy == AutocastPolicy::Float32 ? DType::Float32
                                                 : widest(f, region.backend, region.dtype);
  ExcludeKeys exclude(key_bit(key::Autocast));
  CastArguments cast(f, region.backend, to);
  Frame inner{cast.data(), f.rets, f.nargs, f.nrets};
  redispatch(op, inner, rest);
}

} // namespace

Tensor autocast_cast(const Tensor& t, DType to) {
  if (t.dtype() == to) return t;
  if (!keeps_cast(t)) return ops::to_dtype(t, to);
  if (Tensor kept = kept_cast(t, to); kept.defined()) return kept;
  return autocast().kept.emplace(t.impl(), Cast{t, ops::to_dtype(t, to)}).first->second.result;
}

std::string autocast_regions() {
  std::string out;
  for (const auto& [name, dtype] : autocast().dtypes) {
    out += name;
    out += '\0';
    out += static_cast<char>(dtype);
  }
  return out;
}

uint64_t autocast_asked() { return autocast().asked; }

void describe_autocast(std::string& out) {
  out += autocast_regions();
  out += static_cast<char>(autocast().keep);
}

void set_autocast_policy(const std::string& base, AutocastPolicy host, AutocastPolicy device) {
  auto found = overloads(base);
  TS_CHECK(!found.empty(), "autocast: no operator named '", base, "'");
  auto* policies = const_cast<Policies*>(&policies_of(host, device)); // only read
  for (const Operator* op : found)
    if (op->variant == Variant::Functional)
      mutable_operator(*op).table.set(key::Autocast, {run_cast, policies, "tesserack.amp"});
}

void set_autocast_dtype(const std::string& backend, DType dtype) {
  ThreadAutocast& state = autocast();
  const std::string& name = real_device_name(backend);
  if (dtype == DType::Undefined)
    state.dtypes.erase(name);
  else
    state.dtypes[name] = dtype;
  KeySet& include = thread_state().include;
  include = state.dtypes.empty() ? include & ~key_bit(key::Autocast) : include | key_bit(key::Autocast);
}

void clear_autocast_cache() { autocast().kept.clear(); }
void keep_autocast_casts(bool keep) {
  ThreadAutocast& state = autocast();
  state.of_program = keep && (state.keep ? state.of_program : written_down());
  state.keep = keep;
}

} // namespace ts
