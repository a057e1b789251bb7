// Checks and messages about calls: which tensors, of which shapes, dtypes and devices.
#pragma once
#include "dispatch/operator.h"
#include <string>

namespace ts {

// RuntimeError naming both devices unless all tensor arguments share one. Numbers in tensor form are exempt.
void check_same_device(const Operator& op, const Frame& f);
// "Expected all tensors to be on the same device, ...", with the move that mends it.
std::string devices_differ(Device a, Device b);
// "Tensor[2, 3] float32 cpu, 2.0, dim=[0]": for error messages and logs.
std::string describe_args(const Operator& op, const Frame& f);
std::string describe(const Value& v);
std::string describe(const Tensor& t); // "float32[2, 3]"

} // namespace ts
