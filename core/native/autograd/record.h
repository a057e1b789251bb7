// Recording: the autograd kernel of operators, in-place history, refusals.
#pragma once
#include "autograd/meta.h"

namespace ts {

// Kernel at the autograd key of every operator that does not bring its own.
void autograd_kernel(void*, const Operator& op, Frame& f, KeySet keys);

// RuntimeError when t may not be modified in place now: a leaf that requires grad, a view of one, an output of a
// multi-view operator, an inference tensor.
void check_inplace_history(const Operator& op, const Tensor& t);
// Of a view, the same: one of several views, one made under no_grad, one of a leaf.
void check_written_view(const Tensor& t);
bool is_view_of_leaf(const Tensor& t); // of one that requires grad, or into whose memory such a one looks
// `node` computed t's new value, as one of its results, from, among others, the old one. For views the base follows.
void record_inplace(const Tensor& t, const Ref<Node>& node, uint32_t result = 0);
// Where the gradient of t's old value goes when t is modified in place. A view's goes straight to its place in the
// base: the way through its own history may lead by narrower views.
Edge inplace_edge(const Tensor& t);
[[noreturn]] void refuse_out_gradient(const Operator& op);
std::string backward_name(const Operator& op); // "MulBackward0"

} // namespace ts
