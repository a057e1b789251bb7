// Nodes whose backward is what declarations of operators say: it calls operators, and nothing that a program brought.
#pragma once
#include "autograd/meta.h"

namespace ts {

struct DeclaredNode : Node {
  bool saves_constants = false; // of the operator alone: they stay, and another pass may follow without retain_graph
};

// The result of an operator that has saved for its gradient what follows from sizes and numbers, and no tensor that was
// given. PyTorch saves the sizes and numbers, which no pass frees.
inline Tensor constants_saved(Tensor result) {
  if (AutogradMeta* meta = autograd_meta(result.impl()))
    if (auto* node = dynamic_cast<DeclaredNode*>(meta->grad_fn.get())) node->saves_constants = true;
  return result;
}

} // namespace ts
