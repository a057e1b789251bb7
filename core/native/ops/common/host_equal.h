// Whether two tensors hold the same elements, where the host can look at their memory.
#pragma once
#include "tensor/tensor.h"
#include <optional>

namespace ts {

// Of the same sizes: equal or not, known at the first difference. Nothing where the host does not read both as they
// lie (other devices, dtypes that differ, strides, complex numbers or floats of 8 bits).
std::optional<bool> host_equal(const Tensor& self, const Tensor& other);

} // namespace ts
