// How primitives run: the rule outlines the results, the core gives them memory, the computation fills them.
#pragma once
#include "dispatch/operator.h"

namespace ts {

// Bodies of operators with a rule and a computation: of those whose results are new tensors, and of those whose results
// are the arguments they write.
void run_primitive(const Operator& op, Frame& f);
void run_writer(const Operator& op, Frame& f);
// Of those whose sizes follow from values: the rule checks, then results are made. NotImplementedError without data.
void run_maker(const Operator& op, Frame& f);
// The first as the kernel of a backend's key.
void run_primitive_kernel(void*, const Operator& op, Frame& f, KeySet keys);

// Gives the results memory, once the rule has outlined them. False where there is nothing to compute: on the meta
// device, or when no result has an element and no argument is written.
bool allocate_results(const Operator& op, Frame& f);
// Runs the computation on results that are there; they are freed when it fails.
void compute_results(const Operator& op, Frame& f);
void drop_results(Frame& f);

// Runs the decomposition, whatever kernels there are, on the meta device too. False for operators without one.
bool run_decomposition(const Operator& op, Frame& f);

} // namespace ts
