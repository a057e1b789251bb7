// What the real and the complex half of running a pointwise operator share.
#pragma once
#include "ops/pointwise/layout.h"

namespace ts {

// The tensor the result goes to: fresh, self, or out= (resized when its shape is wrong).
Tensor pointwise_target(const Operator& op, Frame& f, PointwisePlan& plan);
// Where an operand is complex.
void run_over_parts(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, Frame& f,
                    PointwisePlan& plan);
// Where operands are floats of 8 bits.
void run_narrow(const Operator& op, Frame& f, PointwisePlan& plan);

} // namespace ts
