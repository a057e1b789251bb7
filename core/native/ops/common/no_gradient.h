// Gradients that are not there, said instead of left out.
#pragma once
#include "autograd/gradient.h"
#include "dispatch/operator.h"
#include <initializer_list>

namespace ts {

// For .gradient(): of an operator whose results remember what they came from, as PyTorch's do, yet have no derivative.
inline void no_gradient(GradContext& c) {
  fail(ErrorKind::NotImplemented, "derivative for ", c.op().schema->base, " is not implemented; detach() its input");
}

// At the start of a gradient: of the arguments `ks` there is none, and nobody may wait for one in vain.
inline void no_gradient_by(GradContext& c, std::initializer_list<int> ks) {
  for (int k : ks)
    if (c.needs(k))
      fail(ErrorKind::Runtime, c.op().schema->base, ": is not differentiable with respect to ",
           c.op().schema->args[static_cast<size_t>(k)].name, "; detach() it");
}

} // namespace ts
