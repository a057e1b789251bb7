// Nodes whose backward is what declarations of operators say: it calls operators, and nothing that a program brought.
#pragma once
#include "autograd/node.h"

namespace ts {

struct DeclaredNode : Node {};

} // namespace ts
