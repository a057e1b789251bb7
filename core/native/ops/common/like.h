// Results that look like a tensor given.
#pragma once
#include "runtime/empty.h"
#include <optional>

namespace ts {

// self's sizes, dense strides (or those of the format), and what is given of dtype and device.
Tensor outline_as(const Tensor& self, DType dtype, Device device, std::optional<MemoryFormat> format);

} // namespace ts
