// What anomaly mode looks at and tells of.
#pragma once
#include "autograd/node.h"

namespace ts {

// Whether anomaly mode in this thread also refuses NaN gradients (it does by default).
bool anomaly_checks_nan();
void set_anomaly_checks_nan(bool on);

// RuntimeError where a gradient that the node returned holds NaN.
void check_no_nan(const Node& node, std::span<Tensor> out);
// Warns where the node was recorded and, if that was within a backward, where what went before was.
void warn_of_forward(const Node& failed);

} // namespace ts
