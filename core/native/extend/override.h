// Kernels of a backend for whole operators, in place of what their declarations say.
#pragma once
#include "dispatch/operator.h"
#include "runtime/backend.h"

namespace ts {

// Asks the backend for kernels named as operators are ("softmax", "sum.dim"), and uses those it answers for: on that
// backend alone, and only where the operator's results are new tensors. A kernel may decline a call. An operator
// without a gradient of its own keeps its declared body wherever gradients are recorded, because the kernel cannot be
// traced.
void install_overrides(Backend& backend);
void install_override(Backend& backend, const Operator& op);
// Whether the backend runs the primitive's own computation, or a kernel in its place: both fill results that exist.
bool computes(const Operator& op, int backend);
void compute_on(const Operator& op, Frame& f, Device device);
bool replaceable(const Operator& op); // whether such a kernel may be used at all

} // namespace ts
