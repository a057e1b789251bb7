#include "autograd/saved_tensor.h"
#include "autograd/meta.h"
#include <vector>

namespace ts {
namespace {

bool has_history(const Tensor& t) {
  const AutogradMeta* m = autograd_meta(t.impl());
  return m && m->grad_fn;
}

struct HookStack {
  std::vector<SavedTensorHooks> hooks;
  const char* disabled = nullptr;
};
thread_local HookStack t_hooks;

} // namespace

struct SavedTensor::Packed {
  std::shared_ptr<void> value;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
  std::optional<Edge> history; // of a tensor that has one and is no result
};
void SavedTensor::DeletePacked::operator()(Packed* p) const { delete p; }

void push_saved_tensor_hooks(SavedTensorHooks hooks) {
  TS_CHECK(!t_hooks.disabled, t_hooks.disabled);
  t_hooks.hooks.push_back(std::move(hooks));
  ++thread_state().saved_tensor_hooks;
}
void pop_saved_tensor_hooks() {
  if (t_hooks.hooks.empty()) return;
  t_hooks.hooks.pop_back();
  --thread_state().saved_tensor_hooks;
}
void disable_saved_tensor_hooks(const char* message) { t_hooks.disabled = message; }

SavedTensor::SavedTensor(const Tensor& t, bool is_result, uint32_t output_nr)
    : version_(t.defined() ? t.version() : 0), output_nr_(output_nr), is_result_(is_result) {
  if (!t.defined()) return;
  TS_CHECK(!t->has(TensorImpl::kInference),
           "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
           "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use "
           "it in autograd, or use "
           "`tesserack.no_grad()` instead of `tesserack.inference_mode()`.");
  if (thread_state().saved_tensor_hooks > 0) [[unlikely]] {
    packed_.reset(new Packed);
    GradMode off(false);
    SavedTensorHooks hooks = t_hooks.hooks.back();
    packed_->value = hooks.pack(is_result ? detach(t) : t);
    packed_->unpack = hooks.unpack;
    // The history, without the data.
    if (requires_grad(t) && !is_result) packed_->history = gradient_edge(t);
    return;
  }
  // A result holds its node, which holds this: keep a history-free alias instead.
  if (is_result)
    data_ = detach(t);
  else
    data_ = t;
  had_history_ = !is_result && has_history(t);
}

void check_not_freed(bool freed) {
  TS_CHECK(!freed,
           "Trying to backward through the graph a second time (or directly access saved tensors after they have "
           "already been freed). "
           "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
           "retain_graph=True if you need to "
           "backward through the graph a second time or if you need to access saved tensors after calling backward.");
}

Tensor SavedTensor::unpack(Node* owner) const {
  check_not_freed(released_);
  if (packed_) {
    Packed packed = *packed_; // the hook may run this very graph, which frees the original
    Tensor t = packed.unpack(packed.value);
    TS_CHECK_TYPE(t.defined(), "saved_tensors_hooks: the unpack hook must return a Tensor");
    if (!packed.history && !is_result_) return t;
    Tensor out = detach(t);
    if (is_result_)
      set_history(out, Ref<Node>::share(owner), output_nr_);
    else if (packed.history->node)
      set_history(out, packed.history->node, packed.history->input);
    return out;
  }
  if (!data_.defined()) return {};
  if (data_.version() != version_) [[unlikely]]
    fail(ErrorKind::Runtime,
         "one of the variables needed for gradient computation has been modified by an inplace operation: [",
         data_.dtype(), " ", data_.sizes(), "]",
         is_result_ ? concat(", which is output ", output_nr_, " of ", owner->name(), ",") : std::string(),
         " is at version ", data_.version(), "; expected version ", version_,
         " instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
         "tesserack.autograd.set_detect_anomaly(True).");
  TS_CHECK(!had_history_ || has_history(data_),
           "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not supported, "
           "please use out-of-place `.detach()` instead");
  if (!is_result_) return data_;
  Tensor out = detach(data_);
  if (owner && grad_enabled()) set_history(out, Ref<Node>::share(owner), output_nr_);
  return out;
}

void SavedTensor::reset() {
  if (!data_.defined() && !packed_) return;
  data_ = Tensor();
  packed_.reset();
  released_ = true;
}

} // namespace ts
