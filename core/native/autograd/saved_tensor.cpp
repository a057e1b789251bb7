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
  int user = 0; // how many of them are a program's
  const char* disabled = nullptr;
};
thread_local HookStack t_hooks;

// As set_history, of a node that was recorded before.
void restore_history(const Tensor& t, Ref<Node> node, uint32_t output_nr) {
  set_grad_fn(t.impl(), std::move(node), output_nr);
  t->keys |= key_bit(key::Autograd);
}

} // namespace

struct SavedTensor::Packed {
  PackedTensor kept;
  std::optional<Edge> history; // of a tensor that has one and is no result
};
void SavedTensor::DeletePacked::operator()(Packed* p) const { delete p; }

void push_saved_tensor_hooks(SavedTensorHooks hooks, bool internal) {
  TS_CHECK(internal || !t_hooks.disabled, t_hooks.disabled);
  t_hooks.user += hooks.user = !internal;
  t_hooks.hooks.push_back(std::move(hooks));
  ++thread_state().saved_tensor_hooks;
}
void pop_saved_tensor_hooks() {
  if (t_hooks.hooks.empty()) return;
  t_hooks.user -= t_hooks.hooks.back().user;
  t_hooks.hooks.pop_back();
  --thread_state().saved_tensor_hooks;
}
void disable_saved_tensor_hooks(const char* message) {
  TS_CHECK(!message || !t_hooks.user, message);
  t_hooks.disabled = message;
}

SavedTensor::SavedTensor(const Tensor& t, bool is_result, uint32_t output_nr)
    : version_(t.defined() ? t.version() : 0), output_nr_(output_nr), is_result_(is_result) {
  if (!t.defined()) return;
  TS_CHECK(!t->has(TensorImpl::kInference),
           "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
           "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use "
           "it in autograd, or use "
           "`tesserack.no_grad()` instead of `tesserack.inference_mode()`.");
  if (thread_state().saved_tensor_hooks > 0) [[unlikely]] {
    SavedTensorHooks hooks = t_hooks.hooks.back();
    pack(hooks, is_result ? detach(t) : t);
    return;
  }
  // A result holds its node, which holds this: keep a history-free alias instead.
  if (is_result)
    data_ = detach(t);
  else
    data_ = t;
  had_history_ = !is_result && has_history(t);
}

void SavedTensor::pack(const SavedTensorHooks& hooks, const Tensor& t) {
  std::unique_ptr<Packed, DeletePacked> packed(new Packed);
  // The history, without the data.
  if (!is_result_ && requires_grad(t)) packed->history = gradient_edge(t);
  GradMode off(false);
  uint32_t version = t.version();
  packed->kept = hooks.pack(t);
  TS_CHECK(t.version() == version,
           "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not "
           "be modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if "
           "you need to perform in-place operations on the input to a pack hook.");
  packed_ = std::move(packed);
}

void SavedTensor::register_hooks(const SavedTensorHooks& hooks, Node* owner) {
  TS_CHECK(!released_,
           "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph "
           "are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
           "through the graph a second time or if you need to access saved variables after calling backward.");
  TS_CHECK(defined(), "Calling register_hooks on a saved tensor with value None is forbidden");
  TS_CHECK(!packed_, "Calling register_hooks on a saved tensor whose hooks have already been set. "
                     "Hint: only one pair of hooks is allowed at a time.");
  Tensor t = is_result_ ? data_ : unpack(owner);
  pack(hooks, t);
  data_ = Tensor();
}

const PackedTensor* SavedTensor::packed() const { return packed_ ? &packed_->kept : nullptr; }

void SavedTensor::visit_held(HeldVisitor& visitor) const {
  if (data_.defined()) visitor.tensor(data_);
  if (!packed_) return;
  if (!packed_->kept.objects) {
    if (packed_->kept.shown && packed_->kept.value.use_count() == 1) visitor.tensor(*packed_->kept.shown);
    return;
  }
  visitor.object(packed_->kept.value, 1);
  visitor.object(packed_->kept.opener, 1);
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
    Tensor t = packed.kept.unpack(packed.kept);
    TS_CHECK_TYPE(t.defined(), "saved_tensors_hooks: the unpack hook must return a Tensor");
    if (!packed.history && !is_result_) return t;
    if (!is_result_ && requires_grad(t))
      if (Edge own = gradient_edge(t); own.node == packed.history->node && own.input == packed.history->input) return t;
    Tensor out = detach(t);
    if (is_result_)
      restore_history(out, Ref<Node>::share(owner), output_nr_);
    else if (packed.history->node)
      restore_history(out, packed.history->node, packed.history->input);
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
  if (owner && grad_enabled()) restore_history(out, Ref<Node>::share(owner), output_nr_);
  return out;
}

void SavedTensor::reset() {
  if (!data_.defined() && !packed_) return;
  data_ = Tensor();
  packed_.reset();
  released_ = true;
}

} // namespace ts
