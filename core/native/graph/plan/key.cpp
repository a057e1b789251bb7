#include "graph/plan/key.h"
#include "autograd/meta.h"
#include "dispatch/kernel_spec.h"
#include "dispatch/watch.h"
#include "runtime/backend.h"
#include "runtime/changes.h"
#include "runtime/new_storage.h"
#include <algorithm>

namespace ts::graph {
namespace {

constexpr uint8_t kFlags = TensorImpl::kInference | TensorImpl::kNumber | TensorImpl::kConstantData;

KeySet keys_of(const TensorImpl& t) { return t.keys & ~key_bit(key::Autograd); }

// Of factories that name none.
int64_t device_now() {
  try {
    return default_device().pack();
  } catch (const Error&) { // there is none: then none was asked for
    return -1;
  }
}

uint64_t misaligned_bits(const TensorImpl& t) {
  return static_cast<uint64_t>(t.byte_offset) & backend_of(t.device).limits(t.device.index).misaligned;
}

template <class F> bool all_of(std::span<const Tensor> inputs, std::span<const Tensor> captures, F&& test) {
  return std::ranges::all_of(inputs, test) && std::ranges::all_of(captures, test);
}

} // namespace

bool may_plan() {
  const ThreadState& t = thread_state();
  const bool plain = !t.include && !(t.exclude & ~key_bit(key::Autograd)) && !t.capture && !t.anomaly &&
                     !t.transfer_guard[0] && !t.transfer_guard[1] && !t.transfer_guard[2];
  return plain && !kernel_watchers.load(std::memory_order_relaxed) &&
         !storage_watchers.load(std::memory_order_relaxed) &&
         determinism.load(std::memory_order_relaxed) == Determinism::Any &&
         !fills_new_memory.load(std::memory_order_relaxed) && !kernels_withheld.load(std::memory_order_relaxed);
}

PlanKey::Modes PlanKey::Modes::now() {
  return {grad_enabled(),
          thread_state().inference,
          ts::default_dtype(),
          device_now(),
          call_flags.load(std::memory_order_relaxed),
          kernel_changes.load(std::memory_order_relaxed)};
}

bool PlanKey::plannable(std::span<const Tensor> inputs, std::span<const Tensor> captures) {
  if (inputs.empty() && captures.empty()) return false;
  const Device device = inputs.empty() ? captures[0].device() : inputs[0].device();
  if (device.is_meta()) return false;
  return all_of(inputs, captures, [&](const Tensor& t) {
    return t.device() == device && !(t->keys & ~(backend_bits() | key_bit(key::Autograd))) && !t->payload &&
           (t->storage || !t.numel());
  });
}

PlanKey::PlanKey(std::span<const Tensor> inputs, std::span<const Tensor> captures, const Modes& modes) : modes_(modes) {
  std::unordered_map<const Storage*, std::pair<uint32_t, int64_t>> first;
  std::unordered_map<const TensorImpl*, uint32_t> tensors;
  for (std::span<const Tensor> list : {inputs, captures})
    for (const Tensor& tensor : list) {
      const TensorImpl& t = *tensor.impl();
      const auto k = static_cast<uint32_t>(given_.size());
      std::pair<uint32_t, int64_t> lead{k, t.byte_offset};
      if (t.storage) lead = first.try_emplace(t.storage, lead).first->second;
      given_.push_back({t.dtype, t.ndim, static_cast<uint8_t>(t.flags & kFlags), t.own_version != nullptr,
                        modes.grad && requires_grad(&t), t.device, keys_of(t), static_cast<uint32_t>(dims_.size()),
                        lead.first, tensors.try_emplace(&t, k).first->second, t.byte_offset - lead.second,
                        misaligned_bits(t)});
      dims_.insert(dims_.end(), t.sizes().begin(), t.sizes().end());
      dims_.insert(dims_.end(), t.strides().begin(), t.strides().end());
    }
}

inline bool PlanKey::fits(const Given& g, const TensorImpl& t) const {
  const int64_t* dims = dims_.data() + g.dims;
  return t.dtype == g.dtype && t.ndim == g.ndim && (t.flags & kFlags) == g.flags && t.device == g.device &&
         keys_of(t) == g.keys && same(t.sizes(), {dims, g.ndim}) && same(t.strides(), {dims + g.ndim, g.ndim}) &&
         (t.own_version != nullptr) == g.own_version && misaligned_bits(t) == g.misaligned;
}

bool PlanKey::fits(std::span<const Tensor> inputs, std::span<const Tensor> captures, const Modes& modes) const {
  if (inputs.size() + captures.size() != given_.size() || !(modes == modes_)) return false;
  auto tensor = [&](size_t k) -> const TensorImpl& {
    return *(k < inputs.size() ? inputs[k] : captures[k - inputs.size()]).impl();
  };
  for (size_t k = 0; k < given_.size(); ++k) {
    const Given& g = given_[k];
    const TensorImpl& t = tensor(k);
    if (!fits(g, t) || (modes_.grad && requires_grad(&t)) != g.flows || t.payload) return false;
    if (g.shares == k) continue;
    const TensorImpl& lead = tensor(g.shares);
    if (t.storage != lead.storage || t.byte_offset - lead.byte_offset != g.distance) return false;
    if (!g.flows) continue;
    for (size_t other = g.shares; other < k; ++other) // a gradient goes to a tensor, not to memory
      if (given_[other].twin == other && (&tensor(other) == &t) != (g.twin == other)) return false;
  }
  return true;
}

bool PlanKey::flows() const { return std::ranges::any_of(given_, &Given::flows); }

} // namespace ts::graph
