// Copies of kernel calls that outlive the kernel: ts_host.copy_call.
#pragma once
#include "tesserack/abi.h"

namespace ts {

// With everything a call points to but the memory of its tensors; NULL where there is no memory for it. No workspace.
ts_call* copy_call(const ts_call& call) noexcept;
void free_call(ts_call* copy) noexcept;

} // namespace ts
