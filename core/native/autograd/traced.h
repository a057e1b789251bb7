// Derivatives of a primitive by way of its parts.
#pragma once
#include "autograd/gradient.h"

namespace ts {

// The gradient of an operator whose results `parts`, a body made of differentiable operators, computes as well: runs
// it once more, recorded, and goes back through it. For gradients of gradients, which need no kernel of their own.
// All tensor arguments must be saved.
void trace_gradient(GradContext& c, BodyFn parts);
template <auto Parts> void traced_gradient(GradContext& c) { trace_gradient(c, &Body<Parts>::run); }

} // namespace ts
