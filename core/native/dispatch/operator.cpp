#include "dispatch/operator.h"
#include "dispatch/describe.h"
#include "dispatch/primitive.h"
#include "runtime/changes.h"
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

namespace ts {
namespace {

struct Registry {
  std::recursive_mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Operator>> by_name;
  std::unordered_map<std::string, std::vector<const Operator*>> by_base;
  std::vector<const Operator*> order;
  std::vector<std::unique_ptr<Operator>> forgotten;
  const Kernel* defaults[Operator::kKeys] = {};
  std::map<std::string, int> keys = {{"Leaf", key::Leaf},
                                     {"Python", key::Python},
                                     {"Conjugate", key::Conjugate},
                                     {"Negative", key::Negative},
                                     {"StorageDtype", key::StorageDtype},
                                     {"Autograd", key::Autograd},
                                     {"Sparse", key::Sparse},
                                     {"Batching", key::Batching},
                                     {"Autocast", key::Autocast},
                                     {"Profiler", key::Profiler},
                                     {"Tracer", key::Tracer},
                                     {"UserMode", key::UserMode}};
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

// Backend keys run the body, after checking that all tensors share the device.
void run_body(void*, const Operator& op, Frame& f, KeySet) {
  if (!op.any_device) check_same_device(op, f);
  op.body(op, f);
}

bool is_argument(const Frame& f, const TensorImpl* base) {
  auto matches = [base](const Tensor& t) { return t.defined() && (t.impl() == base || t->base == base); };
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && matches(v.as_tensor())) return true;
    if (v.tag == Tag::Tensors && std::ranges::any_of(v.as_tensors(), matches)) return true;
  }
  return false;
}

// The same for operators made of others whose schema names no alias: a view of what they made on the way is nobody's
// view. Writing to it in place then costs no more than to any other result.
void run_composite_body(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  run_body(ctx, op, f, keys);
  for (int32_t k = 0; k < f.nrets; ++k) {
    TensorImpl* t = f.rets[k].tag == Tag::Tensor ? f.rets[k].tensor : nullptr;
    if (!t || !t->base || t->refs.load(std::memory_order_relaxed) != 1 || is_argument(f, t->base)) continue;
    auto is_sibling = [t](const Value& v) {
      return v.tag == Tag::Tensor && v.tensor != t && v.tensor->base == t->base;
    };
    if (std::none_of(f.rets, f.rets + f.nrets, is_sibling)) forget_base(*t);
  }
}

// As run_body for operators that write arguments: their versions count up.
void run_mutating_body(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  run_body(ctx, op, f, keys);
  count_writes(op, f);
}

} // namespace

const Kernel* keep_kernel(const Kernel& kernel) {
  static auto* kept = new std::map<std::tuple<KernelFn, void*, const char*>, Kernel>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  return &kept->try_emplace({kernel.fn, kernel.ctx, kernel.owner}, kernel).first->second;
}

void KernelTable::set(int key, const Kernel& kernel) {
  set_kept(key, kernel.fn ? keep_kernel(kernel) : nullptr);
  kernel_changes.fetch_add(1);
}

void check_backend_call(const Operator& op, const Frame& f) {
  if (!op.any_device) check_same_device(op, f);
}

bool writes(const Operator& op, const Frame& f) {
  const int where = op.effects.writes_where;
  return op.effects.mutates && (where < 0 || f.args[where].i != 0);
}

void count_writes(const Operator& op, const Frame& f) {
  if (!writes(op, f)) return;
  for (size_t k = 0; k < op.schema->args.size(); ++k) {
    if (!op.schema->args[k].type.mutated) continue;
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      v.tensor->bump_version();
    else if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined()) t->bump_version();
  }
}

bool runs_body(const Operator& op, int key) {
  const Kernel* kernel = op.table.find(key);
  KernelFn fn = kernel ? kernel->fn : nullptr;
  return fn == run_body || fn == run_mutating_body || fn == run_composite_body || fn == run_primitive_kernel;
}

KernelFn kernel_of_body(const Operator& op) {
  // Dropout in place writes nothing where it drops nothing; what its parts write, they count.
  const bool parts_write = op.composite() && op.effects.random;
  if (op.schema->mutates() && !parts_write) return run_mutating_body;
  if (op.body == run_primitive) return run_primitive_kernel;
  auto aliases = [](const ArgType& type) { return type.alias != 0; };
  return op.composite() && std::ranges::none_of(op.schema->returns, aliases) ? run_composite_body : run_body;
}

