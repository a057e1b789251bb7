// In-place and out= forms of operators that are not pointwise.
#pragma once
#include "dispatch/operator.h"

namespace ts {

// Bodies. A primitive computes straight into the tensor given where that is laid out as its result would be and shares
// no memory with what it reads; else, as a composite does, into a fresh one that is then copied.
void run_inplace_form(const Operator& op, Frame& f);
void run_out_form(const Operator& op, Frame& f);
// Where a gradient is recorded: computed apart, then copied, both recorded; and refused.
void record_inplace_form(const Operator& op, Frame& f);
void record_out_form(const Operator& op, Frame& f);
// RuntimeError where PyTorch takes an out= of the result's dtype alone.
void check_output_dtype(const Operator& op, DType result, DType out);

} // namespace ts
