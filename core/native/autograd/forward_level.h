// Where tangents go forward, what runs under no_grad has them too: there it is recorded, and only looks as if it were
// not. States of this thread.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// What this thread's level is from now on; returns what it was. Within a transform that takes gradients there is none:
// for them what runs under no_grad is constant.
enum class ForwardLevel : uint8_t { None, On, Recorded }; // Recorded: an outer computation takes gradients too
ForwardLevel set_forward_level(ForwardLevel level);
// What no_grad and its like do. Returns how it was, for the end of the context.
struct GradSwitch {
  bool recorded, hidden;
};
GradSwitch grad_switch();
void restore_grad(GradSwitch before);
void switch_grad(bool on);
bool hidden_no_grad(); // the program is under no_grad, and recorded all the same
// Then writing to a leaf, or a view of one, is not: a step of an optimizer. Nor is writing to what outer gradients go
// through.
bool is_unrecorded_write(const Tensor& t);
bool is_forward_only(const Tensor& t); // made under no_grad: it has tangents and no gradient
// Whether runs of backward compute tangents, and so go through what was made under no_grad; returns how it was.
bool set_pushing(bool on);
bool is_pushing();

} // namespace ts