// Then there are no devices to compare.
static bool takes_one_tensor(const Schema& schema) {
  int tensors = 0;
  for (const Argument& a : schema.args)
    if (a.type.kind == TypeKind::Tensor || a.type.kind == TypeKind::Operand) tensors += a.type.list ? 2 : 1;
  return tensors <= 1;
}

// By the namespace: PyTorch's of operators that every rank of a group calls.
static bool is_collective(const Schema& schema) {
  constexpr std::string_view kSpaces[] = {"_c10d_functional::", "_c10d_functional_autograd::", "c10d::"};
  return std::ranges::any_of(kSpaces, [&](std::string_view space) { return schema.base.starts_with(space); });
}

Operator& register_operator(std::unique_ptr<Operator> op) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const std::string name = op->schema->name;
  TS_CHECK(!r.by_name.contains(name), "operator: '", name, "' is already registered");
  if (op->python_name.empty()) op->python_name = op->schema->base;
  for (size_t k = 0; k < op->schema->args.size(); ++k) {
    const ArgType& type = op->schema->args[k].type;
    if (type.mutated) op->effects.mutates |= uint64_t{1} << k;
    op->effects.random |= type.kind == TypeKind::Generator;
  }
  op->effects.communicates |= is_collective(*op->schema);
  op->any_device |= takes_one_tensor(*op->schema);
  const Kernel* body = keep_kernel({kernel_of_body(*op), nullptr, op->origin});
  for (int k = 0; k < Operator::kKeys; ++k)
    if (!op->table.find(k)) op->table.set_kept(k, k < key::kBackendBits ? body : r.defaults[k]);
  Operator& ref = *op;
  r.order.push_back(op.get());
  r.by_base[ref.schema->base].push_back(op.get());
  r.by_name.emplace(name, std::move(op));
  return ref;
}

void forget_operator(std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto found = r.by_name.find(std::string(name));
  TS_CHECK(found != r.by_name.end(), "operator: no operator named '", name, "'");
  const Operator* op = found->second.get();
  TS_CHECK(op->schema->base.find("::") != std::string::npos, "operator: '", name, "' is built in");
  std::erase(r.order, op);
  std::erase(r.by_base[op->schema->base], op);
  r.forgotten.push_back(std::move(found->second));
  r.by_name.erase(found);
  kernel_changes.fetch_add(1);
}

const Operator* find_operator(std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.by_name.find(std::string(name));
  return it == r.by_name.end() ? nullptr : it->second.get();
}

const Operator& get_operator(std::string_view name) {
  const Operator* op = find_operator(name);
  if (!op) fail(ErrorKind::Runtime, "operator: no operator named '", name, "'");
  return *op;
}

std::vector<const Operator*> all_operators() {
  std::lock_guard lock(registry().mutex);
  return registry().order;
}

std::vector<const Operator*> overloads(std::string_view base) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.by_base.find(std::string(base));
  return it == r.by_base.end() ? std::vector<const Operator*>() : it->second;
}

Operator& mutable_operator(const Operator& op) { return const_cast<Operator&>(op); }

void set_key_default(int key, Kernel kernel) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const Kernel *old = r.defaults[key], *kept = kernel.fn ? keep_kernel(kernel) : nullptr;
  r.defaults[key] = kept;
  kernel_changes.fetch_add(1);
  for (const Operator* op : r.order)
    if (op->table.find(key) == old) mutable_operator(*op).table.set_kept(key, kept);
}

int register_key(const std::string& name, int next_to, bool before) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  TS_CHECK(!r.keys.contains(name), "dispatch: a key named '", name, "' exists already");
  // "before autograd" means considered earlier, so a higher bit: the middle of the nearest gap, which leaves room on
  // both sides.
  auto taken = [&](int k) { return std::any_of(r.keys.begin(), r.keys.end(), [&](auto& e) { return e.second == k; }); };
  auto exists = [](int k) { return k >= key::kBackendBits && k < Operator::kKeys; };
  const int step = before ? 1 : -1;
  int at = next_to + step;
  while (exists(at) && taken(at)) at += step;
  TS_CHECK(exists(at), "dispatch: no free key ", before ? "before " : "after ", key_name(next_to), " for '", name, "'");
  int last = at;
  while (exists(last + step) && !taken(last + step)) last += step;
  return r.keys[name] = (at + last + before) / 2; // the farther one of two
}

int find_key(const std::string& name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.keys.find(name);
  return it == r.keys.end() ? -1 : it->second;
}

std::string key_name(int key) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  for (auto& [name, k] : r.keys)
    if (k == key) return name;
  return "key " + std::to_string(key);
}

} // namespace ts
