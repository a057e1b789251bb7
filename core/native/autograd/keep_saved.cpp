#include "autograd/keep_saved.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "runtime/new_storage.h"
#include <algorithm>
#include <string>
#include <unordered_map>

namespace ts {
namespace {

struct Guard {
  WatchStorage inside;
  std::vector<const Storage*> own;
  std::string message;
};

struct Kept {
  std::vector<std::unique_ptr<Guard>> guards;
  std::unordered_map<const Storage*, std::vector<std::weak_ptr<KeptTensor>>> by_memory;
  size_t added = 0; // since what is gone was last dropped
  int watching = 0;
};
thread_local Kept t_kept;

int write_key() {
  static const int key = register_key("KeepSaved", key::Autograd, true);
  return key;
}

void check_guarded(const Tensor& t, std::string_view what) {
  for (const auto& guard : t_kept.guards)
    TS_CHECK(guard->inside.made(t->storage) || std::ranges::count(guard->own, t->storage), what, ": ", guard->message);
}

void drop_expired() {
  for (auto at = t_kept.by_memory.begin(); at != t_kept.by_memory.end();) {
    std::erase_if(at->second, [](auto& kept) { return kept.expired(); });
    at = at->second.empty() ? t_kept.by_memory.erase(at) : std::next(at);
  }
  t_kept.added = 0;
}

void about_to_write(const Operator& op, const Tensor& t) {
  if (!t.defined() || !t->storage) return;
  check_guarded(t, op.name());
  auto found = t_kept.by_memory.find(t->storage);
  if (found == t_kept.by_memory.end()) return;
  auto list = std::move(found->second);
  t_kept.by_memory.erase(found);
  for (auto& weak : list) {
    auto kept = weak.lock();
    if (!kept || kept->copied || kept->tensor.version() != kept->version) continue;
    GradMode off(false);
    kept->tensor = ops::clone(kept->tensor);
    kept->copied = true;
  }
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a->storage && a->storage == b->storage && a->byte_offset == b->byte_offset &&
         std::ranges::equal(a.sizes(), b.sizes()) && std::ranges::equal(a.strides(), b.strides());
}

// The arguments with copies of what is written and read as well, a.mul_(a): it is saved as it was before.
std::vector<Value> read_before(const Operator& op, const Frame& f, std::vector<Tensor>& copies) {
  std::vector<Value> args(f.args, f.args + f.nargs);
  const auto& types = op.schema->args;
  auto is_written = [&](const Tensor& t) {
    for (size_t k = 0; k < types.size(); ++k)
      if (types[k].type.mutated && args[k].tag == Tag::Tensor && same_view(args[k].as_tensor(), t)) return true;
    return false;
  };
  copies.reserve(args.size()); // which values point to
  for (size_t k = 0; k < types.size(); ++k) {
    if (types[k].type.mutated || args[k].tag != Tag::Tensor || !is_written(args[k].as_tensor())) continue;
    copies.push_back(ops::clone(args[k].as_tensor()));
    args[k] = Value(copies.back());
  }
  return args;
}

// At a key above autograd's, on in threads that watch: before an operator that writes.
void watch_call(void*, const Operator& op, Frame& f, KeySet keys) {
  const bool does = writes(op, f);
  for (size_t k = 0; does && k < op.schema->args.size(); ++k) {
    if (!op.schema->args[k].type.mutated) continue;
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      about_to_write(op, v.as_tensor());
    else if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors()) about_to_write(op, t);
  }
  if (!does) return redispatch(op, f, keys & below(write_key()));
  std::vector<Tensor> copies;
  std::vector<Value> args = read_before(op, f, copies);
  Frame read{args.data(), f.rets, f.nargs, f.nrets};
  redispatch(op, read, keys & below(write_key()));
}

struct Install {
  Install() { set_key_default(write_key(), {watch_call, nullptr, "tesserack"}); }
} install_keep_saved;

Tensor unpack_kept(const PackedTensor& packed) {
  return kept_value(*static_cast<const KeptTensor*>(packed.value.get()));
}

} // namespace

std::shared_ptr<KeptTensor> keep_tensor(const Tensor& t) {
  auto kept = std::make_shared<KeptTensor>(KeptTensor{t, t.version()});
  if (t->storage) {
    if (++t_kept.added > 2 * t_kept.by_memory.size() + 1024) drop_expired();
    t_kept.by_memory[t->storage].push_back(kept);
  }
  return kept;
}

Tensor kept_value(const KeptTensor& kept) {
  TS_CHECK(kept.copied || kept.tensor.version() == kept.version,
           "one of the variables needed for gradient computation has been modified by an inplace operation: [",
           kept.tensor.dtype(), " ", kept.tensor.sizes(), "] is at version ", kept.tensor.version(),
           "; expected version ", kept.version, " instead. It was written to outside of the context that keeps it.");
  return kept.tensor;
}

void watch_writes(bool on) {
  t_kept.watching += on ? 1 : -1;
  KeySet& include = thread_state().include;
  const KeySet bit = key_bit(write_key());
  include = t_kept.watching > 0 ? include | bit : include & ~bit;
  if (t_kept.watching == 0) t_kept.by_memory.clear();
}

void push_write_guard(TensorList own, std::string message) {
  auto guard = std::make_unique<Guard>();
  guard->message = std::move(message);
  for (const Tensor& t : own)
    if (t.defined() && t->storage) guard->own.push_back(t->storage);
  t_kept.guards.push_back(std::move(guard));
  watch_writes(true);
}

void pop_write_guard() {
  if (t_kept.guards.empty()) return;
  t_kept.guards.pop_back();
  watch_writes(false);
}

void check_write(const Tensor& t, const char* what) {
  if (t->storage) check_guarded(t, what);
}

bool writes_are_guarded() { return !t_kept.guards.empty(); }

void push_keeping_hooks() {
  SavedTensorHooks hooks;
  hooks.pack = [](const Tensor& t) -> PackedTensor {
    auto kept = keep_tensor(t);
    const Tensor* shown = &kept->tensor;
    return {.value = std::move(kept), .opener = nullptr, .unpack = unpack_kept, .shown = shown};
  };
  push_saved_tensor_hooks(std::move(hooks), true);
  watch_writes(true);
}

void pop_keeping_hooks() {
  pop_saved_tensor_hooks();
  watch_writes(false);
}

} // namespace ts
