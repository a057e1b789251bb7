#include "autograd/forward_level.h"
#include "autograd/meta.h"
#include "autograd/record.h"
#include "dispatch/operator.h"
#include <utility>

namespace ts {
namespace {
thread_local ForwardLevel t_level = ForwardLevel::None;
thread_local bool t_pushing = false;
} // namespace

ForwardLevel set_forward_level(ForwardLevel level) {
  const ForwardLevel before = std::exchange(t_level, level);
  const bool hidden = thread_state().hidden_no_grad;
  if ((level == ForwardLevel::None) != (before == ForwardLevel::None)) switch_grad(grad_enabled() && !hidden);
  return before;
}

GradSwitch grad_switch() { return {grad_enabled(), thread_state().hidden_no_grad}; }
void restore_grad(GradSwitch before) {
  set_grad_enabled(before.recorded);
  thread_state().hidden_no_grad = before.hidden;
}
void switch_grad(bool on) {
  ThreadState& state = thread_state();
  state.hidden_no_grad = !on && t_level != ForwardLevel::None && !state.inference;
  set_grad_enabled(on || state.hidden_no_grad);
}
bool hidden_no_grad() { return thread_state().hidden_no_grad && grad_enabled(); }
bool is_unrecorded_write(const Tensor& t) {
  if (!hidden_no_grad() || !requires_grad(t)) return false;
  return is_leaf(t) || is_view_of_leaf(t) || (t_level == ForwardLevel::Recorded && !is_forward_only(t));
}

bool is_forward_only(const Tensor& t) {
  const AutogradMeta* meta = autograd_meta(t.impl());
  return meta && meta->grad_fn && meta->grad_fn->forward_only;
}
bool set_pushing(bool on) { return std::exchange(t_pushing, on); }
bool is_pushing() { return t_pushing; }

} // namespace ts
