// Where tangents go forward, what runs under no_grad has them too: there it is recorded, and only looks as if it were
// not. States of this thread.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// Whether this thread is in such a level, from now on; returns whether it was. Within a transform that takes gradients
// it is not: for them what runs under no_grad is constant.
bool set_forward_level(bool on);
// What no_grad and its like do. Returns how it was, for the end of the context.
struct GradSwitch {
  bool recorded, hidden;
};
GradSwitch grad_switch();
void restore_grad(GradSwitch before);
void switch_grad(bool on);
bool hidden_no_grad(); // the program is under no_grad, and recorded all the same
// Then writing to a leaf, or a view of one, is not: a step of an optimizer.
bool is_unrecorded_write(const Tensor& t);

} // namespace ts
