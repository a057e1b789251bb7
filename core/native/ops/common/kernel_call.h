// Runs primitives whose kernel is declared as data (dispatch/kernel_spec.h): operands are prepared here, once.
#pragma once
#include "dispatch/kernel_spec.h"
#include "dispatch/operator.h"

namespace ts {

// The computation of such a primitive: by the kernel, else by the decomposition, else, where there is none, by the
// cpu's.
void compute_by_kernel(const Operator& op, Frame& f);
// The same of plain ones (KernelSpec::plain), which small calls are: quick where no operand needs preparing.
void compute_by_plain_kernel(const Operator& op, Frame& f);
// The decomposition of one that gives its parts as results: into the results that exist.
void fill_from_parts(const Operator& op, Frame& f);

} // namespace ts
