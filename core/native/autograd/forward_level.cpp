#include "autograd/forward_level.h"
#include "autograd/record.h"
#include "dispatch/operator.h"
#include <utility>

namespace ts {
namespace {
thread_local bool t_level = false;
thread_local bool t_hidden = false;
} // namespace

bool set_forward_level(bool on) {
  const bool before = std::exchange(t_level, on);
  if (on != before) switch_grad(grad_enabled() && !t_hidden);
  return before;
}

GradSwitch grad_switch() { return {grad_enabled(), t_hidden}; }
void restore_grad(GradSwitch before) {
  set_grad_enabled(before.recorded);
  t_hidden = before.hidden;
}
void switch_grad(bool on) {
  t_hidden = !on && t_level && !thread_state().inference;
  set_grad_enabled(on || t_hidden);
}
bool hidden_no_grad() { return t_hidden && grad_enabled(); }
bool is_unrecorded_write(const Tensor& t) {
  return hidden_no_grad() && requires_grad(t) && (is_leaf(t) || is_view_of_leaf(t));
}

} // namespace ts
