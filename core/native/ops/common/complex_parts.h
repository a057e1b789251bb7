// Complex tensors as real ones, below the dispatcher: how kernels of real numbers compute with them.
#pragma once
#include "dispatch/op_handles.h"
#include "ops/common/raw.h"

namespace ts {

// (...) complex as (..., 2) real: the same memory, untracked.
Tensor raw_parts(const Tensor& t);
// One part of a complex tensor: the same memory, untracked.
Tensor raw_part(const Tensor& t, bool imaginary);
// Each element of an index twice, for both parts of a number: (..., 2) in the same memory.
Tensor raw_index_of_parts(const Tensor& index);
// A fresh contiguous real tensor (..., 2) as the complex one (...) of the same memory.
Tensor of_parts(Tensor fresh);

// An operator call for complex tensors only; in memory, since gradients read it more than once.
inline Tensor conjugate(const Tensor& t) { return is_complex(t.dtype()) ? ops::conj_physical(t) : t; }

} // namespace ts
