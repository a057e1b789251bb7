// Gradients that are not there, said instead of left out.
#pragma once
#include "autograd/gradient.h"
#include "dispatch/op_handles.h"
#include "dispatch/operator.h"
#include <initializer_list>

namespace ts {

// For .gradient(): of an operator whose results remember what they came from, as PyTorch's do, yet have no derivative.
inline void no_gradient(GradContext& c) {
  fail(ErrorKind::NotImplemented, "derivative for ", c.op().schema->base, " is not implemented; detach() its input");
}

// Of an operator whose results do not change with its arguments, as PyTorch has it: random numbers by their parameters.
inline void zero_gradient(GradContext& c) {
  for (int k = 0; k < static_cast<int>(c.op().schema->args.size()); ++k)
    if (c.needs(k)) c.set(k, ops::zeros(c.sizes(k), c.dtype(k), c.device(k)));
}

// At the start of a gradient: of the arguments `ks` there is none, and nobody may wait for one in vain.
inline void no_gradient_by(GradContext& c, std::initializer_list<int> ks) {
  for (int k : ks)
    if (c.needs(k))
      fail(ErrorKind::NotImplemented, c.op().schema->base, ": is not differentiable with respect to ",
           c.op().schema->args[static_cast<size_t>(k)].name, "; detach() it");
}

} // namespace ts
